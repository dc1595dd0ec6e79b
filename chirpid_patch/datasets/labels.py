"""Labels of a dataset without computing its samples, where that gives the same; sample by sample elsewhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from chirpid_patch.datasets.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.datasets.sequence import WorkerSafeSequenceDataset
from chirpid_patch.datasets.standardized import WorkerSafeStandardizedDataset

_Reader = Callable[[Any], Any]

#: What a reader answers where only reading the whole sample is sure to be right, errors included.
_UNSURE = object()

#: Integer types of a 0-dim tensor that is an index. An unsigned byte is not one: PyTorch reads it as a mask.
_INDEX_DTYPES = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})


def read_labels(dataset: Any, indices: Iterable[Any] | None = None, *, unpack: bool | None = None) -> list[Any]:
    """The labels of the samples (x, y) of ``dataset``: exactly ``[dataset[i][1] for i in indices]``.

    Types, values, order and exceptions are those of that expression, and labels from a label tensor are views of
    it, as there. What is left out is work on x that nobody else can notice: x is not read where samples come from a
    plain ``TensorDataset`` or from lists, also through plain ``Subset`` and ``ConcatDataset``, and not computed by
    the shipped datasets on top of them. Every other dataset is read sample by sample: its own ``__getitem__`` may
    log, count or draw random numbers, and so does augmentation while it is on.

    Args:
        dataset: anything that can be indexed (with ``indices``) or iterated over (without).
        indices: which samples, in this order; any iterable of what ``dataset`` takes as an index. None means all
            samples, as iteration gives them: ``[y for _, y in dataset]``.
        unpack: take samples apart as ``_, y = sample``, which refuses all but pairs, or read ``sample[1]``. None
            takes them apart without ``indices`` only.

    Returns:
        One label a sample, as the dataset gives it: 0-dim views of the labels for a ``TensorDataset``.

    Raises:
        IndexError: for an index that ``dataset`` refuses; and whatever reading a sample raises.
        ValueError: where samples are taken apart and one is not a pair.
    """
    pairs = indices is None if unpack is None else unpack
    label_of = _pair_label if pairs else _second
    reader = _reader(dataset, pairs)
    if indices is None:
        if reader is None or hasattr(type(dataset), "__iter__"):
            return [label_of(sample) for sample in dataset]
        return _until_refused(dataset, reader, label_of)
    if reader is None:
        return [label_of(dataset[index]) for index in indices]
    labels = ((index, reader(index)) for index in _as_ints(indices))
    return [label_of(dataset[index]) if label is _UNSURE else label for index, label in labels]


def _until_refused(dataset: Any, reader: _Reader, label_of: _Reader) -> list[Any]:
    """All labels; iteration over a map-style dataset ends with the first index that it refuses."""
    labels: list[Any] = []
    for index in count():
        try:
            label = reader(index)
            sample = dataset[index] if label is _UNSURE else None
        except (IndexError, StopIteration):
            break
        labels.append(label_of(sample) if label is _UNSURE else label)
    return labels


def _pair_label(sample: Any) -> Any:
    _, label = sample
    return label


def _second(sample: Any) -> Any:
    return sample[1]


def _as_ints(indices: Iterable[Any]) -> Iterable[Any]:
    """The same indices, as ints where they come in an array: those are looked up fastest."""
    whole = isinstance(indices, np.ndarray) and indices.dtype.kind in "iu"
    whole = whole or (type(indices) is Tensor and indices.dtype in _INDEX_DTYPES)
    ints: Iterable[Any] = indices.tolist() if whole and indices.ndim == 1 else indices  # type: ignore[attr-defined]
    return ints


def _is_integer(index: Any) -> bool:
    """Whether ``index`` means one sample, and the same one to lists, arrays and tensors."""
    if type(index) is int or isinstance(index, np.integer):
        return True
    return type(index) is Tensor and index.ndim == 0 and index.dtype in _INDEX_DTYPES


def _reads_as(dataset: Any, kind: type, *methods: str) -> bool:
    """Whether ``dataset`` reads its samples with the code of ``kind`` (it may be a subclass otherwise)."""
    return isinstance(dataset, kind) and all(
        getattr(type(dataset), method) is getattr(kind, method) for method in ("__getitem__", *methods)
    )


def _reader(dataset: Any, pairs: bool) -> _Reader | None:
    """What reads one label of ``dataset`` without its x; None where reading x may have effects.

    With ``pairs``, samples with more or less than two parts are refused (as :data:`_UNSURE`), as taking them apart
    would refuse them.
    """
    if _reads_as(dataset, TensorDataset):
        return _of_tensors(dataset.tensors, pairs)
    if _reads_as(dataset, Subset):
        return _of_chosen(dataset.indices, _reader(dataset.dataset, pairs))
    if _reads_as(dataset, ConcatDataset):
        return _of_parts(dataset.cumulative_sizes, [_reader(part, pairs) for part in dataset.datasets])
    if _reads_as(dataset, WorkerSafeStandardizedDataset, "read_sample"):
        return _of_chosen(dataset.indices, _reader(dataset.base_dataset, True))
    if _reads_as(dataset, WorkerSafeAugmentedDataset, "read_sample"):
        # A training dataset draws from `random` for every sample it gives.
        return None if dataset.training else _reader(dataset.base_dataset, True)
    if _reads_as(dataset, WorkerSafeSequenceDataset, "read_sample"):
        samples = dataset.data_list
        return _of_list(samples, pairs) if type(samples) in (list, tuple) else _reader(samples, pairs)
    return None


def _of_tensors(tensors: Any, pairs: bool) -> _Reader | None:
    plain = all(type(one) is Tensor and one.layout is torch.strided and not one.is_nested for one in tensors)
    if not plain or any(one.ndim == 0 or len(one) != len(tensors[0]) for one in tensors):
        return None  # indexing x could do or raise something that indexing y does not
    if len(tensors) < 2 or (pairs and len(tensors) != 2):
        return None
    labels = tensors[1]
    return lambda index: labels[index] if _is_integer(index) else _UNSURE


def _of_chosen(table: Any, below: _Reader | None) -> _Reader | None:
    if below is None:
        return None
    return lambda index: below(table[index]) if _is_integer(index) else _UNSURE


def _of_parts(bounds: list[int], parts: list[_Reader | None]) -> _Reader | None:
    readers = [part for part in parts if part is not None]
    if len(readers) < len(parts):
        return None
    total = bounds[-1]

    def read(index: Any) -> Any:
        if not _is_integer(index) or not -total <= index < total:
            return _UNSURE
        position = index % total
        part = bisect_right(bounds, position)
        return readers[part](position - bounds[part - 1] if part else position)

    return read


def _of_list(samples: Any, pairs: bool) -> _Reader:
    def read(index: Any) -> Any:
        sample = samples[index] if _is_integer(index) else None
        # Anything but a plain pair with a tensor may be an object of the user's, whose code runs when it is used.
        if type(sample) is not tuple or len(sample) < 2 or (pairs and len(sample) != 2):
            return _UNSURE
        return sample[1] if type(sample[0]) is Tensor else _UNSURE

    return read
