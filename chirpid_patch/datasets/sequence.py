"""A dataset over a list of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chirpid_patch.datasets.gather import (
    Batch,
    BatchedDataset,
    BatchPart,
    RowKinds,
    alias_of,
    gather_batch,
    gather_node,
)
from chirpid_patch.datasets.samples import dense_tensor_bytes, fetch_sample, read_samples_of_list
from chirpid_patch.randomness.keyed_random import RandomKey

#: Smallest batch in bytes that stacks the samples of a list into reused memory. For smaller batches, the checks of the
#: samples take longer than the reused memory saves (measured with ``benchmarks/listed_samples.py``).
_SMALLEST_BYTES = 12 << 20


class WorkerSafeSequenceDataset(BatchedDataset):
    """A dataset over a list of samples.

    Args:
        data_list: a list, or any indexable object with a length. ``dataset[i]`` returns ``data_list[i]`` unchanged.
    """

    data = alias_of("data_list")

    def __init__(self, data_list: Any) -> None:
        self.data_list = data_list

    @property
    def children(self) -> Sequence[Any]:  # type: ignore[override]
        return (self.data_list,)

    @property
    def in_memory(self) -> bool:
        return self._has_list or super().in_memory

    @property
    def fixed_samples(self) -> bool:
        return self._has_list or super().fixed_samples

    @property
    def keyed(self) -> bool:
        return not self._has_list and super().keyed

    @property
    def row_kinds(self) -> RowKinds | None:
        return gather_node(self.data_list).row_kinds

    @property
    def samples_are_rows(self) -> bool:
        return not self._has_list and gather_node(self.data_list).samples_are_rows

    @property
    def count(self) -> int | None:
        return len(self.data_list) if self._has_list else gather_node(self.data_list).count

    @property
    def _has_list(self) -> bool:
        """Return whether the samples are in a list or tuple, so that reading a sample runs no code of the user."""
        return type(self.data_list) in (list, tuple)

    def __len__(self) -> int:
        return len(self.data_list)

    def resolve(self, indices: Sequence[Any]) -> list[BatchPart] | None:
        return [BatchPart(self.data_list, list(indices))]

    def read_sample(self, index: Any, key: RandomKey | None) -> Any:
        return fetch_sample(self.data_list, index, key)

    def read_each(self, indices: Sequence[Any]) -> list[Any]:
        if not self._has_list or type(self).read_sample is not WorkerSafeSequenceDataset.read_sample:
            return super().read_each(indices)
        samples = self.data_list
        return [samples[index] for index in indices]

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        if not self._has_list:
            return gather_batch(gather_node(self.data_list), indices, key)
        return read_samples_of_list(self.data_list, indices)

    def gains(self, count: int) -> bool:
        if not self._has_list:
            return gather_node(self.data_list).gains(count)
        first = self.data_list[0] if self.data_list else None
        x = first[0] if type(first) in (list, tuple) and first else None
        return dense_tensor_bytes(x) * count >= _SMALLEST_BYTES
