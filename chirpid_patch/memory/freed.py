"""A function that lets the C library reuse the memory that a training step frees."""

from __future__ import annotations

import torch

#: Size in bytes of the largest block for which glibc raises its thresholds when the block is freed.
_LARGEST_LEARNT_BYTES = (32 << 20) - (64 << 10)


def keep_freed_memory() -> None:
    """Let the C library keep up to 64 MiB of the memory that a training step frees, for the next step.

    Call this function once, at the start of the program.

    By default, glibc returns free memory at the end of the heap to the kernel if this memory exceeds a threshold. The
    next training step requests the memory again, page by page, which is slow. The threshold is twice the size of the
    largest block that the process has freed (M_MMAP_THRESHOLD and M_TRIM_THRESHOLD in mallopt(3)). This function
    allocates and frees a block of nearly 32 MiB, because larger blocks do not raise the thresholds. So the thresholds
    rise for the whole process, and the next step reuses the memory.

    The function has no effect if the program or an environment variable sets the thresholds, or if the C library is not
    glibc.
    """
    torch.UntypedStorage(_LARGEST_LEARNT_BYTES)  # type: ignore[no-untyped-call]
