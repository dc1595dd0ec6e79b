"""Samples stacked into one tensor, gathered at once where they are in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from chirpid_patch.data.fetch import fetch_batch, has_fixed_samples, has_rows, tensors_behind

#: Samples that are made from rows in memory (standardised, say) are read so many at a time.
_AT_ONCE = 64


def stack_samples(dataset: Any, indices: Iterable[Any] | None = None) -> Tensor:
    """The x of the samples (x, y) of ``dataset`` in one new tensor: exactly ``torch.stack([dataset[i][0] for i …])``.

    Rows of tensors in memory (a plain ``TensorDataset``, also through plain ``Subset``, and the shipped datasets over
    one while nothing is random) are gathered at once: the same values in the same layout. Every other dataset is read
    sample by sample.

    Args:
        dataset: anything that can be indexed (with ``indices``) or iterated over (without).
        indices: which samples, in this order; any iterable of what ``dataset`` takes as an index. None means all
            samples, as ``torch.stack([x for x, _ in dataset])`` has them.

    Returns:
        A tensor (N, *shape of x) of the dtype of x.

    Raises:
        RuntimeError: no samples, or x of different shapes.
        IndexError: an index that ``dataset`` refuses; and whatever reading a sample raises.
    """
    if indices is None:
        plain = has_rows(dataset) and not hasattr(type(dataset), "__iter__")
        stacked = _gathered(dataset, range(len(dataset)), columns=2) if plain else None
        return torch.stack([x for x, _ in dataset]) if stacked is None else stacked
    chosen = list(indices)
    stacked = _gathered(dataset, chosen)
    return torch.stack([dataset[index][0] for index in chosen]) if stacked is None else stacked


def _gathered(dataset: Any, indices: Sequence[Any], columns: int | None = None) -> Tensor | None:
    """The samples' first column, or None where that is not surely what stacking them gives."""
    if not len(indices) or not has_rows(dataset) or not has_fixed_samples(dataset):
        return None
    found = tensors_behind(dataset, indices)
    if found is not None:
        tensors, rows = found
        fits = tensors and tensors[0].is_contiguous() and columns in (None, len(tensors))
        return tensors[0].index_select(0, torch.tensor(rows)) if fits else None
    first = dataset[indices[0]]
    x = first[0]
    if type(x) is not Tensor or not x.is_contiguous() or columns not in (None, len(first)):
        return None
    stacked = torch.empty((len(indices), *x.shape), dtype=x.dtype)
    for start in range(0, len(indices), _AT_ONCE):
        batch = fetch_batch(dataset, indices[start : start + _AT_ONCE])
        if not isinstance(batch, list) or not isinstance(batch[0], Tensor) or batch[0].dtype is not x.dtype:
            return None
        stacked[start : start + _AT_ONCE] = batch[0]
    return stacked
