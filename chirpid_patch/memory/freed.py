"""A setting of the C library for memory that a training step frees."""

from __future__ import annotations

import torch

#: Just below the largest block that adjusts glibc's thresholds when freed, with room for its bookkeeping.
_LARGEST_LEARNT_BYTES = (32 << 20) - (64 << 10)


def keep_freed_memory() -> None:
    """Let the C library keep up to 64 MiB that a training step frees, for the next step. Call it once, at the start.

    glibc returns freed memory at the end of the heap to the kernel if it is more than twice the largest freed block, up
    to 32 MiB (mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD). The next step then gets that memory from the kernel
    again, page by page. This function frees an unused block of that largest size, which raises the thresholds for the
    whole process. It has no effect if these thresholds are set, nor with other C libraries.
    """
    torch.UntypedStorage(_LARGEST_LEARNT_BYTES)  # type: ignore[no-untyped-call]
