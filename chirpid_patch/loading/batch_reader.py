"""Reading of one request: a batch, or a single item if automatic batching is off."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from chirpid_patch.datasets.samples import Collate, fetch_samples, load_batch, reads_singly
from chirpid_patch.loading.batch_requests import BatchRequest


class BatchReader:
    """Reads the requests of one loader: each at once, or in parts whose samples are collated at the end."""

    def __init__(self, dataset: Any, collate: Collate, *, batches: bool) -> None:
        self.dataset = dataset
        self._collate = collate
        self._makes_batches = batches

    @cached_property
    def _reads_singly(self) -> bool:
        return reads_singly(self.dataset)

    def read(self, request: BatchRequest) -> Any:
        """Return the batch of ``request``, or the single converted sample if automatic batching is off."""
        if self._makes_batches:
            return load_batch(self.dataset, request.indices, request.key, self._collate)
        return self._collate(self.dataset[request.indices])

    def parts(self, request: BatchRequest, most: int) -> list[range]:
        """Return the positions of the samples in up to ``most`` parts; none if they must be read at once."""
        if not self._makes_batches or not self._reads_singly or type(request.indices) not in (list, tuple):
            return []
        count = len(request.indices)
        most = min(most, count)
        return [range(part * count // most, (part + 1) * count // most) for part in range(most)]

    def samples(self, request: BatchRequest, part: range) -> list[Any]:
        """Return the samples of one part."""
        key = None if request.key is None else request.key.take(slice(part.start, part.stop))
        return fetch_samples(self.dataset, request.indices[part.start : part.stop], key)

    def collate(self, samples: list[Any]) -> Any:
        """Return the batch of the samples of all parts."""
        return self._collate(samples)
