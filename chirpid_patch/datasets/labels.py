"""Functions that read the labels y of samples (x, y). If possible, the functions do not load x."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import EllipsisType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from chirpid_patch.datasets.gather import (
    INDEX_CONTAINERS,
    BatchedDataset,
    gather_node,
    is_unmodified_batched_dataset,
    reads_like_class,
    subset_or_concat_node,
)
from chirpid_patch.datasets.rows import is_integer, to_integer_list


def read_labels(dataset: Any, indices: Iterable[Any] | EllipsisType = ..., *, unpack: bool | None = None) -> list[Any]:
    """Return the labels of the samples (x, y) of ``dataset``, as ``[dataset[i][1] for i in indices]`` does.

    Types, values, order and exceptions are the same as with this expression. The function is faster than the expression
    for the datasets in this list:

    * A ``TensorDataset``, if no code overrides the methods that read its samples. The function does not read x.
    * A ``Subset`` or ``ConcatDataset`` of datasets in this list, under the same condition.
    * A dataset of this package that does not augment samples, and whose inner dataset is a list or a dataset in this
      list. The function does not compute x.

    The function reads all other datasets sample by sample, because ``__getitem__`` may log, count or draw random
    numbers.

    Args:
        dataset: dataset of samples (x, y). The dataset must support ``dataset[i]``, or iteration if ``indices`` is
            missing.
        indices: indices of the samples, as any iterable. Without this argument, the function returns the labels of all
            samples, as ``[y for _, y in dataset]`` does.
        unpack: True unpacks each sample as ``_, y = sample``, so a sample that is not a pair raises an error. False
            reads ``sample[1]``. None unpacks each sample only if ``indices`` is missing.

    Returns:
        One label for each sample, unchanged. For a ``TensorDataset``, each label is a 0-dim view of the tensor of
        labels.

    Raises:
        IndexError: an index is out of range for ``dataset``.
        ValueError: the function unpacks samples (see ``unpack``), and a sample is not a pair.
        Exception: any error that reading a sample raises.
    """
    return list(iterate_labels(dataset, indices, unpack=unpack))


def iterate_labels(
    dataset: Any, indices: Iterable[Any] | EllipsisType = ..., *, unpack: bool | None = None
) -> Iterator[Any]:
    """Yield the labels that ``read_labels`` returns, one by one.

    If a label cannot be read without its sample, the function reads the sample when the loop requests the label. So a
    dataset may return all samples in the same buffer, if the loop uses each label before the next request. After a
    ``break``, the function reads no further sample.

    Args:
        dataset: as for ``read_labels``.
        indices: as for ``read_labels``.
        unpack: as for ``read_labels``.
    """
    pairs = indices is ... if unpack is None else unpack
    if not _can_read_without_x(dataset, pairs):
        samples = iter(dataset) if isinstance(indices, EllipsisType) else (dataset[index] for index in indices)
        yield from (_label(sample, pairs) for sample in samples)
    elif not isinstance(indices, EllipsisType):
        # An iterable of any other type may be endless, or may compute each index only when the index is requested.
        parts = [_as_ints(indices)] if type(indices) in INDEX_CONTAINERS else ([index] for index in indices)
        for part in parts:
            labels = _labels(dataset, part, pairs)
            yield from (_label(dataset[index], pairs) for index in part) if labels is None else labels
    else:
        labels = None
        if not hasattr(type(dataset), "__iter__"):
            rows = reads_like_class(dataset, TensorDataset)
            count = len(dataset.tensors[0]) if rows else gather_node(dataset).count
            labels = None if count is None else _labels(dataset, range(count), pairs)
        yield from (_label(sample, pairs) for sample in dataset) if labels is None else labels


def _label(sample: Any, pairs: bool) -> Any:
    if pairs:
        _, label = sample
        return label
    return sample[1]


def _as_ints(indices: Iterable[Any]) -> list[Any]:
    """Return the indices as a list. For fast lookups, the indices in an array or tensor become ints."""
    ints = to_integer_list(indices) if type(indices) in (np.ndarray, Tensor) else None
    return list(indices) if ints is None else ints


def _can_read_without_x(dataset: Any, pairs: bool) -> bool:
    """Return whether the labels of ``dataset`` can be read without x, with the same results and errors.

    With ``pairs=True``, reading the label of a sample that is not a pair must raise an error. The result is then False
    for a ``TensorDataset`` of more than two tensors.
    """
    if reads_like_class(dataset, TensorDataset):
        tensors = dataset.tensors
        plain = all(type(one) is Tensor and one.layout is torch.strided and not one.is_nested for one in tensors)
        # With other tensors, indexing x could raise an error that indexing y does not raise.
        fits = plain and all(tensor.ndim and len(tensor) == len(tensors[0]) for tensor in tensors)
        return fits and (len(tensors) == 2 or (len(tensors) > 2 and not pairs))
    joint = subset_or_concat_node(dataset)
    if joint is not None:
        return all(_can_read_without_x(child, pairs) for child in joint.children)
    if not _passes_labels_on(dataset):
        return False
    return all(type(child) in (list, tuple) or _can_read_without_x(child, True) for child in dataset.children)


def _passes_labels_on(dataset: Any) -> bool:
    """Return whether ``dataset`` is from this package, and returns the labels of its inner dataset unchanged."""
    if not is_unmodified_batched_dataset(dataset):
        return False
    owners = [next(kind for kind in type(dataset).__mro__ if name in vars(kind)) for name in ("resolve", "read_sample")]
    return owners[0] is owners[1] is not BatchedDataset and dataset.resolve([]) is not None


def _labels(dataset: Any, indices: Sequence[Any], pairs: bool) -> list[Any] | None:
    """Return the labels of the samples at ``indices``, without reading x.

    The result is None if an index is invalid, or if a label could differ from the label in the sample.
    """
    if not all(map(is_integer, indices)):
        return None
    if type(dataset) in (list, tuple):
        return _of_list(dataset, indices, pairs)
    try:
        if reads_like_class(dataset, TensorDataset):
            return [dataset.tensors[1][index] for index in indices]
        joint = subset_or_concat_node(dataset)
        parts = (dataset if joint is None else joint).resolve(indices)
    except IndexError:
        return None
    if parts is None:
        return None
    labels: list[Any] = [None] * len(indices)
    for part in parts:
        found = _labels(part.dataset, part.indices, pairs or joint is None)
        if found is None:
            return None
        for place, label in zip(range(len(indices)) if part.places is None else part.places, found, strict=True):
            labels[place] = label
    return labels


def _of_list(samples: Sequence[Any], indices: Sequence[Any], pairs: bool) -> list[Any] | None:
    labels = []
    for index in indices:
        sample = samples[index] if -len(samples) <= index < len(samples) else None
        # A sample of any other type may run code of the user when the label is read.
        if type(sample) is not tuple or type(sample[0]) is not Tensor or len(sample) < 2 or (pairs and len(sample) > 2):
            return None
        labels.append(sample[1])
    return labels
