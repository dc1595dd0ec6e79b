"""Functions that stack or standardise all samples of a dataset. If possible, all samples are processed at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import EllipsisType, GeneratorType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from chirpid_patch.datasets.declared import standardized_dataset
from chirpid_patch.datasets.gather import INDEX_CONTAINERS, fetch_batch, gather_node, source_tensors_and_rows

#: Number of samples that are processed at once.
_SAMPLES_AT_ONCE = 64
_INTEGERS = frozenset({int, np.int64, np.int32})


def stack_samples(dataset: Any, indices: Iterable[Any] | EllipsisType = ...) -> Tensor:
    """Return the x of all samples (x, y) in one new tensor, as ``torch.stack([dataset[i][0] for i in indices])`` does.

    The function reads the samples at once if both conditions are true:

    * The dataset is a ``TensorDataset``, or a ``Subset`` or ``ConcatDataset`` of such datasets, and no code overrides
      the methods that read samples. A ``WorkerSafeArrayDataset`` also meets this condition. A dataset of this package
      without random transforms meets the condition if its inner dataset does.
    * ``indices`` is a list, tuple, range, set, array, tensor or generator. The function runs a generator to its end
      before it reads a sample, so the generator must not have side effects.

    Otherwise the function reads the samples one by one. Values and memory layout are the same in both cases.

    Args:
        dataset: dataset of samples (x, y). The dataset must support ``dataset[i]``, or iteration if ``indices`` is
            missing.
        indices: indices of the samples, as any iterable. Without this argument, the function stacks all samples, as
            ``torch.stack([x for x, _ in dataset])`` does.

    Returns:
        A tensor (N, *shape of x) of the dtype of x.

    Raises:
        RuntimeError: there are no samples, or the x of the samples differ in shape.
        IndexError: an index is out of range for ``dataset``.
        Exception: any error that reading a sample raises.
    """
    if isinstance(indices, EllipsisType):
        count = None if hasattr(type(dataset), "__iter__") else gather_node(dataset).count
        try:
            stacked = None if count is None else _gather_column(dataset, range(count), columns=2)
        except IndexError:  # an iteration over the dataset ends with IndexError
            stacked = None
        return torch.stack([x for x, _ in dataset]) if stacked is None else stacked
    if type(indices) is GeneratorType and _has_fixed_rows(dataset):
        indices = list(indices)  # the generator has no side effects, so it may run to its end first
    # Any other iterable may compute each index only when the index is requested. The index may then depend on the
    # samples that were read before.
    stacked = _gather_column(dataset, list(indices)) if type(indices) in INDEX_CONTAINERS else None
    return torch.stack([dataset[index][0] for index in indices]) if stacked is None else stacked


def standardized_samples(
    dataset: Any,
    indices: Iterable[Any] | EllipsisType,
    mean: Any,
    std: Any,
    *,
    eps: float = 0.0,
    reads: Literal[1, 2] = 1,
) -> list[tuple[Any, Any]]:
    """Return the list of ``((x - mean) / (std + eps), y)`` for all samples (x, y) of ``dataset`` at ``indices``.

    Each x in the list is equal, bit for bit, to ``(x - mean) / (std + eps)``.

    The function standardises rows of tensors directly, without reading samples, if all three conditions are true:

    * ``dataset`` is a ``TensorDataset`` of two CPU tensors, or a ``Subset`` of such a dataset, and no code overrides
      the methods that read samples.
    * ``indices`` is a list, tuple, range or array of integers in range.
    * Standardising keeps dtype and shape of x.

    Otherwise the function reads the samples one by one.

    Args:
        dataset: map-style dataset of samples (x, y).
        indices: indices of the samples, in this order. The value ``Ellipsis`` (``...``) selects all samples, in the
            order of iteration.
        mean: value that is subtracted from x, for example a number or a 0-dim tensor.
        std: standard deviation, for example a number or a 0-dim tensor. x is divided by ``std + eps``.
        eps: number that is added to ``std``.
        reads: how often to call ``dataset[i]`` for each sample if the function reads the samples one by one. With 1,
            the function runs ``x, y = dataset[i]``. With 2, the function calls ``dataset[i][0]`` and ``dataset[i][1]``.
            Pass 2 only if the function replaces code with these two calls. The side effects of ``__getitem__`` then
            stay the same.

    Returns:
        List of pairs (x, y). Each x of the list has its own memory. Each y of the list is the y that ``dataset[i]``
        returns.

    Raises:
        Exception: any error that reading or standardising a sample raises.
    """
    rows = _standardized_rows(dataset, indices, mean, std, eps)
    if rows is not None:
        return rows

    def standardize(x: Any) -> Any:
        return (x - mean) / (std + eps if eps else std)

    if isinstance(indices, EllipsisType):
        return [(standardize(x), y) for x, y in dataset]
    if reads == 2:
        return [(standardize(dataset[index][0]), dataset[index][1]) for index in indices]
    samples = []
    for index in indices:
        x, y = dataset[index]
        samples.append((standardize(x), y))
    return samples


def _standardized_rows(
    dataset: Any, indices: Any, mean: Any, std: Any, eps: float
) -> list[tuple[Tensor, Tensor]] | None:
    """Return the result of ``standardized_samples`` if the samples are rows of tensors.

    For other samples the result is None, and the function reads no sample.
    """
    if type(dataset) not in (TensorDataset, Subset) or indices is None:
        return None
    view = standardized_dataset(
        dataset, range(len(dataset)) if isinstance(indices, EllipsisType) else indices, mean, std, eps
    )
    if view is None:
        return None
    chosen = [*view.indices]
    if not chosen:
        return []
    known = all(type(index) in _INTEGERS for index in chosen)
    found = source_tensors_and_rows(dataset, chosen) if known else None
    if found is None:
        return None
    (xs, ys), rows = found
    subtracted, divisor = view.operands()
    return [(torch.sub(xs[row], subtracted).div_(divisor), ys[row]) for row in rows]


def _has_fixed_rows(dataset: Any) -> bool:
    node = gather_node(dataset)
    return node.gathers and node.fixed_samples


def _gather_column(dataset: Any, indices: Sequence[Any], columns: int | None = None) -> Tensor | None:
    """Read the samples at ``indices`` at once, and return their x as one tensor.

    The result is None if reading the samples one by one could yield other values. ``columns`` is the number of parts
    that each sample must have; None allows any number.
    """
    if not len(indices) or not _has_fixed_rows(dataset):
        return None
    found = source_tensors_and_rows(dataset, indices)
    if found is not None:
        tensors, rows = found
        fits = tensors and tensors[0].is_contiguous() and columns in (None, len(tensors))
        return tensors[0].index_select(0, torch.tensor(rows, device="cpu")) if fits else None
    first = dataset[indices[0]]
    x = first[0]
    if type(x) is not Tensor or not x.is_contiguous() or columns not in (None, len(first)):
        return None
    stacked = torch.empty((len(indices), *x.shape), dtype=x.dtype, device=x.device)
    for start in range(0, len(indices), _SAMPLES_AT_ONCE):
        batch = fetch_batch(dataset, indices[start : start + _SAMPLES_AT_ONCE])
        if not isinstance(batch, list) or not isinstance(batch[0], Tensor) or batch[0].dtype is not x.dtype:
            return None
        stacked[start : start + _SAMPLES_AT_ONCE] = batch[0]
    return stacked
