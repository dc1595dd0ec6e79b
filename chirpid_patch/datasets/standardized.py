"""A dataset that standardises the samples of another dataset, can be pickled, and computes whole batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from chirpid_patch.datasets.gather import (
    Batch,
    BatchPart,
    RowKinds,
    WrappingDataset,
    alias_of,
    gather_node,
    source_tensors_and_rows,
)
from chirpid_patch.datasets.rows import allocate_batch_like, gather_rows, is_lookup_table, look_up_indices
from chirpid_patch.datasets.samples import fetch_pair_batch, fetch_sample
from chirpid_patch.declaration import is_computed_attribute
from chirpid_patch.native import standardize_rows
from chirpid_patch.randomness.keyed_random import RandomKey
from chirpid_patch.transforms import off_cpu

_Statistic = float | np.floating[Any] | tuple[float, str] | Tensor


def _pack_statistic(value: Any) -> _Statistic:
    """Convert a mean or deviation to the value that the dataset stores and pickles.

    A 0-dim floating-point tensor becomes a tuple (number, dtype name).
    """
    if isinstance(value, np.ndarray | list | tuple):
        value = torch.as_tensor(value, dtype=torch.float32)
    if not isinstance(value, Tensor):
        return cast(float, value)
    tensor = value.detach()
    if tensor.ndim == 0 and tensor.is_floating_point():
        return tensor.item(), str(tensor.dtype).removeprefix("torch.")
    return tensor


def _unpack_statistic(state: _Statistic) -> Any:
    if isinstance(state, tuple):
        number, dtype = state
        return torch.tensor(number, dtype=getattr(torch, dtype))
    return state


def _fits(shape: Sequence[int], sample: Sequence[int]) -> bool:
    """Return whether a mean of shape ``shape`` broadcasts to samples of shape ``sample`` and keeps their shape."""
    padded = (*(len(sample) - len(shape)) * (1,), *shape)
    return len(padded) == len(sample) and all(one in (1, size) for one, size in zip(padded, sample, strict=True))


class WorkerSafeStandardizedDataset(WrappingDataset):
    """A dataset that standardises samples (x, y) of ``base_dataset`` to ``((x - mean) / (std + eps), y)``.

    Batches and single samples are equal, bit for bit, to this expression. The dataset can be pickled.

    Code may assign the attributes ``mean``, ``std``, ``indices`` and ``dataset`` later. The dataset then computes
    samples and batches from the new values. ``dataset``, ``base_dataset`` and ``original_dataset`` are three names of
    the same attribute.

    Args:
        base_dataset: map-style dataset of samples (x, y), where x is a tensor.
        indices: indices of samples of ``base_dataset``. Sample i of this dataset is computed from
            ``base_dataset[indices[i]]``. If ``indices`` is a dictionary or a pandas Series, i is a key. The dataset
            converts a generator or set to a list.
        mean: number, or tensor that broadcasts to x. The dataset converts lists, tuples and NumPy arrays to float32
            tensors.
        std: standard deviation, of any type that ``mean`` may have.
        eps: number that is added to ``std``, to avoid a division by 0.
    """

    original_dataset = alias_of("base_dataset")

    #: Cached values: the tuple ``(mean, std + eps)``, and a dictionary. The dictionary maps dtype and number of axes of
    #: x to the tuple as two floats. None: nothing is cached. One attribute contains all values, so that a thread never
    #: reads an old mean together with a new deviation.
    _cached: tuple[tuple[Any, Any], dict[tuple[torch.dtype, int], tuple[float, float] | None]] | None

    def __init__(self, base_dataset: Any, indices: Iterable[Any], mean: Any, std: Any, *, eps: float = 1e-8) -> None:
        self.base_dataset = base_dataset
        self.indices: Any = indices if hasattr(type(indices), "__getitem__") else list(indices)
        self.mean = mean
        self.std = std
        self.eps = float(eps)

    @property
    def mean(self) -> Any:
        """Return the mean, which is subtracted from x."""
        return _unpack_statistic(self._mean)

    @mean.setter
    def mean(self, mean: Any) -> None:
        self._mean, self._cached = _pack_statistic(mean), None

    @property
    def std(self) -> Any:
        """Return the standard deviation, without ``eps``."""
        return _unpack_statistic(self._std)

    @std.setter
    def std(self, std: Any) -> None:
        self._std, self._cached = _pack_statistic(std), None

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def row_kinds(self) -> RowKinds | None:
        kinds = gather_node(self.base_dataset).row_kinds
        if kinds is None or len(kinds) != 2:
            return None
        dtype, shape = kinds[0]
        return kinds if self.keeps_rows(torch.empty((1, *shape), dtype=dtype, device="meta")) else None

    @property
    def count(self) -> int | None:
        return len(self.indices)

    @property
    def looks_up_without_user_code(self) -> bool:
        own = type(self)
        return (own is WorkerSafeStandardizedDataset or not is_computed_attribute(own, "indices")) and is_lookup_table(
            self.indices
        )

    def keeps_rows(self, batch: Tensor) -> bool:
        """Return whether ``batch`` can be standardised at once.

        The result is True if standardising keeps dtype and shape, and yields the same values as for single samples.
        """
        return self._broadcasts(batch) and self._stays_in_place(batch)

    def operands(self) -> tuple[Any, Any]:
        """Return the tuple ``(mean, std + eps)``. The tuple is cached until code assigns ``mean`` or ``std``."""
        return self._state()[0]

    def _state(self) -> tuple[tuple[Any, Any], dict[tuple[torch.dtype, int], tuple[float, float] | None]]:
        cached = self._cached
        if cached is None:
            cached = self._cached = (self.mean, self.std + self.eps), {}
        return cached

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cached": None}

    def resolve(self, indices: Sequence[Any]) -> list[BatchPart] | None:
        mapped = look_up_indices(self.indices, indices)
        return None if mapped is None else [BatchPart(self.base_dataset, mapped)]

    def read_sample(self, index: Any, key: RandomKey | None) -> tuple[Any, Any]:
        x, y = fetch_sample(self.base_dataset, self.indices[index], key)
        mean, deviation = self.operands()
        return (x - mean) / deviation, y

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        mapped = look_up_indices(self.indices, indices)
        if mapped is None:
            return None
        found = source_tensors_and_rows(self.base_dataset, mapped)
        if found is not None and len(found[0]) == 2:
            (xs, ys), rows = found[0], torch.tensor(found[1], device="cpu")
            batch = self._standardized_rows(xs, rows)
            return [self._standardize_column(gather_rows(xs, rows)) if batch is None else batch, gather_rows(ys, rows)]
        pairs = fetch_pair_batch(self.base_dataset, mapped, key)
        return None if pairs is None else [self._standardize_column(pairs[0]), pairs[1]]

    def _standardized_rows(self, xs: Tensor, rows: Tensor) -> Tensor | None:
        """Copy and standardise the given rows of ``xs`` in one step; return None if one step is not possible."""
        numbers = self._plain_statistics(xs) if not off_cpu.is_off_cpu(xs) else None
        if numbers is None:
            return None
        batch = allocate_batch_like(xs, len(rows))
        return batch if standardize_rows(batch, xs, rows, *numbers) else None

    def _plain_statistics(self, xs: Tensor) -> tuple[float, float] | None:
        """Return ``mean`` and ``std + eps`` as floats.

        The result is None if mean or deviation is not a single number, or if standardising would change dtype or shape
        of the samples. The result is cached for each combination of the dtype and the number of axes of ``xs``.
        """
        ((mean, deviation), numbers), kind = self._state(), (xs.dtype, xs.ndim)
        if kind not in numbers:
            fits = not np.ndim(mean) and not np.ndim(deviation) and self._broadcasts(xs) and self._stays_in_place(xs)
            numbers[kind] = (float(mean), float(deviation)) if fits else None
        return numbers[kind]

    def _standardize_column(self, batch: Tensor) -> Any:
        """Standardise ``batch``, at once if the result is the same as for single samples, else sample by sample.

        ``batch`` must not share memory with other tensors, because the function may change ``batch`` in place.
        """
        mean, deviation = (off_cpu.as_exact_operand(statistic, batch) for statistic in self.operands())
        if not self._broadcasts(batch):
            return default_collate([(x - mean) / deviation for x in batch])
        if self._stays_in_place(batch):
            return batch.sub_(mean).div_(deviation)
        return (batch - mean) / deviation

    def _broadcasts(self, batch: Tensor) -> bool:
        """Return whether mean and deviation broadcast to ``batch`` in the same way as to each sample.

        The result is False for 0-dim samples. Their batch is a 1-dim tensor, and PyTorch's type promotion differs
        between 0-dim and 1-dim tensors. The result is also False if mean or deviation has more axes than a sample,
        because the first of these axes would broadcast along the batch axis.
        """
        return batch.ndim > 1 and max(map(np.ndim, self.operands())) < batch.ndim

    def _stays_in_place(self, batch: Tensor) -> bool:
        """Return whether standardising keeps dtype and shape, so that the result fits into the memory of ``batch``."""
        return batch.is_floating_point() and all(
            torch.result_type(batch, statistic) == batch.dtype
            and (np.ndim(statistic) == 0 or _fits(statistic.shape, batch.shape[1:]))
            for statistic in self.operands()
        )
