"""Find caches that worker processes fill, and whose entries are lost when the worker processes end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import FetcherPassRecord, Recording

_LEAST_ENTRIES = 4
_LEAST_STEPS = 2


def check(recording: Recording) -> Iterator[Problem]:
    """Find containers of a dataset that grow in the workers, but begin the next epoch with the old length.

    The check skips iterable datasets, because they may have buffers that grow and shrink by design.
    """
    for series in recording.group_passes():
        loader = series[0][0]
        if loader.is_stream or loader.persistent_workers or not loader.num_workers or len(series) < 2:
            continue
        runs = [[run for run in recording.runs_of(one) if run.tasks and run.worker >= 0] for _, one in series[:2]]
        if not all(runs):
            continue
        for path, began in runs[0][0].sizes.items():
            grown = [
                sum(run.last_container_sizes.get(path, 0) - run.sizes.get(path, 0) for run in epoch) for epoch in runs
            ]
            same_start = all(run.sizes.get(path) == began for epoch in runs for run in epoch)
            all_grow = all(_count_growth_steps(run, path) >= _LEAST_STEPS for epoch in runs for run in epoch)
            if not (same_start and all_grow and min(grown) >= _LEAST_ENTRIES):
                continue
            start = "empty" if began == 0 else f"{began} entries long"
            yield Problem.at(
                loader.dataset_place if loader.dataset_place.file else loader.place,
                "lost-cache",
                f"Worker processes fill {path}, but its entries are lost when the workers end after each epoch.",
                f"The workers of {loader} added {grown[0]} entries in one epoch. In the next epoch, {path} was {start} "
                f"at first, and the workers added {grown[1]} entries.",
                "Fill the cache before the training iterates over the loader, store the cache on disk, or keep the "
                "workers with persistent_workers=True.",
            )


def _count_growth_steps(run: FetcherPassRecord, path: str) -> int:
    """Return how often the container ``path`` grew in one process.

    A container that keeps only one sample grows only once, so such a container is no cache.
    """
    lengths = [run.sizes.get(path, 0), *(task.sizes[path] for task in run.tasks if path in task.sizes)]
    return sum(after > before for before, after in pairwise(lengths))
