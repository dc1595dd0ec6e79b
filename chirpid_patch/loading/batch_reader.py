"""A class that reads the samples of a request and collates them into a batch."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from chirpid_patch.datasets.samples import Collate, fetch_samples, load_batch, reads_sample_by_sample
from chirpid_patch.loading.batch_requests import BatchRequest
from chirpid_patch.torch_private import sample_fetcher


class BatchReader:
    """Read the batches of a loader.

    ``read`` reads a whole batch. Alternatively, several threads call ``samples`` to read parts of a batch, and
    ``collate`` joins the parts.

    Args:
        dataset: the dataset of the loader.
        collate: the ``collate_fn`` of the loader.
        batches: whether the loader builds batches. False means that automatic batching is off (``batch_size=None``).
    """

    def __init__(self, dataset: Any, collate: Collate, *, batches: bool) -> None:
        self.dataset = dataset
        self._collate = collate
        self._makes_batches = batches

    @cached_property
    def _reads_singly(self) -> bool:
        return reads_sample_by_sample(self.dataset)

    def read(self, request: BatchRequest) -> Any:
        """Return the batch of ``request``; without automatic batching, the result of ``collate_fn`` for its sample."""
        if self._makes_batches:
            return load_batch(self.dataset, request.indices, request.key, self._collate)
        return sample_fetcher(self.dataset, False, self._collate, False).fetch(request.indices)

    def parts(self, request: BatchRequest, most: int) -> list[range]:
        """Divide ``request`` into up to ``most`` parts, and return the positions of each part in the batch.

        If the samples must be read with one call, the list is empty.
        """
        if not self._makes_batches or not self._reads_singly or type(request.indices) not in (list, tuple):
            return []
        count = len(request.indices)
        most = min(most, count)
        return [range(part * count // most, (part + 1) * count // most) for part in range(most)]

    def samples(self, request: BatchRequest, part: range) -> list[Any]:
        """Read the samples at the positions ``part`` of the batch, and return the list of these samples."""
        key = None if request.key is None else request.key.take(slice(part.start, part.stop))
        return fetch_samples(self.dataset, request.indices[part.start : part.stop], key)

    def collate(self, samples: list[Any]) -> Any:
        """Return the batch of ``samples``, which are the samples of all parts in order."""
        return self._collate(samples)
