"""Limits on how much is loaded at once, for all modules that choose a loading mode."""

from __future__ import annotations

from typing import Any

#: Default number of batches that each worker of PyTorch's loader prefetches.
TORCH_PREFETCH = 2
#: Largest number of threads of a loader.
MOST_THREADS = 16
#: Largest number of worker processes if the call sets no limit.
MOST_WORKERS = 8
#: Loading that keeps its CPU busy for less than this part of its time waits for a disk, a network, or a device.
WAITING = 0.5


def loader_length(loader: Any) -> int | None:
    """Return the batches of an epoch; None if neither dataset nor sampler has a length."""
    try:
        return len(loader)
    except TypeError:
        return None


def describe_loading_mode(workers: int, threads: int | None) -> str:
    """Return the loading mode, as part of a sentence."""
    count, kind = (workers, "worker process") if workers else (threads or 0, "prefetch thread")
    plural = "" if count == 1 else "es" if workers else "s"
    return f"{count} {kind}{plural}" if count else "loading in this process"


def worker_processes(loader: Any) -> int:
    """Return the number of worker processes of ``loader``: ``num_workers``, or fewer for a loader of this package."""
    workers: int = getattr(loader, "worker_processes", getattr(loader, "num_workers", 0))
    return workers


def batches_ahead(loader: Any) -> int:
    """Return the number of batches that the workers of ``loader`` have started when its first one arrives."""
    workers = worker_processes(loader)
    return workers * (getattr(loader, "prefetch_factor", None) or TORCH_PREFETCH) if workers else 0
