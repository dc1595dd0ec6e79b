"""Batched reading of datasets that permit it, with exactly the result of single samples.

A ``Node`` describes how: ``children`` (the inner datasets), ``resolve`` (the children's samples of a batch), the
properties that all samples share, and ``read_batch``. A dataset of this package, a ``BatchedDataset``, is a node
itself; known datasets of PyTorch have one. ``gather_node`` returns the node of any dataset.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from chirpid_patch.datasets.buffers import is_large
from chirpid_patch.datasets.rows import SEQUENCES, gather, is_plain, is_table, map_indices, positions_of
from chirpid_patch.declaration import batched_object_for, is_computed
from chirpid_patch.machine.forked import is_threadless_copy
from chirpid_patch.randomness.keyed_random import RandomKey
from chirpid_patch.transforms.off_cpu import send

Batch = list[Any]
RowKinds = list[tuple[torch.dtype, torch.Size]]

#: Iterables whose indices all exist before the first sample is read.
WRITTEN_DOWN = SEQUENCES | {set, frozenset}


class Node:
    """How a dataset is read, and the properties that all its samples share.

    The default properties are those of the children.
    """

    #: The datasets whose samples these are made from.
    children: Sequence[Any] = ()

    @property
    def child_nodes(self) -> Sequence[Node]:
        """Return the current nodes of ``children``."""
        return [gather_node(child) for child in self.children]

    @property
    def in_memory(self) -> bool:
        """Return whether batches are gathered from tensors in memory."""
        nodes = self.child_nodes
        return bool(nodes) and all(node.in_memory for node in nodes)

    @property
    def fixed_samples(self) -> bool:
        """Return whether reading a sample twice provably yields the same sample."""
        nodes = self.child_nodes
        return bool(nodes) and all(node.fixed_samples for node in nodes)

    @property
    def gathers(self) -> bool:
        """Return whether samples are rows of tensors, hence equal in shape and dtype."""
        nodes = self.child_nodes
        return bool(nodes) and all(node.gathers for node in nodes)

    @property
    def row_kinds(self) -> RowKinds | None:
        """Return dtypes and shapes of all samples if these are rows of tensors; None if that is not certain."""
        return None

    @property
    def count(self) -> int | None:
        """Return how many indices, counted from 0, have a sample, independent of ``len``; None if it is not known."""
        return None

    @property
    def keyed(self) -> bool:
        """Return whether samples use the random numbers of the key that they are read with."""
        return any(node.keyed for node in self.child_nodes)

    @property
    def reads_batches(self) -> bool:
        """Return whether batched reading is possible; PyTorch's own code reads every other dataset."""
        return True

    def gains(self, count: int) -> bool:
        """Return whether reading ``count`` samples at once can take less time than reading them one by one."""
        return count > 1

    def resolve(self, indices: Sequence[Any]) -> list[Part] | None:
        """Return the children's samples that share y with the samples (x, y) at ``indices``; None: there are none."""
        return None

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        """Return the collated samples at ``indices`` in new memory; None if only single samples can be read."""
        return None


class BatchedDataset(Node, Dataset[Any]):
    """A map-style dataset with batched reading.

    Subclasses implement ``read_sample`` and ``read_batch``. ``read_batch`` must return the result of
    ``default_collate`` of the single samples, in every process. Alternatively it returns None before it calls any other
    code. The loader then reads and collates single samples. If a subclass overrides ``__getitem__``, only its own code
    reads it.
    """

    def __len__(self) -> int:
        """Return the number of samples."""
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:
        return self.read_sample(index, None)

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        """Return the samples at ``indices``. PyTorch's own loader calls this method.

        Samples in memory are read at once. Each sample is then a view of the memory of that batch.
        """
        if not uses_package_read(self):
            return [self[index] for index in indices]
        at_once = self.gains(len(indices)) and self.in_memory and self.gathers
        batch = fetch_batch(self, indices) if at_once else None
        if batch is None or not all(type(column) is Tensor and column.ndim for column in batch):
            return self.read_each(indices)
        return list(zip(*(column.unbind(0) for column in batch), strict=True))

    def read_sample(self, index: Any, key: RandomKey | None) -> Any:
        """Return the sample at ``index``; ``key`` (of one sample) fixes its random numbers, None draws new ones."""
        raise NotImplementedError

    def read_each(self, indices: Sequence[Any]) -> list[Any]:
        """Return the samples at ``indices``, read one by one."""
        return [self.read_sample(index, None) for index in indices]

    def read_samples(self, indices: Sequence[Any], key: RandomKey) -> list[Any]:
        """Return the samples at ``indices``, which may share memory; the caller collates them into a copy."""
        return [self.read_sample(index, key.take([place])) for place, index in enumerate(indices)]

    @property
    def chooses_freely(self) -> bool:
        """Return whether indices can be looked up earlier, elsewhere, or more or less often with no visible effect."""
        return True


class WrappingDataset(BatchedDataset):
    """A dataset over the samples of another one: ``base_dataset`` or, in older code, ``dataset``."""

    base_dataset: Any

    @property
    def children(self) -> Sequence[Any]:  # type: ignore[override]
        return (self.base_dataset,)

    @property
    def dataset(self) -> Any:
        """Return the inner dataset."""
        return self.base_dataset

    @dataset.setter
    def dataset(self, dataset: Any) -> None:
        self.base_dataset = dataset


def uses_package_read(dataset: Any) -> bool:
    """Return whether ``dataset`` is a dataset of this package without overrides of the methods that read samples."""
    kind = type(dataset)
    return (
        isinstance(dataset, BatchedDataset)
        and kind.__getitem__ is BatchedDataset.__getitem__
        and kind.__getitems__ is BatchedDataset.__getitems__
        and "__getitems__" not in vars(dataset)
        and dataset.chooses_freely
    )


# -- PyTorch's datasets


def _is_list(value: Any) -> bool:
    return type(value) in (list, tuple)


#: Attributes from which samples of PyTorch's datasets are read, with a test of their values.
_READ_FROM: dict[type, dict[str, Callable[[Any], bool]]] = {
    TensorDataset: {"tensors": _is_list},
    Subset: {"indices": is_table, "dataset": lambda _: True},
    ConcatDataset: {"datasets": _is_list, "cumulative_sizes": _is_list},
}
#: The methods that reading a sample calls; for negative indices of a ``ConcatDataset`` also its length.
_READ_WITH = ("__getitem__", "__getitems__", "__getattribute__", "__getattr__")
#: PyTorch's versions of these methods: other code may replace them.
_WRITTEN = {
    kind: {name: getattr(kind, name, None) for name in (*_READ_WITH, *(("__len__",) if kind is ConcatDataset else ()))}
    for kind in _READ_FROM
}


def is_exactly(dataset: Any, kind: type) -> bool:
    """Return whether PyTorch's code of ``kind`` reads the samples of ``dataset``, and no other code.

    ``dataset`` may be a subclass with other methods. Its samples then come from its own attributes.
    """
    own = type(dataset)
    if (own is not kind and kind not in own.__mro__) or not _reads_as_written(own, kind):
        return False
    state = vars(dataset)
    for name, fits in _READ_FROM[kind].items():
        if name not in state or not fits(state[name]):
            return False
    return "__getitems__" not in state


def _reads_as_written(own: type, kind: type) -> bool:
    """Return whether ``own`` reads samples by the methods of PyTorch's class, from attributes that are not computed."""
    for name, method in _WRITTEN[kind].items():
        if getattr(own, name, None) is not method:
            return False
    return own is kind or not any(is_computed(own, name) for name in _READ_FROM[kind])


@dataclass(frozen=True)
class Part:
    """The part of a batch that comes from one child.

    Attributes:
        dataset: the child.
        indices: indices of its samples.
        places: places of these samples in the batch; None: the batch has no other samples.
        number: place of the child among all children.
    """

    dataset: Any
    indices: list[Any]
    places: npt.NDArray[np.int64] | None = None
    number: int = 0

    def key(self, key: RandomKey | None) -> RandomKey | None:
        """Return the keys of these samples, taken from the keys of the batch."""
        return key if key is None or self.places is None else key.take(self.places)


#: Samples of each part of a ``ConcatDataset`` that are read one by one in the time that gathering them takes.
_FEW = 8


class RowsOnDevice(TensorDataset):
    """Copies on a device of the plain tensors of a ``TensorDataset``."""


class _TensorRows(Node):
    """The node of a ``TensorDataset`` of plain tensors."""

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
        return [gather(tensor, rows) for tensor in self._dataset.tensors]


class _JointNode(Node):
    """A dataset of PyTorch that contains samples of other datasets. Each call of ``gather_node`` builds a new node."""

    @cached_property
    def child_nodes(self) -> Sequence[Node]:
        return super().child_nodes


class _SubsetNode(_JointNode):
    """The node of a ``Subset``."""

    def __init__(self, dataset: Any) -> None:
        self._indices = dataset.indices
        self._child = dataset.dataset
        self.children = (self._child,)

    @property
    def row_kinds(self) -> RowKinds | None:
        return self.child_nodes[0].row_kinds

    @property
    def count(self) -> int | None:
        return len(self._indices)

    @property
    def reads_batches(self) -> bool:
        return self.child_nodes[0].reads_batches

    def resolve(self, indices: Sequence[Any]) -> list[Part] | None:
        mapped = map_indices(self._indices, indices)
        return None if mapped is None else [Part(self._child, mapped)]

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        mapped = map_indices(self._indices, indices)
        return None if mapped is None else read_at_once(self.child_nodes[0], mapped, key)


class _ConcatNode(_JointNode):
    """The node of a ``ConcatDataset``."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.children = dataset.datasets

    @property
    def gathers(self) -> bool:
        return self.row_kinds is not None

    @property
    def row_kinds(self) -> RowKinds | None:
        kinds = [node.row_kinds for node in self.child_nodes]
        return kinds[0] if all(kind == kinds[0] for kind in kinds) else None

    @property
    def count(self) -> int | None:
        return len(self._dataset)

    @property
    def keyed(self) -> bool:
        # Rows of tensors need no random numbers: creating their nodes takes longer than reading a small batch.
        return any(gather_node(child).keyed for child in self.children if type(child) is not TensorDataset)

    @property
    def reads_batches(self) -> bool:
        return self.in_memory

    def gains(self, count: int) -> bool:
        if count < 2 or count > _FEW * len(self.children):
            return count > 1
        kinds = gather_node(self.children[0]).row_kinds if self.children else None
        return kinds is None or any(is_large(count * math.prod(shape) * dtype.itemsize) for dtype, shape in kinds)

    def resolve(self, indices: Sequence[Any]) -> list[Part] | None:
        positions = positions_of(indices, len(self._dataset))
        if positions is None:
            return None
        bounds = self._dataset.cumulative_sizes
        numbers = [bisect_right(bounds, position) for position in positions]
        parts = []
        for number in sorted(set(numbers)):
            places = [place for place, one in enumerate(numbers) if one == number]
            start = bounds[number - 1] if number else 0
            local = [positions[place] - start for place in places]
            parts.append(Part(self.children[number], local, np.array(places, dtype=np.int64), number))
        return parts

    def read_batch(self, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        """Gather the rows of each part once, and return them in the requested order."""
        parts = self.resolve(indices) if self.in_memory else None
        if parts is None or not (len(parts) == 1 or all(gather_node(part.dataset).gathers for part in parts)):
            return None  # samples of several lists may differ: a number here, a tensor there
        batches = []
        for part in parts:
            batch = read_at_once(self.child_nodes[part.number], part.indices, part.key(key))
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
            places = send(torch.from_numpy(part.places), batch[0].device)
            for whole, column in zip(joined, batch, strict=True):
                whole.index_copy_(0, places, column)
        return joined


def _rows_at(dataset: Any, indices: Sequence[Any]) -> list[int] | None:
    """Return the rows at ``indices`` of a ``TensorDataset``; None if a tensor lacks one of them."""
    counts = {tensor.shape[0] for tensor in dataset.tensors}
    return positions_of(indices, counts.pop()) if len(counts) == 1 else None


def _is_gatherable(dataset: Any) -> bool:
    if type(dataset) is RowsOnDevice:
        return True
    return is_exactly(dataset, TensorDataset) and all(map(is_plain, dataset.tensors))


def joint_of(dataset: Any) -> _SubsetNode | _ConcatNode | None:
    """Return the node of a ``Subset`` or ``ConcatDataset``, which joins the samples of its children; else None."""
    if is_exactly(dataset, Subset):
        return _SubsetNode(dataset)
    return _ConcatNode(dataset) if is_exactly(dataset, ConcatDataset) else None


class _OwnCodeNode(Node):
    """The node of any other dataset: only the dataset's own code reads it."""

    keyed = reads_batches = False


_OWN_CODE = _OwnCodeNode()


def gather_node(dataset: Any) -> Node:
    """Return the node that describes how ``dataset`` is read."""
    if type(dataset) is TensorDataset:
        return _TensorRows(dataset) if _is_gatherable(dataset) else _OWN_CODE
    joint = None if isinstance(dataset, BatchedDataset) else joint_of(dataset)
    if joint is not None:
        return joint
    dataset = batched_object_for(dataset)
    if uses_package_read(dataset):
        shipped: Node = dataset
        return shipped
    return _TensorRows(dataset) if _is_gatherable(dataset) else _OWN_CODE


def is_in_memory(dataset: Any) -> bool:
    """Return whether batches are gathered from memory. Worker processes would only slow such loading down."""
    return gather_node(dataset).in_memory


def reads_batches(dataset: Any) -> bool:
    """Return whether ``dataset`` permits batched reading: a dataset of this package, or one of PyTorch over tensors."""
    return gather_node(dataset).reads_batches


def fetch_batch(dataset: Any, indices: Any, key: RandomKey | None = None) -> Batch | None:
    """Return ``default_collate([dataset[i] for i in indices])``, read at once; None if that is not possible.

    The batch is a list of columns in new memory, equal to the per-sample result bit for bit (random transforms: equal
    for the same ``key``). If per-sample code would refuse an index, the result is None, so that the caller's per-sample
    code raises the error. A forked copy of the process also returns None: operations on a whole batch may need several
    threads, which it lacks.
    """
    return read_at_once(gather_node(dataset), indices, key)


def read_at_once(node: Node, indices: Any, key: RandomKey | None) -> Batch | None:
    """Return ``fetch_batch`` of the dataset with this node."""
    if type(indices) not in SEQUENCES or not len(indices) or is_threadless_copy():
        return None
    return node.read_batch(indices, key)


def tensors_behind(dataset: Any, indices: Sequence[Any]) -> tuple[tuple[Tensor, ...], list[int]] | None:
    """Return the tensors in memory from which ``dataset`` reads its samples, and the rows of ``indices``.

    ``None`` unless the dataset is a plain TensorDataset, or plain Subsets of one.
    """
    if is_exactly(dataset, Subset):
        mapped = map_indices(dataset.indices, indices)
        return None if mapped is None else tensors_behind(dataset.dataset, mapped)
    if not _is_gatherable(dataset):
        return None
    rows = _rows_at(dataset, indices)
    return None if rows is None else (dataset.tensors, rows)
