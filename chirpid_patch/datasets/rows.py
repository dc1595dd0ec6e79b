"""Functions that copy rows of tensors into the memory of a batch, and check the indices of these rows."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from chirpid_patch.datasets.batch_memory import allocate_batch, is_large_batch
from chirpid_patch.torch_private import empty_shared_tensor
from chirpid_patch.transforms import off_cpu

#: Dtypes of tensors that can be an index. ``torch.uint8`` is missing, because PyTorch reads such a tensor as a mask.
_INDEX_DTYPES = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})
#: Types of sequences that can be read without running code of the user.
SEQUENCES = frozenset({list, tuple, range, array, np.ndarray, Tensor})
_INT = {int}


def is_plain_cpu_tensor(value: Any) -> bool:
    """Return whether ``value`` is an ordinary dense CPU tensor.

    The result is False for sparse, quantized and nested tensors, for conjugate and negative views, and for subclasses
    of ``Tensor``.
    """
    return (
        type(value) is Tensor
        and value.is_cpu
        and value.layout is torch.strided
        and not (value.is_quantized or value.is_nested or value.is_conj() or value.is_neg())
    )


def can_select_rows_of(tensor: Any) -> bool:
    """Return whether ``index_select`` on ``tensor`` yields the same batch as stacking single rows."""
    return (
        is_plain_cpu_tensor(tensor)
        and tensor.ndim > 0
        and not tensor.requires_grad
        and index_select_supports(tensor.dtype)
        and (tensor.ndim < 5 or tensor.stride()[1:] == contiguous_strides(tensor.shape[1:]))
    )


def as_row_tensor(dataset: Any) -> Tensor | None:
    """Return ``dataset`` as a tensor without copying memory, if ``dataset`` is a tensor or NumPy array.

    The result is None for any other dataset. The result is also None if a batch from the tensor could differ from the
    batch that ``default_collate`` makes from the rows.
    """
    if type(dataset) is np.ndarray:
        dataset = _array_as_tensor(dataset)
    return dataset if can_select_rows_of(dataset) else None


def _array_as_tensor(array: np.ndarray[Any, Any]) -> Tensor | None:
    """Return ``array`` as a tensor.

    The result is None if PyTorch cannot convert ``array`` without a warning, or if ``default_collate`` could change the
    dtype or the bits of the rows.
    """
    if not (array.ndim and array.flags.behaved and array.dtype.isnative and array.dtype.kind in "biufc"):
        return None
    if array.ndim == 1 and not _keeps_numbers(array.dtype):
        return None
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):  # PyTorch has no matching dtype, or does not support the strides
        return None


@cache
def _keeps_numbers(dtype: np.dtype[Any]) -> bool:
    """Return whether ``default_collate`` keeps the dtype and the bits of NumPy numbers of ``dtype``.

    The result is False for complex numbers, and for floats of less than 64 bits. PyTorch converts such a float to a
    Python float and back, and the bits could change.
    """
    if dtype.kind not in "biu" and dtype != np.float64:
        return False
    try:
        return torch.as_tensor([dtype.type(1)]).dtype is torch.from_numpy(np.ones(1, dtype)).dtype
    except TypeError:  # PyTorch collates no uint64
        return False


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor of ``shape``."""
    return torch.empty(tuple(shape), device="meta").stride()


@cache
def index_select_supports(dtype: torch.dtype) -> bool:
    """Return whether ``index_select`` supports ``dtype``. Some versions of PyTorch support no unsigned integers."""
    try:
        torch.index_select(torch.zeros(1, dtype=dtype), 0, torch.zeros(1, dtype=torch.int64))
    except (NotImplementedError, RuntimeError):
        return False
    return True


def is_integer(index: Any) -> bool:
    """Return whether ``index`` is an integer with which lists, arrays and tensors return the same item.

    The result is False for objects of user classes, such as subclasses of ``int``.
    """
    if type(index) is Tensor:
        return index.ndim == 0 and index.dtype in _INDEX_DTYPES
    return type(index) is int or isinstance(index, np.integer)


def is_lookup_table(values: Any) -> bool:
    """Return whether ``values[i]`` with an integer i only looks up an item, and runs no code of the user.

    In a list or tuple, the function checks only the type of the first item. Later items of another type are not
    detected.
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
    """Return whether ``indices`` is a flat list, tuple, range, array or tensor of integers.

    The result is False for a boolean mask.
    """
    kind = type(indices)
    if kind is np.ndarray or kind is Tensor:
        return is_lookup_table(indices)
    return kind in SEQUENCES and (set(map(type, indices)) <= _INT or all(map(is_integer, indices)))


def to_integer_list(indices: Any) -> list[int] | None:
    """Return ``indices`` as a list of ints; None if ``indices`` is not a flat sequence of integers."""
    kind = type(indices)
    if kind in SEQUENCES and set(map(type, indices)) == _INT:
        return list(indices)
    if not are_integers(indices):
        return None
    return list(indices.tolist() if kind is np.ndarray or kind is Tensor else map(int, indices))


def nonnegative_indices(indices: Any, length: int) -> list[int] | None:
    """Return ``indices`` as ints from 0 to ``length - 1``. The index -1, for example, becomes ``length - 1``.

    The result is None if an index is out of range, or if ``indices`` is not a sequence of integers but, for example, a
    boolean mask.
    """
    positions = to_integer_list(indices)
    if not positions:
        return positions
    lowest = min(positions)
    if lowest < -length or max(positions) >= length:
        return None
    return positions if lowest >= 0 else [position % length for position in positions]


def look_up_indices(table: Any, indices: Any) -> list[Any] | None:
    """Return ``[table[i] for i in indices]``.

    The result is None if an index is out of range, or if ``indices`` is not a sequence of integers.

    Args:
        table: a list, or any value for which ``is_lookup_table`` returns True.
        indices: positions in ``table``.
    """
    if not are_integers(indices):
        return None
    try:
        return [table[index] for index in indices]
    except IndexError:
        return None


def gather_rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Return the given rows of ``tensor`` in new memory on the same device; ``rows`` is an int64 CPU tensor."""
    if off_cpu.is_off_cpu(tensor):
        return torch.index_select(tensor, 0, off_cpu.send_to_device(rows, tensor.device))
    if get_worker_info() is None and not is_large_batch(tensor.nbytes * rows.shape[0] // max(tensor.shape[0], 1)):
        return torch.index_select(tensor, 0, rows)  # a small batch: new memory is as fast as reused memory
    return torch.index_select(tensor, 0, rows, out=allocate_batch_like(tensor, len(rows)))


def allocate_batch_like(tensor: Tensor, count: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return an uninitialised tensor for a batch of ``count`` samples. A sample has the shape of a row of ``tensor``.

    In a worker process, the tensor is in shared memory, as with ``default_collate``, because the worker sends its
    batches through shared memory. If the worker built each batch in ordinary memory first, the heap would grow with
    every batch (with glibc before 2.38).

    Args:
        tensor: tensor whose rows are samples.
        count: number of samples.
        dtype: dtype of the batch; None: the dtype of ``tensor``.
    """
    shape = (count, *tensor.shape[1:])
    dtype = tensor.dtype if dtype is None else dtype
    if off_cpu.is_off_cpu(tensor):
        return torch.empty(shape, dtype=dtype, device=tensor.device)
    if get_worker_info() is not None:
        return empty_shared_tensor(shape, dtype)
    return allocate_batch(shape, dtype)
