"""How much is loaded at once: what all who decide about it have in common."""

from __future__ import annotations

from typing import Any

#: Batches that each worker of PyTorch's loader loads ahead where nothing is given.
TORCH_PREFETCH = 2
#: Threads at most, of one loader.
MOST_THREADS = 16
#: Worker processes at most, where nobody said how many there may be.
MOST_WORKERS = 8
#: Loading that keeps its CPU busy for less than this part of its time waits for a disk, a network, or a device.
WAITING = 0.5


def loader_length(loader: Any) -> int | None:
    """Batches of an epoch; None where neither dataset nor sampler tells."""
    try:
        return len(loader)
    except TypeError:
        return None


def way_of_loading(workers: int, threads: int | None) -> str:
    """Who loads, in words."""
    count, kind = (workers, "worker process") if workers else (threads or 0, "prefetch thread")
    plural = "" if count == 1 else "es" if workers else "s"
    return f"{count} {kind}{plural}" if count else "loading in this process"


def worker_processes(loader: Any) -> int:
    """How many worker processes ``loader`` reads in: its ``num_workers``, unless it is one of ours that needs none."""
    workers: int = getattr(loader, "worker_processes", getattr(loader, "num_workers", 0))
    return workers


def batches_ahead(loader: Any) -> int:
    """Batches that the workers of ``loader`` have been asked for when its first one arrives."""
    workers = worker_processes(loader)
    return workers * (getattr(loader, "prefetch_factor", None) or TORCH_PREFETCH) if workers else 0
