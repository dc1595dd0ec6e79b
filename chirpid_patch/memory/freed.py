"""What the C library does with memory that a training step frees."""

from __future__ import annotations

import torch

#: Just below the largest block from whose end glibc learns, with room for its own bookkeeping.
_LARGEST_LEARNT_BYTES = (32 << 20) - (64 << 10)


def keep_freed_memory() -> None:
    """Let the C library keep up to 64 MiB that a training step frees, for the next step. Call it once, at the start.

    glibc returns freed memory at the heap's end to the kernel when it is more than twice the largest block that it has
    seen freed, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD): what a batch and its step freed is
    faulted in again, page by page, in the next one. Freeing a block of that largest size, never touched, changes this
    for the whole process. No effect where these thresholds are set, or with other C libraries.
    """
    torch.UntypedStorage(_LARGEST_LEARNT_BYTES)  # type: ignore[no-untyped-call]
