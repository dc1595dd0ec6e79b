"""Batched reading: read all samples of a batch at once, with exactly the result of reading single samples.

A ``GatherNode`` describes how batches of a dataset are read. The method ``read_batch`` of the ``GatherNode`` reads a
batch. The attribute ``children`` lists the inner datasets, and the method ``resolve`` maps the samples of a batch to
samples of the inner datasets. Other properties of a ``GatherNode`` describe the samples, for example the dtype.

``gather_node`` returns the ``GatherNode`` of any dataset. A dataset of this package (``BatchedDataset``) is itself a
``GatherNode``. For ``TensorDataset``, ``Subset`` and ``ConcatDataset`` of PyTorch, and for tensors and NumPy arrays,
``gather_node`` creates a ``GatherNode``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from chirpid_patch.datasets.batch_memory import is_large_batch
from chirpid_patch.datasets.rows import (
    SEQUENCES,
    as_row_tensor,
    can_select_rows_of,
    gather_rows,
    is_lookup_table,
    look_up_indices,
    nonnegative_indices,
)
from chirpid_patch.declaration import batched_object_for, is_computed_attribute
from chirpid_patch.machine.forked_process import is_forked_process
from chirpid_patch.randomness.keyed_random import RandomKey
from chirpid_patch.torch_private import has_active_torch_modes, hidden_from_torch_modes
from chirpid_patch.transforms.off_cpu import send_to_device

Batch = list[Any]
RowKinds = list[tuple[torch.dtype, torch.Size]]

#: Types of containers that store all their indices. A generator, in contrast, computes an index when it is requested.
INDEX_CONTAINERS = SEQUENCES | {set, frozenset}


class GatherNode:
    """A description of how batches of a dataset are read. Each kind of dataset has its own subclass of ``GatherNode``.

    Unless a subclass overrides the property, ``in_memory`` is True if ``in_memory`` is True for all inner datasets, and
    False without inner datasets. The same applies to ``fixed_samples`` and ``gathers``.
    """

    #: The inner datasets. The samples of this dataset are computed from samples of the inner datasets.
    children: Sequence[Any] = ()

    @property
    def child_nodes(self) -> Sequence[GatherNode]:
        """Return the ``GatherNode`` of each dataset in ``children``."""
        return [gather_node(child) for child in self.children]

    @property
    def in_memory(self) -> bool:
        """Return whether batches are read from tensors or lists in memory."""
        nodes = self.child_nodes
        return bool(nodes) and all(node.in_memory for node in nodes)

    @property
    def fixed_samples(self) -> bool:
        """Return whether reading the same index twice provably yields the same sample."""
        nodes = self.child_nodes
        return bool(nodes) and all(node.fixed_samples for node in nodes)

    @property
    def gathers(self) -> bool:
        """Return whether all samples are rows of tensors, so that all samples have the same shape and dtype."""
        nodes = self.child_nodes
        return bool(nodes) and all(node.gathers for node in nodes)

    @property
    def row_kinds(self) -> RowKinds | None:
        """Return dtype and shape of each part of a sample, such as x and y, if all samples are rows of tensors.

        The result is None if the samples may differ in dtype or shape.
        """
        return None

    @property
    def samples_are_rows(self) -> bool:
        """Return whether each sample is one row of a tensor or array, and not a pair such as (x, y).

        If True, ``read_batch`` returns a list of one tensor, and this tensor is the batch.
        """
        return False

    @property
    def count(self) -> int | None:
        """Return the number of samples; None if the number is unknown.

        The function does not call ``len(dataset)``, because a subclass may override ``__len__``.
        """
        return None

    @property
    def keyed(self) -> bool:
        """Return whether the samples depend on random numbers that ``read_batch`` computes from a ``RandomKey``."""
        return any(node.keyed for node in self.child_nodes)

    @property
    def reads_batches(self) -> bool:
        """Return whether batched reading is possible; False means that PyTorch's own code must read the samples."""
        return True

    def gains(self, count: int) -> bool:
        """Return whether reading ``count`` samples at once can be faster than reading sample by sample."""
        return count > 1

    def resolve(self, indices: Sequence[Any]) -> list[BatchPart] | None:
        """Map ``indices`` to indices of the inner datasets.

        The result has a ``BatchPart`` for each inner dataset from which the samples at ``indices`` are computed.
        ``read_labels`` uses this method to read labels y from the inner datasets. The result is None if these labels
        could differ from the labels of the samples, or if reading a sample makes random calls. The result can also be
        None if an index is invalid.
        """
        return None

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        """Return the collated batch of the samples at ``indices``, in new memory.

        The result is None if these samples can only be read one by one.

        Args:
            indices: indices of the samples.
            key: ``RandomKey`` from which the random numbers of the batch are computed; None: new random numbers.
        """
        return None


class BatchedDataset(GatherNode, Dataset[Any]):
    """A map-style dataset from which loaders can read whole batches.

    Subclasses implement ``read_sample`` and ``read_batch``. ``read_batch`` must return the batch that
    ``default_collate`` returns for the single samples, both in the main process and in a worker. If ``read_batch``
    cannot compute this batch, the method must return None. The loader then reads and collates single samples. So
    ``read_batch`` must not run code of the user, such as a transform, before it returns None, because this code would
    run twice. If a subclass overrides ``__getitem__``, the loader reads single samples with the new method.
    """

    def __len__(self) -> int:
        """Return the number of samples."""
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:
        return self.read_sample(index, None)

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        """Return the list of samples at ``indices``. PyTorch's own loader calls this method.

        If the samples are in memory, the method reads all samples at once, and the result contains views of one tensor.
        """
        if not is_unmodified_batched_dataset(self):
            return [self[index] for index in indices]
        indices = [index for index in indices]  # noqa: C416 - unlike list(), never calls a user's __len__
        at_once = self.gains(len(indices)) and self.in_memory and self.gathers
        batch = fetch_batch(self, indices) if at_once else None
        if batch is None or not all(type(column) is Tensor and column.ndim for column in batch):
            return self.read_each(indices)
        return list(zip(*(column.unbind(0) for column in batch), strict=True))

    def read_sample(self, index: Any, key: RandomKey | None) -> Any:
        """Return the sample at ``index``.

        Args:
            index: index of the sample.
            key: ``RandomKey`` from which the random numbers of the sample are computed; None: new random numbers.
        """
        raise NotImplementedError

    def read_each(self, indices: Sequence[Any]) -> list[Any]:
        """Return a list of the samples at ``indices``, which are read one by one."""
        return [self.read_sample(index, None) for index in indices]

    def read_samples(self, indices: Sequence[Any], key: RandomKey) -> list[Any]:
        """Return the list of samples at ``indices``.

        The samples may share memory, so the caller must collate the samples into new memory.
        """
        return [self.read_sample(index, key.take([place])) for place, index in enumerate(indices)]

    @property
    def looks_up_without_user_code(self) -> bool:
        """Return whether no user code runs when an index of this dataset is mapped to an index of the wrapped dataset.

        If True, a loader may map indices in advance or in another thread. The loader may also map an index more often
        or less often than PyTorch's loader.
        """
        return True


def alias_of(name: str) -> Any:
    """Return a property that is another name of the attribute ``name``, for older code."""
    return property(attrgetter(name), lambda owner, value: setattr(owner, name, value), doc=f"The same as ``{name}``.")


class WrappingDataset(BatchedDataset):
    """A dataset that computes its samples from the samples of an inner dataset.

    The attribute ``base_dataset`` is the inner dataset, and ``dataset`` is another name of this attribute.
    """

    base_dataset: Any
    dataset = alias_of("base_dataset")

    @property
    def children(self) -> Sequence[Any]:  # type: ignore[override]
        return (self.base_dataset,)


def is_unmodified_batched_dataset(dataset: Any) -> bool:
    """Return whether ``dataset`` is a ``BatchedDataset`` whose class overrides no method that reads samples."""
    kind = type(dataset)
    return (
        isinstance(dataset, BatchedDataset)
        and kind.__getitem__ is BatchedDataset.__getitem__
        and kind.__getitems__ is BatchedDataset.__getitems__
        and "__getitems__" not in vars(dataset)
        and dataset.looks_up_without_user_code
    )


# -- PyTorch's datasets


def _is_list(value: Any) -> bool:
    return type(value) in (list, tuple)


#: Maps each dataset class of PyTorch to the attributes from which the class reads samples. Each attribute is mapped to
#: a function that checks the attribute's value.
_READ_ATTRIBUTES: dict[type, dict[str, Callable[[Any], bool]]] = {
    TensorDataset: {"tensors": _is_list},
    Subset: {"indices": is_lookup_table, "dataset": lambda _: True},
    ConcatDataset: {"datasets": _is_list, "cumulative_sizes": _is_list},
}
#: The methods that run when a sample is read. For negative indices, ``ConcatDataset`` also calls ``__len__``.
_READING_METHODS = ("__getitem__", "__getitems__", "__getattribute__", "__getattr__")
#: PyTorch's original functions for the methods in ``_READING_METHODS``. A comparison with these functions shows whether
#: other code has replaced a method.
_ORIGINAL_METHODS = {
    kind: {
        name: getattr(kind, name, None)
        for name in (*_READING_METHODS, *(("__len__",) if kind is ConcatDataset else ()))
    }
    for kind in _READ_ATTRIBUTES
}


def reads_like_class(dataset: Any, cls: type) -> bool:
    """Return whether only PyTorch's own code of the class ``cls`` reads the samples of ``dataset``.

    For an object of a subclass, the result is True only if the subclass does not override code that reads samples.
    """
    own = type(dataset)
    if (own is not cls and cls not in own.__mro__) or not _reads_as_written(own, cls):
        return False
    state = vars(dataset)
    for name, fits in _READ_ATTRIBUTES[cls].items():
        if name not in state or not fits(state[name]):
            return False
    return "__getitems__" not in state


def _reads_as_written(own: type, kind: type) -> bool:
    """Return whether the class ``own`` reads samples with the methods of PyTorch's class ``kind``.

    The result is also False if ``own`` has a property in place of an attribute that these methods read.
    """
    for name, method in _ORIGINAL_METHODS[kind].items():
        if getattr(own, name, None) is not method:
            return False
    return own is kind or not any(is_computed_attribute(own, name) for name in _READ_ATTRIBUTES[kind])


@dataclass(frozen=True)
class BatchPart:
    """The samples of a batch that come from one of the inner datasets.

    Attributes:
        dataset: the inner dataset.
        indices: indices of the samples in the inner dataset.
        places: positions of these samples in the batch; None: these samples are the whole batch.
        number: position of the inner dataset in ``GatherNode.children``.
    """

    dataset: Any
    indices: list[Any]
    places: npt.NDArray[np.int64] | None = None
    number: int = 0

    def key(self, key: RandomKey | None) -> RandomKey | None:
        """Return the ``RandomKey`` of these samples. The argument ``key`` is the ``RandomKey`` of the whole batch."""
        return key if key is None or self.places is None else key.take(self.places)


#: If each part of a ``ConcatDataset`` has at most this number of samples in a batch, batched reading saves no time.
_FEW_SAMPLES_PER_PART = 8


class DeviceTensorDataset(TensorDataset):
    """A ``TensorDataset`` on a device. The tensors are copies of the plain CPU tensors of another ``TensorDataset``."""


class _TensorDatasetNode(GatherNode):
    """The ``GatherNode`` of a ``TensorDataset`` whose tensors are all plain (see ``can_select_rows_of``)."""

    in_memory = fixed_samples = gathers = True
    keyed = False

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    @property
    def row_kinds(self) -> RowKinds | None:
        return [(rows.dtype, rows.shape[1:]) for rows in self._dataset.tensors]

    @property
    def count(self) -> int | None:
        return len(self._dataset.tensors[0]) if self._dataset.tensors else None

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        positions = _rows_at(self._dataset, indices)
        if positions is None:
            return None
        rows = torch.tensor(positions, device="cpu")
        return [gather_rows(tensor, rows) for tensor in self._dataset.tensors]


class _RowTensorNode(_TensorDatasetNode):
    """The ``GatherNode`` of a tensor or NumPy array, whose rows are the samples."""

    samples_are_rows = True


class _SubsetNode(GatherNode):
    def __init__(self, dataset: Any) -> None:
        self._indices = dataset.indices
        self.children = (dataset.dataset,)
        self._child_node = gather_node(dataset.dataset)

    @property
    def child_nodes(self) -> Sequence[GatherNode]:
        return (self._child_node,)

    @property
    def row_kinds(self) -> RowKinds | None:
        return self._child_node.row_kinds

    @property
    def samples_are_rows(self) -> bool:
        return self._child_node.samples_are_rows

    @property
    def count(self) -> int | None:
        return len(self._indices)

    @property
    def reads_batches(self) -> bool:
        return self._child_node.reads_batches

    def gains(self, count: int) -> bool:
        return self._child_node.gains(count)

    def resolve(self, indices: Sequence[Any]) -> list[BatchPart] | None:
        mapped = look_up_indices(self._indices, indices)
        return None if mapped is None else [BatchPart(self.children[0], mapped)]

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        mapped = look_up_indices(self._indices, indices)
        return None if mapped is None else gather_batch(self._child_node, mapped, key)


class _ConcatNode(GatherNode):
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.children = dataset.datasets

    @cached_property
    def child_nodes(self) -> Sequence[GatherNode]:
        return super().child_nodes

    @property
    def gathers(self) -> bool:
        return self.row_kinds is not None

    @property
    def row_kinds(self) -> RowKinds | None:
        kinds = [node.row_kinds for node in self.child_nodes]
        return kinds[0] if all(kind == kinds[0] for kind in kinds) else None

    @property
    def samples_are_rows(self) -> bool:
        return bool(self.child_nodes) and all(node.samples_are_rows for node in self.child_nodes)

    @property
    def count(self) -> int | None:
        return len(self._dataset)

    @property
    def keyed(self) -> bool:
        # A TensorDataset needs no random numbers. Creating its node would take longer than reading a small batch.
        return any(gather_node(child).keyed for child in self.children if type(child) is not TensorDataset)

    @property
    def reads_batches(self) -> bool:
        return self.in_memory

    def gains(self, count: int) -> bool:
        if count < 2:
            return False
        if count > _FEW_SAMPLES_PER_PART * len(self.children):
            return any(gather_node(child).gains(count) for child in self.children)
        first = gather_node(self.children[0])
        if first.row_kinds is None:
            return first.gains(count)
        return any(is_large_batch(count * math.prod(shape) * dtype.itemsize) for dtype, shape in first.row_kinds)

    def resolve(self, indices: Sequence[Any]) -> list[BatchPart] | None:
        positions = nonnegative_indices(indices, len(self._dataset))
        if positions is None:
            return None
        bounds = self._dataset.cumulative_sizes
        numbers = [bisect_right(bounds, position) for position in positions]
        parts = []
        for number in sorted(set(numbers)):
            places = [place for place, one in enumerate(numbers) if one == number]
            start = bounds[number - 1] if number else 0
            local = [positions[place] - start for place in places]
            parts.append(BatchPart(self.children[number], local, np.array(places, dtype=np.int64), number))
        return parts

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        """Read the samples of each inner dataset at once, and return all samples in the requested order."""
        parts = self.resolve(indices) if self.in_memory else None
        if parts is None or not (len(parts) == 1 or all(gather_node(part.dataset).gathers for part in parts)):
            return None  # samples of several lists may differ in their types
        if any(self.child_nodes[part.number].samples_are_rows is not self.samples_are_rows for part in parts):
            return None
        batches = []
        for part in parts:
            batch = gather_batch(self.child_nodes[part.number], part.indices, part.key(key))
            if batch is None or not all(isinstance(column, Tensor) for column in batch):
                return None
            batches.append(batch)
        kinds = [[(column.dtype, column.shape[1:]) for column in batch] for batch in batches]
        if any(kind != kinds[0] for kind in kinds):
            return None
        if len(batches) == 1:
            return batches[0]
        joined = [column.new_empty((len(indices), *column.shape[1:])) for column in batches[0]]
        for part, batch in zip(parts, batches, strict=True):
            places = send_to_device(torch.from_numpy(part.places), batch[0].device)
            for whole, column in zip(joined, batch, strict=True):
                whole.index_copy_(0, places, column)
        return joined


def _rows_at(dataset: Any, indices: Sequence[Any]) -> list[int] | None:
    """Return ``indices`` as nonnegative row numbers.

    The result is None if an index is out of range, or if the tensors of the ``TensorDataset`` differ in length.
    """
    counts = {tensor.shape[0] for tensor in dataset.tensors}
    return nonnegative_indices(indices, counts.pop()) if len(counts) == 1 else None


def _is_gatherable(dataset: Any) -> bool:
    if type(dataset) is DeviceTensorDataset:
        return True
    return reads_like_class(dataset, TensorDataset) and all(map(can_select_rows_of, dataset.tensors))


def subset_or_concat_node(dataset: Any) -> _SubsetNode | _ConcatNode | None:
    """Return the ``GatherNode`` of ``dataset`` if ``dataset`` is a ``Subset`` or ``ConcatDataset``; else None."""
    if reads_like_class(dataset, Subset):
        return _SubsetNode(dataset)
    return _ConcatNode(dataset) if reads_like_class(dataset, ConcatDataset) else None


class _UnbatchedNode(GatherNode):
    """The ``GatherNode`` of every dataset that does not permit batched reading."""

    keyed = reads_batches = False


_UNBATCHED = _UnbatchedNode()


def gather_node(dataset: Any) -> GatherNode:
    """Return the ``GatherNode`` that describes how batches of ``dataset`` are read."""
    if has_active_torch_modes():
        with hidden_from_torch_modes():
            return _find_node(dataset)
    return _find_node(dataset)


def _find_node(dataset: Any) -> GatherNode:
    if type(dataset) is TensorDataset:
        return _TensorDatasetNode(dataset) if _is_gatherable(dataset) else _UNBATCHED
    joint = None if isinstance(dataset, BatchedDataset) else subset_or_concat_node(dataset)
    if joint is not None:
        return joint
    dataset = batched_object_for(dataset)
    if is_unmodified_batched_dataset(dataset):
        node: GatherNode = dataset
        return node
    rows = as_row_tensor(dataset)
    if rows is not None:
        return _RowTensorNode(TensorDataset(rows))
    return _TensorDatasetNode(dataset) if _is_gatherable(dataset) else _UNBATCHED


def is_in_memory(dataset: Any) -> bool:
    """Return whether batches of ``dataset`` are read from memory. If True, worker processes would only cost time."""
    return gather_node(dataset).in_memory


def permits_batched_reading(dataset: Any) -> bool:
    """Return whether ``dataset`` permits batched reading.

    The result is True for a ``TensorDataset``, a tensor, a NumPy array, a dataset of this package, and a dataset whose
    class has a decorator of ``datasets.declared``. The result is also True for a ``Subset`` of such a dataset, and for
    a ``ConcatDataset`` whose inner datasets are in memory. Exceptions are datasets whose batches could differ from the
    collated samples, for example sparse tensors, and datasets for which code of the user reads samples or looks up
    indices, for example a subclass with its own ``__getitem__``. The result is then False.
    """
    return gather_node(dataset).reads_batches


def fetch_batch(dataset: Any, indices: Any, random_key: RandomKey | None = None) -> Batch | None:
    """Read the samples at ``indices`` at once, and return the batch that ``default_collate`` makes from the samples.

    The batch is a list with one item for each part of a sample. For samples (x, y), the first item is a tensor of all
    x, and the second item is the collated y. All tensors are in new memory. The batch is equal, bit for bit, to the
    collated single samples. If the dataset has random transforms, the batch is equal only to single samples that
    ``fetch_samples`` reads with the same ``random_key``.

    The result is None in each of these cases:

    * ``dataset`` does not permit batched reading of these samples.
    * Each sample is one row of a tensor, and not a pair (``GatherNode.samples_are_rows``). ``default_collate`` then
      returns a tensor, and not a list.
    * ``indices`` is empty, or is not a list, tuple, range, array or tensor.
    * An index is out of range. If the caller then reads single samples, the dataset raises its own error.
    * This process was forked by other code than PyTorch's loader (see ``is_forked_process``). An operation on a whole
      batch may need several threads, and a forked process lacks the threads of its parent process.
    * A mode that observes each operation of PyTorch is active, such as ``TorchDispatchMode``.

    Args:
        dataset: any map-style dataset.
        indices: indices of the samples.
        random_key: ``RandomKey`` from which the random numbers of the batch are computed; None: new random numbers.
    """
    node = gather_node(dataset)
    return None if node.samples_are_rows else gather_batch(node, indices, random_key)


def gather_batch(node: GatherNode, indices: Any, random_key: RandomKey | None) -> Batch | None:
    """Return the result of ``fetch_batch`` for the dataset of ``node``.

    There is one difference: if each sample is one row of a tensor, ``fetch_batch`` returns None, and this function
    returns a list that contains only the batch.
    """
    if type(indices) not in SEQUENCES or not len(indices) or is_forked_process() or has_active_torch_modes():
        return None
    return node.read_batch(indices, random_key)


def source_tensors_and_rows(dataset: Any, indices: Sequence[Any]) -> tuple[tuple[Tensor, ...], list[int]] | None:
    """Return the tensors from which ``dataset`` reads its samples, and the row numbers of the samples at ``indices``.

    The result is None if an index is invalid. The result is also None if ``dataset`` is neither a ``TensorDataset`` nor
    a ``Subset`` of a ``TensorDataset``, or if a subclass or other code replaces the methods that read samples.
    """
    if reads_like_class(dataset, Subset):
        mapped = look_up_indices(dataset.indices, indices)
        return None if mapped is None else source_tensors_and_rows(dataset.dataset, mapped)
    if not _is_gatherable(dataset):
        return None
    rows = _rows_at(dataset, indices)
    return None if rows is None else (dataset.tensors, rows)
