"""Memory for batches, reused after a batch is freed.

A new block of megabytes costs page faults in every batch. Here a batch borrows its memory: PyTorch's storage refers to
an object with the buffer protocol (``torch.frombuffer``). When no tensor, view, array or autograd graph refers to the
storage, the storage dies, and so does that object. The finalizer of that object returns the memory. There is no other
rule. The module ``memory.freed`` is about memory that a training step itself allocates and frees.
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
#: Total bytes of stored blocks.
_MOST_KEPT_BYTES = 1 << 28
#: A block may be this many times as large as the batch in it (short last batches).
_MOST_WASTED = 8

_Block = NDArray[np.uint8]


class Buffers:
    """Blocks of free memory. Threads and finalizers may use it: single operations of a dictionary need no lock."""

    def __init__(self) -> None:
        self._kept: dict[int, _Block] = {}
        self._numbers = itertools.count()

    def lend(self, size: int) -> _Block:
        """Return an array of ``size`` bytes; its memory returns here when the array dies."""
        block = self._take(size)
        lent = block[:size]
        weakref.finalize(lent, self._give_back, block).atexit = False
        return lent

    @property
    def kept_bytes(self) -> int:
        """Return the number of free bytes."""
        return sum(block.nbytes for block in list(self._kept.values()))

    def _take(self, size: int) -> _Block:
        for number, block in reversed(list(self._kept.items())):  # the last returned block is still in the CPU's caches
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
    """Return whether a batch of ``size`` bytes is large enough for reused memory to save time."""
    return size >= _SMALLEST_BYTES


def batch_memory(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return an uninitialised contiguous CPU tensor that shares memory with no other tensor in use."""
    size = math.prod(shape) * dtype.itemsize
    if not is_large(size):
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    storage = torch.frombuffer(_buffers.lend(size), dtype=dtype).untyped_storage()
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return torch.empty(0, dtype=dtype, device="cpu").set_(
        storage, 0, tuple(shape), strides
    )  # a tensor of its own, no view
