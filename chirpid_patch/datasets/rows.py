"""Rows of tensors, gathered into the memory of a batch."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from chirpid_patch.datasets.buffers import batch_memory, is_large
from chirpid_patch.torch_private import shared_memory
from chirpid_patch.transforms import off_cpu

#: Integer types of a 0-dim tensor that is an index. An unsigned byte is not one: PyTorch reads it as a mask.
_INDEX_DTYPES = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})
#: Sequences that can be read without running other code.
SEQUENCES = frozenset({list, tuple, range, array, np.ndarray, Tensor})
_INT = {int}


def is_plain(tensor: Any) -> bool:
    """Return whether ``index_select`` on ``tensor`` equals indexing and stacking."""
    return (
        type(tensor) is Tensor
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.ndim > 0
        and not tensor.is_quantized
        and not tensor.requires_grad
        and not tensor.is_conj()
        and not tensor.is_neg()
        and can_gather(tensor.dtype)
        and (tensor.ndim < 5 or tensor.stride()[1:] == contiguous_strides(tensor.shape[1:]))
    )


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of contiguous tensors of ``shape``.

    Stacks of samples with four or more axes may have other strides.
    """
    return torch.empty(tuple(shape), device="meta").stride()


@cache
def can_gather(dtype: torch.dtype) -> bool:
    """Return whether this version of PyTorch gathers rows of ``dtype``; it does not for some unsigned integers."""
    try:
        torch.index_select(torch.zeros(1, dtype=dtype), 0, torch.zeros(1, dtype=torch.int64))
    except (NotImplementedError, RuntimeError):
        return False
    return True


def is_integer(index: Any) -> bool:
    """Return whether ``index`` is an integer with one meaning for lists, arrays and tensors; a user's object is not."""
    if type(index) is Tensor:
        return index.ndim == 0 and index.dtype in _INDEX_DTYPES
    return type(index) is int or isinstance(index, np.integer)


def is_table(values: Any) -> bool:
    """Return whether ``values[i]`` looks up an item for an integer i, without visible effects.

    The function checks only the first item of a list.
    """
    kind = type(values)
    if kind is np.ndarray:
        return bool(values.ndim == 1 and values.dtype.kind in "iu")
    if kind is Tensor:
        return values.ndim == 1 and values.dtype in _INDEX_DTYPES
    if kind in (list, tuple) and values:
        return is_integer(values[0]) or type(values[0]) in (bool, str)
    return kind in SEQUENCES


def are_integers(indices: Any) -> bool:
    """Return whether ``indices`` contains integers only: no mask, no array with more dimensions, no user's object."""
    kind = type(indices)
    if kind is np.ndarray or kind is Tensor:
        return is_table(indices)
    return kind in SEQUENCES and (set(map(type, indices)) <= _INT or all(map(is_integer, indices)))


def as_ints(indices: Any) -> list[int] | None:
    """Return ``indices`` as ints; None unless ``are_integers``."""
    kind = type(indices)
    if kind in SEQUENCES and set(map(type, indices)) == _INT:
        return list(indices)
    if not are_integers(indices):
        return None
    return list(indices.tolist() if kind is np.ndarray or kind is Tensor else map(int, indices))


def positions_of(indices: Any, length: int) -> list[int] | None:
    """Return ``indices`` as ints in 0..``length``-1; None if they select rows otherwise, for example as a mask."""
    positions = as_ints(indices)
    if not positions:
        return positions
    lowest = min(positions)
    if lowest < -length or max(positions) >= length:
        return None
    return positions if lowest >= 0 else [position % length for position in positions]


def map_indices(table: Any, indices: Any) -> list[Any] | None:
    """Return ``[table[i] for i in indices]``; None if an index is out of range.

    ``table`` is a list or a value that ``is_table`` accepts.
    """
    if not are_integers(indices):
        return None
    try:
        return [table[index] for index in indices]
    except IndexError:
        return None


def gather(tensor: Tensor, rows: Tensor) -> Tensor:
    """Return the rows of ``tensor`` in new memory on the same device."""
    if off_cpu.is_away(tensor):
        return torch.index_select(tensor, 0, off_cpu.send(rows, tensor.device))
    if get_worker_info() is None and not is_large(tensor.nbytes * rows.shape[0] // max(tensor.shape[0], 1)):
        return torch.index_select(tensor, 0, rows)  # too few bytes to reuse the memory
    return torch.index_select(tensor, 0, rows, out=batch_like(tensor, len(rows)))


def batch_like(tensor: Tensor, count: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return memory for a batch of ``count`` samples like the rows of ``tensor``; shared memory in a worker process.

    A worker passes its batches on through shared memory. If it first gathered them on the heap, the heap of glibc
    before 2.38 would grow with every batch. ``default_collate`` also gathers directly into shared memory.
    """
    shape = (count, *tensor.shape[1:])
    dtype = tensor.dtype if dtype is None else dtype
    if off_cpu.is_away(tensor):
        return torch.empty(shape, dtype=dtype, device=tensor.device)
    if get_worker_info() is not None:
        return shared_memory(shape, dtype)
    return batch_memory(shape, dtype)
