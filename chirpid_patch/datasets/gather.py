"""Reading a whole batch at once where a dataset allows it, to the exact effect of single samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from operator import index as as_int
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, default_collate, get_worker_info

from chirpid_patch.datasets.buffers import batch_memory
from chirpid_patch.datasets.collate import collate_pairs, stacks_samples
from chirpid_patch.datasets.heap import keep_freed_memory
from chirpid_patch.declaration import served
from chirpid_patch.randomness.keyed_random import RandomKey
from chirpid_patch.torch_private import shared_memory

Batch = list[Any]
RowKinds = list[tuple[torch.dtype, torch.Size]]
Collate = Callable[[Any], Any]


class BatchedDataset(Dataset[Any], ABC):
    """A map-style dataset that can also be read a batch at a time.

    Subclasses implement ``read_sample`` and ``read_batch``; ``read_batch`` must give what
    ``default_collate`` of the single samples gives. A subclass that replaces ``__getitem__`` is read by its
    own code only.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    def __getitem__(self, index: Any) -> Any:
        return self.read_sample(index, None)

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        """The samples at ``indices``: PyTorch's own protocol, for loaders that are not ours.

        What is in memory is read at once, and each sample is then a part of that batch's memory.
        """
        at_once = is_shipped(self) and self.in_memory and self.gathers and len(indices) > 0
        batch = self.read_batch(indices, None) if at_once else None
        if batch is None or not all(type(column) is Tensor and column.ndim for column in batch):
            return [self[index] for index in indices]
        return list(zip(*(column.unbind(0) for column in batch), strict=True))

    @abstractmethod
    def read_sample(self, index: Any, key: RandomKey | None) -> Any:
        """The sample at ``index``; ``key`` (of one sample) fixes its randomness, None draws it afresh."""

    @abstractmethod
    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        """The collated samples at ``indices`` in fresh memory; None where only single ones can be read."""

    @property
    @abstractmethod
    def in_memory(self) -> bool:
        """Whether batches are gathered from tensors that are in memory already."""

    @property
    @abstractmethod
    def fixed_samples(self) -> bool:
        """Whether reading a sample twice surely gives the same."""

    @property
    @abstractmethod
    def gathers(self) -> bool:
        """Whether samples are rows of tensors, hence equal in shape and dtype."""

    @property
    def row_kinds(self) -> RowKinds | None:
        """Dtypes and shapes of all samples, which are rows of tensors; None where that is not sure."""
        return None

    @property
    def keyed(self) -> bool:
        """Whether samples draw random numbers by the key that they are read with."""
        return True


class WrappingDataset(BatchedDataset):
    """A dataset over the samples of another one, which is ``base_dataset`` and, as old code calls it, ``dataset``."""

    base_dataset: Any

    @property
    def in_memory(self) -> bool:
        """Whether the dataset underneath is in memory."""
        return is_in_memory(self.base_dataset)

    @property
    def fixed_samples(self) -> bool:
        """Whether the samples underneath are fixed."""
        return has_fixed_samples(self.base_dataset)

    @property
    def gathers(self) -> bool:
        """Whether the samples underneath are rows of tensors."""
        return has_rows(self.base_dataset)

    @property
    def keyed(self) -> bool:
        """Whether the samples underneath draw by key."""
        return is_keyed(self.base_dataset)

    @property
    def dataset(self) -> Any:
        """The dataset underneath."""
        return self.base_dataset

    @dataset.setter
    def dataset(self, dataset: Any) -> None:
        self.base_dataset = dataset


def is_shipped(dataset: Any) -> bool:
    """Whether ``dataset`` is ours and nothing replaced how its samples are read."""
    kind = type(dataset)
    return (
        isinstance(dataset, BatchedDataset)
        and kind.__getitem__ is BatchedDataset.__getitem__
        and kind.__getitems__ is BatchedDataset.__getitems__
    )


def is_exactly(dataset: Any, kind: Any) -> bool:
    """Whether ``dataset`` reads its samples with the code of ``kind`` (it may be a subclass otherwise)."""
    return (
        isinstance(dataset, kind)
        and type(dataset).__getitem__ is kind.__getitem__
        and getattr(type(dataset), "__getitems__", None) is getattr(kind, "__getitems__", None)
    )


def _is_plain(tensor: Any) -> bool:
    """Whether ``index_select`` on ``tensor`` gives what indexing and stacking gives."""
    return (
        type(tensor) is Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.ndim > 0
        and not tensor.is_quantized
        and not tensor.requires_grad
        and can_gather(tensor.dtype)
    )


@cache
def can_gather(dtype: torch.dtype) -> bool:
    """Whether this version of PyTorch gathers rows of ``dtype``; some of unsigned integers it does not."""
    try:
        torch.index_select(torch.zeros(1, dtype=dtype), 0, torch.zeros(1, dtype=torch.int64))
    except (NotImplementedError, RuntimeError):
        return False
    return True


def _is_gatherable(dataset: Any) -> bool:
    return is_exactly(dataset, TensorDataset) and all(_is_plain(tensor) for tensor in dataset.tensors)


def is_in_memory(dataset: Any) -> bool:
    """Whether batches are gathered from memory, so that worker processes could only slow it down."""
    if is_exactly(dataset, Subset):
        return is_in_memory(dataset.dataset)
    if is_exactly(dataset, ConcatDataset):
        return all(is_in_memory(part) for part in dataset.datasets)
    dataset = served(dataset)
    if is_shipped(dataset):
        return bool(dataset.in_memory)
    return _is_gatherable(dataset)


def has_rows(dataset: Any) -> bool:
    """Whether the samples of ``dataset`` are rows of tensors, hence equal in shape and dtype."""
    if is_exactly(dataset, Subset):
        return has_rows(dataset.dataset)
    dataset = served(dataset)
    if is_shipped(dataset):
        return bool(dataset.gathers)
    return row_kinds(dataset) is not None


def row_kinds(dataset: Any) -> RowKinds | None:
    """Dtypes and shapes of all samples of a dataset over tensors; None where they may differ, or are not known."""
    if is_exactly(dataset, Subset):
        return row_kinds(dataset.dataset)
    if is_exactly(dataset, ConcatDataset):
        kinds = [row_kinds(part) for part in dataset.datasets]
        return kinds[0] if all(kind == kinds[0] for kind in kinds) else None
    dataset = served(dataset)
    if is_shipped(dataset):
        known: RowKinds | None = dataset.row_kinds
        return known
    return [(rows.dtype, rows.shape[1:]) for rows in dataset.tensors] if _is_gatherable(dataset) else None


def positions_of(indices: Sequence[Any], length: int) -> list[int] | None:
    """``indices`` as ints in 0..``length``-1; None if indexing with them would mean something else."""
    if set(map(type, indices)) == {int} and min(indices) >= 0 and max(indices) < length:
        return list(indices)
    positions = []
    for index in indices:
        # A bool indexes a tensor as a mask, not as 0 or 1.
        if isinstance(index, bool) or (isinstance(index, Tensor) and index.dtype is torch.bool):
            return None
        try:
            position = as_int(index)
        except TypeError:
            return None
        if not -length <= position < length:
            return None
        positions.append(position % length)
    return positions


def fetch_batch(dataset: Any, indices: Any, key: RandomKey | None = None) -> Batch | None:
    """What ``default_collate([dataset[i] for i in indices])`` gives, read at once; None if that is not
    possible.

    The batch is a list of columns in memory of its own, equal to the per-sample result bit for bit (random
    transforms: equal for the same ``key``). Indices the per-sample code would refuse give None, so that the
    caller's per-sample code raises the error.
    """
    if len(indices) == 0:
        return None
    dataset = served(dataset)
    if is_shipped(dataset):
        batch: Batch | None = dataset.read_batch(indices, key)
        return batch
    if is_exactly(dataset, Subset):
        mapped = map_indices(dataset.indices, indices)
        return None if mapped is None else fetch_batch(dataset.dataset, mapped, key)
    if is_exactly(dataset, ConcatDataset):
        return _fetch_concatenated(dataset, indices, key)
    found = tensors_behind(dataset, indices)
    if found is None:
        return None
    rows = torch.tensor(found[1])
    return [gather(tensor, rows) for tensor in found[0]]


def gather(tensor: Tensor, rows: Tensor) -> Tensor:
    """The rows of ``tensor`` in memory of their own."""
    if tensor.ndim == 1 and get_worker_info() is None:
        return torch.index_select(tensor, 0, rows)  # labels: too few bytes for memory that is worth keeping
    return torch.index_select(tensor, 0, rows, out=batch_like(tensor, len(rows)))


def batch_like(tensor: Tensor, count: int, dtype: torch.dtype | None = None) -> Tensor:
    """Memory for a batch of ``count`` samples shaped as those of ``tensor``; shared memory in a worker process.

    A worker hands its batches over through shared memory. Gathered on the heap and moved there afterwards,
    they leave the heap of glibc before 2.38 growing by every batch; ``default_collate`` gathers straight into
    shared memory too.
    """
    shape = (count, *tensor.shape[1:])
    dtype = tensor.dtype if dtype is None else dtype
    if get_worker_info() is not None:
        return shared_memory(shape, dtype)
    batch = batch_memory(shape, dtype)
    keep_freed_memory(batch.nbytes)
    return batch


def tensors_behind(dataset: Any, indices: Sequence[Any]) -> tuple[tuple[Tensor, ...], list[int]] | None:
    """The tensors in memory that ``dataset`` reads its samples from, and the rows behind ``indices``.

    ``None`` unless the dataset is a plain TensorDataset, or plain Subsets of one.
    """
    if is_exactly(dataset, Subset):
        mapped = map_indices(dataset.indices, indices)
        return None if mapped is None else tensors_behind(dataset.dataset, mapped)
    if not _is_gatherable(dataset):
        return None
    rows = positions_of(indices, len(dataset))
    return None if rows is None else (dataset.tensors, rows)


def has_fixed_samples(dataset: Any) -> bool:
    """Whether reading a sample twice surely gives the same: tensors in memory, nothing random on top of them."""
    if is_exactly(dataset, Subset):
        return has_fixed_samples(dataset.dataset)
    if is_exactly(dataset, ConcatDataset):
        return all(has_fixed_samples(part) for part in dataset.datasets)
    dataset = served(dataset)
    if is_shipped(dataset):
        return bool(dataset.fixed_samples)
    return _is_gatherable(dataset)


def map_indices(table: Any, indices: Sequence[Any]) -> list[Any] | None:
    """``[table[i] for i in indices]``; None if one is none of its places (the per-sample code raises then)."""
    try:
        return [table[index] for index in indices]
    except (IndexError, KeyError, TypeError):
        return None


def _fetch_concatenated(dataset: Any, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
    """A batch across the parts of a ConcatDataset: one gather a part, put back into the order asked for."""
    positions = positions_of(indices, len(dataset))
    if positions is None or not is_in_memory(dataset):
        return None
    bounds = torch.tensor(dataset.cumulative_sizes)
    parts = torch.bucketize(torch.tensor(positions), bounds, right=True)
    columns: list[tuple[Tensor, Batch]] = []
    for part in sorted(set(parts.tolist())):
        places = (parts == part).nonzero().flatten()
        start = dataset.cumulative_sizes[part - 1] if part else 0
        local = [positions[place] - start for place in places.tolist()]
        batch = fetch_batch(dataset.datasets[part], local, None if key is None else key.take(places.numpy()))
        if batch is None or not all(isinstance(column, Tensor) for column in batch):
            return None
        columns.append((places, batch))
    first = columns[0][1]
    kinds = [[(column.dtype, column.shape[1:]) for column in batch] for _, batch in columns]
    if any(kind != kinds[0] for kind in kinds):
        return None
    if len(columns) == 1:
        return first
    joined = [torch.empty((len(positions), *column.shape[1:]), dtype=column.dtype) for column in first]
    for places, batch in columns:
        for whole, column in zip(joined, batch, strict=True):
            whole.index_copy_(0, places, column)
    return joined


def reads_batches(dataset: Any) -> bool:
    """Whether ``dataset`` is one that this module can read a batch at a time: ours, or PyTorch's over tensors.

    A loader reads every other dataset with PyTorch's own code.
    """
    if is_exactly(dataset, Subset):
        return reads_batches(dataset.dataset)
    return is_shipped(served(dataset)) or is_in_memory(dataset)


def is_keyed(dataset: Any) -> bool:
    """Whether samples of ``dataset`` draw random numbers by the key that they are read with."""
    if is_exactly(dataset, Subset):
        return is_keyed(dataset.dataset)
    if is_exactly(dataset, ConcatDataset):
        return any(map(is_keyed, dataset.datasets))
    dataset = served(dataset)
    return is_shipped(dataset) and bool(dataset.keyed)


def _takes_key(dataset: Any) -> bool:
    """Whether single samples of ``dataset`` can be read with a key."""
    return _takes_key(dataset.dataset) if is_exactly(dataset, Subset) else is_shipped(dataset)


def fetch_sample(dataset: Any, index: Any, key: RandomKey | None = None) -> Any:
    """``dataset[index]``, its randomness fixed by ``key`` (of one sample) where the dataset is ours."""
    if key is not None and _takes_key(dataset):
        if isinstance(dataset, Subset):
            return fetch_sample(dataset.dataset, dataset.indices[index], key)
        return dataset.read_sample(index, key)
    return dataset[index]


def fetch_samples(dataset: Any, indices: Sequence[Any], key: RandomKey | None = None) -> list[Any]:
    """The samples at ``indices``, one by one, as PyTorch's own loader reads them."""
    if key is not None and _takes_key(dataset):
        return [fetch_sample(dataset, index, key.take([place])) for place, index in enumerate(indices)]
    many = getattr(dataset, "__getitems__", None)
    if many:
        samples: list[Any] = many(indices)
        return samples
    return [dataset[index] for index in indices]


def load_batch(dataset: Any, indices: Sequence[Any], key: RandomKey | None, collate: Collate) -> Any:
    """``collate([dataset[i] for i in indices])``, read at once where collation and dataset allow it."""
    if stacks_samples(collate):
        batch = fetch_batch(dataset, indices, key)
        if batch is not None and collate is not collate_pairs:
            return batch
        if batch is not None and len(batch) == 2 and all(isinstance(column, Tensor) for column in batch):
            return tuple(batch)
    return collate(fetch_samples(dataset, indices, key))


def reads_singly(dataset: Any) -> bool:
    """Whether a batch of ``dataset`` is read as single samples anyway, so that these may be read apart."""
    if is_exactly(dataset, Subset):
        return reads_singly(dataset.dataset)
    if is_shipped(dataset):
        base = getattr(dataset, "base_dataset", None)
        return not dataset.in_memory and (base is None or reads_singly(base))
    return not hasattr(dataset, "__getitems__") and not is_in_memory(dataset)


def fetch_pairs(dataset: Any, indices: Sequence[Any], key: RandomKey | None) -> tuple[Tensor, Any] | None:
    """The batch of (x, y) samples as (X, Y), X a fresh tensor; None where it cannot be read at once.

    A batch put together from samples that may differ has the dtype of none of them: it is not one to compute on.
    """
    if is_shipped(served(dataset)) and not has_rows(dataset):
        return None
    batch = fetch_batch(dataset, indices, key)
    if batch is None or len(batch) != 2 or not isinstance(batch[0], Tensor):
        return None
    return batch[0], batch[1]


def stack_pairs(samples: Sequence[Any]) -> tuple[Tensor, Any] | None:
    """(x, y) samples collated as (X, Y), X a fresh tensor; None unless all x agree in shape and dtype."""
    if not all(isinstance(sample, tuple | list) and len(sample) == 2 for sample in samples):
        return None
    xs = [x for x, _ in samples]
    if set(map(type, xs)) != {Tensor} or not _are_plain_samples(xs):
        return None
    first = xs[0]
    # Other layouts, such as channels_last, are the batch's, too.
    lent = get_worker_info() is None and all(x.is_contiguous() for x in xs)
    stacked = torch.stack(xs, out=batch_memory((len(xs), *first.shape), first.dtype)) if lent else default_collate(xs)
    labels: Any = tuple(y for _, y in samples)  # which PyTorch gives as they are, where they are text
    return stacked, default_collate(labels)


def _are_plain_samples(xs: Sequence[Tensor]) -> bool:
    alike = len({x.dtype for x in xs}) == len({x.shape for x in xs}) == 1
    kinds = alike and all(x.is_cpu and x.layout is torch.strided and not x.requires_grad for x in xs)
    return kinds and not xs[0].is_quantized
