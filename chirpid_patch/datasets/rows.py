"""Rows of tensors gathered into the memory of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from operator import index as as_int
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from chirpid_patch.datasets.buffers import batch_memory, keep_freed_memory
from chirpid_patch.torch_private import shared_memory
from chirpid_patch.transforms import off_cpu


def is_plain(tensor: Any) -> bool:
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


def map_indices(table: Any, indices: Sequence[Any]) -> list[Any] | None:
    """``[table[i] for i in indices]``; None if one is none of its places (the per-sample code raises then)."""
    try:
        return [table[index] for index in indices]
    except (IndexError, KeyError, TypeError):
        return None


def gather(tensor: Tensor, rows: Tensor) -> Tensor:
    """The rows of ``tensor`` in memory of their own, where ``tensor`` is."""
    if off_cpu.is_away(tensor):
        return torch.index_select(tensor, 0, off_cpu.sent(rows, tensor.device))
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
    if off_cpu.is_away(tensor):
        return torch.empty(shape, dtype=dtype, device=tensor.device)
    if get_worker_info() is not None:
        return shared_memory(shape, dtype)
    batch = batch_memory(shape, dtype)
    keep_freed_memory(batch.nbytes)
    return batch
