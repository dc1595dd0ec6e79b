"""Limits for the numbers of threads and workers, and functions that count or describe threads and workers."""

from __future__ import annotations

from typing import Any

#: Default number of batches that each worker of PyTorch's loader prefetches.
TORCH_PREFETCH = 2
#: Largest number of threads of a loader.
MOST_THREADS = 16
#: Largest number of worker processes if the caller sets no limit.
MOST_WORKERS = 8


def loader_length(loader: Any) -> int | None:
    """Return the number of batches in an epoch; None if neither the dataset nor the sampler has a length."""
    try:
        return len(loader)
    except TypeError:
        return None


def describe_loading_mode(workers: int, threads: int | None) -> str:
    """Return the loading mode in words, such as ``4 worker processes``; ``threads=None`` counts as 0 threads."""
    count, kind = (workers, "worker process") if workers else (threads or 0, "prefetch thread")
    plural = "" if count == 1 else "es" if workers else "s"
    return f"{count} {kind}{plural}" if count else "loading in this process"


def worker_processes(loader: Any) -> int:
    """Return how many worker processes ``loader`` uses, which may be fewer than its ``num_workers``."""
    workers: int = getattr(loader, "worker_processes", getattr(loader, "num_workers", 0))
    return workers


def count_prefetched_batches(loader: Any) -> int:
    """Return how many batches the workers of ``loader`` load in advance."""
    workers = worker_processes(loader)
    return workers * (getattr(loader, "prefetch_factor", None) or TORCH_PREFETCH) if workers else 0
