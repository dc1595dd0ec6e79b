"""Loading one task: a batch, or a single item where automatic batching is off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chirpid_patch.data.fetch import Collate, collate_samples, fetch_samples, load_batch, reads_singly
from chirpid_patch.loading.tasks import LoadTask


class TaskLoading:
    """How the tasks of one dataset are loaded: each at once, or its samples in parts and then collated."""

    def __init__(self, dataset: Any, collate: Collate) -> None:
        self.dataset = dataset
        self._collate = collate
        self._singly = reads_singly(dataset)

    def load(self, task: LoadTask) -> Any:
        """The batch of ``task``, or the single converted sample where automatic batching is off."""
        if task.is_batch:
            return load_batch(self.dataset, task.indices, task.key, self._collate)
        return self._collate(self.dataset[task.indices])

    def parts(self, task: LoadTask, most: int) -> list[range]:
        """The positions of ``task``'s samples in up to ``most`` parts; none where it has to be loaded at once."""
        if not task.is_batch or not self._singly:
            return []
        count = len(task.indices)
        most = min(most, count)
        return [range(part * count // most, (part + 1) * count // most) for part in range(most)]

    def samples(self, task: LoadTask, part: range) -> list[Any]:
        """The samples of one part."""
        key = None if task.key is None else task.key.take(slice(part.start, part.stop))
        return fetch_samples(self.dataset, task.indices[part.start : part.stop], key)

    def collate(self, samples: Sequence[Any]) -> Any:
        """The batch of all parts' samples."""
        return collate_samples(samples, self._collate)
