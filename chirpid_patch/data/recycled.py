"""Batch memory that nobody refers to any more, used again.

Each fresh batch of a few megabytes costs thousands of page faults, and giving it back makes the C library return
memory that the next batch has to fault in again: measured, that was most of what in-memory loading cost. A block is
used again only when the pool is the last to refer to its storage, so a batch belongs to its receiver for as long as
any tensor, view, NumPy array, autograd graph or storage object of it lives.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Sequence

import torch
from torch import Tensor, UntypedStorage

__all__ = ["batch_memory"]

#: Below this, the allocator recycles by itself.
_SMALLEST_BYTES = 1 << 20
#: What all blocks together may hold; larger batches get fresh memory.
_LIMIT_BYTES = 256 << 20
#: A block may be this many times as large as what it is used for (short last batches).
_MOST_WASTED = 8

#: Just below the largest block from whose end glibc learns, with room for its own bookkeeping.
_LARGEST_LEARNT_BYTES = (32 << 20) - (64 << 10)

#: Number of owners of a storage (private to PyTorch; without it nothing is recycled).
_use_count = getattr(torch._C, "_storage_Use_Count", None)


class _Pool:
    """Blocks of memory, each with one storage object of its own."""

    def __init__(self) -> None:
        self._blocks: list[UntypedStorage] = []
        self._lock = threading.Lock()

    def take(self, needed: int) -> UntypedStorage | None:
        """A block of at least ``needed`` bytes that nobody uses; ``None`` when it would not fit the limit."""
        with self._lock:
            for block in reversed(self._blocks):
                # References: the list of blocks, `block`, and the argument of getrefcount.
                if (
                    needed <= block.nbytes() <= _MOST_WASTED * needed
                    and _owners(block) == 1
                    and sys.getrefcount(block) == 3
                    and not block.is_shared()
                ):
                    return block
            if self._bytes() + needed > _LIMIT_BYTES:
                self._forget_idle()
            if self._bytes() + needed > _LIMIT_BYTES:
                return None
            block = UntypedStorage(needed)  # type: ignore[no-untyped-call]
            if not self._blocks:
                _keep_what_is_freed()
            self._blocks.append(block)
            return block

    def _bytes(self) -> int:
        return sum(block.nbytes() for block in self._blocks)

    def _forget_idle(self) -> None:
        """Let go of the blocks that nobody uses, and of those that went into shared memory."""
        kept: list[UntypedStorage] = []
        while self._blocks:
            block = self._blocks.pop()
            if not block.is_shared() and (_owners(block) > 1 or sys.getrefcount(block) > 2):
                kept.append(block)
        self._blocks = kept


def _keep_what_is_freed() -> None:
    """Let the C library keep the memory that a training step frees, for the next step.

    glibc returns freed memory at the heap's end to the kernel when it is more than twice the largest block that it has
    seen freed, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD). Batches that are freed teach it their
    size; ours are kept, so what the model frees after each step would be returned and faulted in again. A block of that
    largest size, never touched, teaches it the same. Whoever sets these thresholds turns this off; other C libraries
    have nothing to learn.
    """
    UntypedStorage(_LARGEST_LEARNT_BYTES)  # type: ignore[no-untyped-call]


def _owners(storage: UntypedStorage) -> int:
    assert _use_count is not None
    return int(_use_count(storage._cdata))


def is_unused(storage: UntypedStorage) -> bool:
    """Whether only one attribute, and the caller, refer to ``storage`` and its memory; False where nobody can tell."""
    # References: the attribute, the argument here, and that of getrefcount.
    return _use_count is not None and _owners(storage) == 1 and sys.getrefcount(storage) <= 3


_pool = _Pool()


def _after_fork() -> None:
    global _pool
    _pool = _Pool()  # the lock may have been held, and the memory is the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def batch_memory(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An uninitialised contiguous CPU tensor that shares memory with nothing its receiver can see."""
    needed = math.prod(shape) * dtype.itemsize
    if _use_count is None or not _SMALLEST_BYTES <= needed <= _LIMIT_BYTES:
        return torch.empty(shape, dtype=dtype)
    block = _pool.take(needed)
    if block is None:
        return torch.empty(shape, dtype=dtype)
    # Not a view: a tensor of its own over the block, with its own autograd and version state.
    return torch.empty(0, dtype=dtype).set_(block, 0, tuple(shape), contiguous_strides(shape))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor of this shape, in elements."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(size, 1))
    return tuple(strides[: len(shape)])
