"""Memory for batches, used again once nobody holds it.

A fresh block of megabytes costs page faults in every batch. Here a batch's memory is lent: PyTorch's storage refers to
an object behind the buffer protocol (``torch.frombuffer``), and when the storage dies, whoever held it (tensors, views,
arrays, autograd graphs), that object dies with it and its finalizer gives the memory back. That is the only rule.
What a training step itself allocates and frees is the C library's business: see ``memory.freed``.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: Smaller batches come from the C library's free lists as fast.
_SMALLEST_BYTES = 1 << 18
#: What is kept for later, in all.
_MOST_KEPT_BYTES = 1 << 28
#: A block may be this many times as large as what it is lent for (short last batches).
_MOST_WASTED = 8

_Block = NDArray[np.uint8]


class Buffers:
    """Blocks of memory that nobody holds. Safe in threads and finalizers: a dictionary's own steps need no lock."""

    def __init__(self) -> None:
        self._kept: dict[int, _Block] = {}
        self._numbers = itertools.count()

    def lend(self, size: int) -> _Block:
        """``size`` bytes, given back when the array dies that is returned here."""
        block = self._take(size)
        lent = block[:size]
        weakref.finalize(lent, self._give_back, block).atexit = False
        return lent

    @property
    def kept_bytes(self) -> int:
        """Bytes that wait to be lent."""
        return sum(block.nbytes for block in list(self._kept.values()))

    def _take(self, size: int) -> _Block:
        for number, block in reversed(list(self._kept.items())):  # what came back last is still in the CPU's caches
            if size <= block.nbytes <= _MOST_WASTED * size and self._kept.pop(number, None) is not None:
                return block
        return torch.empty(
            size, dtype=torch.uint8, device="cpu"
        ).numpy()  # PyTorch's alignment, so that sums come out the same

    def _give_back(self, block: _Block) -> None:
        if self.kept_bytes + block.nbytes <= _MOST_KEPT_BYTES:
            self._kept[next(self._numbers)] = block


_buffers = Buffers()


def is_large(size: int) -> bool:
    """Whether a batch of ``size`` bytes is worth memory that is used again."""
    return size >= _SMALLEST_BYTES


def batch_memory(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An uninitialised contiguous CPU tensor that shares memory with nothing its receiver can see."""
    size = math.prod(shape) * dtype.itemsize
    if not is_large(size):
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    storage = torch.frombuffer(_buffers.lend(size), dtype=dtype).untyped_storage()
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return torch.empty(0, dtype=dtype, device="cpu").set_(
        storage, 0, tuple(shape), strides
    )  # a tensor of its own, no view
