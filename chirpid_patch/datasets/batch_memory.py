"""Reusable memory for batches.

Allocating new memory for every large batch is slow, because the first write to each page causes a page fault. A large
batch therefore borrows a block of memory from ``BatchMemoryPool``. ``torch.frombuffer`` creates the batch from a NumPy
array, and this array is a view of the block. When the last tensor, view or autograd graph that uses the batch is
deleted, Python frees the array. The finalizer of the array then returns the block to the pool.

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

#: Smallest size in bytes of a batch that borrows memory. For smaller batches, new memory is as fast.
_SMALLEST_BYTES = 1 << 18
#: Largest total size of the free blocks, in bytes.
_MOST_KEPT_BYTES = 1 << 28
#: A batch borrows only a block that is at most this many times as large as the batch. With this factor, the last batch
#: of an epoch can borrow a block that other batches used, although the last batch may be smaller.
_MOST_WASTED = 8

_Block = NDArray[np.uint8]


class BatchMemoryPool:
    """A pool of free memory blocks, from which large batches borrow their memory.

    Several threads and finalizers may call the methods at the same time. The methods need no lock, because each access
    to the dictionary of free blocks is one atomic operation of ``dict``.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Block] = {}
        self._numbers = itertools.count()

    def lend(self, size: int) -> _Block:
        """Return an array of ``size`` bytes. When Python frees the array, the pool may lend the same memory again."""
        block = self._take(size)
        lent = block[:size]
        weakref.finalize(lent, self._give_back, block).atexit = False
        return lent

    @property
    def kept_bytes(self) -> int:
        """Return the total size of the free blocks, in bytes."""
        return sum(block.nbytes for block in list(self._kept.values()))

    def _take(self, size: int) -> _Block:
        for number, block in reversed(list(self._kept.items())):  # the newest block may be in the CPU's caches
            if size <= block.nbytes <= _MOST_WASTED * size and self._kept.pop(number, None) is not None:
                return block
        # PyTorch aligns the memory. The alignment affects the order of additions.
        return torch.empty(size, dtype=torch.uint8, device="cpu").numpy()

    def _give_back(self, block: _Block) -> None:
        if self.kept_bytes + block.nbytes <= _MOST_KEPT_BYTES:
            self._kept[next(self._numbers)] = block


_buffers = BatchMemoryPool()


def is_large_batch(byte_count: int) -> bool:
    """Return whether reused memory saves time for a batch of ``byte_count`` bytes."""
    return byte_count >= _SMALLEST_BYTES


def allocate_batch(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return an uninitialised contiguous CPU tensor for a batch. No other living tensor uses the same memory."""
    size = math.prod(shape) * dtype.itemsize
    if not is_large_batch(size):
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    storage = torch.frombuffer(_buffers.lend(size), dtype=dtype).untyped_storage()
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    # ``set_`` makes a tensor that is not a view of another tensor.
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, tuple(shape), strides)
