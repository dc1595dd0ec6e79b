"""What the C library does with the memory that a training step frees."""

from __future__ import annotations

import torch

#: Batches below this say nothing about large blocks.
_SMALLEST_BYTES = 1 << 20
#: Just below the largest block from whose end glibc learns, with room for its own bookkeeping.
_LARGEST_LEARNT_BYTES = (32 << 20) - (64 << 10)

_taught = False


def keep_freed_memory(batch_bytes: int) -> None:
    """Once a batch is large, let the C library keep the memory that a training step frees, for the next step.

    glibc returns freed memory at the heap's end to the kernel when it is more than twice the largest block that it has
    seen freed, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD): what a batch and its step freed is
    faulted in again, page by page, in the next one. A block of that largest size, never touched, teaches it. Whoever
    sets these thresholds turns this off; other C libraries have nothing to learn.
    """
    global _taught
    if not _taught and batch_bytes >= _SMALLEST_BYTES:
        _taught = True
        torch.UntypedStorage(_LARGEST_LEARNT_BYTES)  # type: ignore[no-untyped-call]
