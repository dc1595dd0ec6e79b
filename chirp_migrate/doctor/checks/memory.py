"""Find worker processes whose use of memory grows with the number of samples read so far."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, pairwise
from statistics import fmean, stdev

from chirp_migrate.console.text import pluralize
from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import FetcherPassRecord, LoaderInfo, Recording
from chirp_migrate.stats.ratios import student_quantile

_KIB, _MIB = 2**10, 2**20
_LEAST_RISE = 3 * _MIB
_LEAST_MEASURED = 4
_MAX_STEP_SHARE = 0.6
"""Largest share of the total rise in a single step. A larger step is memory that a process needs only once."""


def check(recording: Recording) -> Iterator[Problem]:
    """Find containers that grow beyond the number of samples, and forked workers that copy large lists of objects.

    A container with more entries than samples is no cache, because a cache has at most one entry for each sample. The
    check skips iterable datasets, because they may have buffers that grow by design.
    """
    for loader in recording.loaders:
        if loader.is_stream or loader.samples < 1:
            continue
        for one in recording.passes_of_loader(loader):
            runs = [run for run in recording.runs_of(one) if run.tasks]
            problem = _growing_container_problem(loader, runs) or _copied_objects_problem(loader, runs)
            if problem is not None:
                yield problem
                break


def _growing_container_problem(loader: LoaderInfo, runs: list[FetcherPassRecord]) -> Problem | None:
    """Return the problem if each reading of a sample adds an entry to a container of the dataset; otherwise None.

    The container must have more entries than the dataset has samples.
    """
    for run in runs:
        for path, entries in run.last_container_sizes.items():
            began = run.sizes.get(path, entries)
            if (
                began == 0
                or entries <= loader.samples
                or entries - began < _count_read_samples(run)
                or path.endswith(")")
            ):
                continue
            return Problem.at(
                loader.dataset_place if loader.dataset_place.file else loader.place,
                "memory",
                f"{path} grows in every epoch, so the memory of the process also grows.",
                f"{path} had {pluralize(entries, 'entry')} for {loader.samples} samples, "
                f"and the last epoch added {entries - began} of these entries ({loader}).",
                f"Empty {path} before each epoch, or do not store data for each sample.",
            )
    return None


def _count_read_samples(run: FetcherPassRecord) -> int:
    """Return the number of samples that a process read before the last measurement of its containers; at least 1."""
    last = max((number for number, task in enumerate(run.tasks) if task.sizes), default=0)
    return max(1, sum(len(task.indices) for task in run.tasks[: last + 1]))


def _copied_objects_problem(loader: LoaderInfo, runs: list[FetcherPassRecord]) -> Problem | None:
    """Return the problem if forked workers need more memory because they read Python objects; otherwise None.

    Reading an object changes its reference count. This change makes the operating system copy the memory page of the
    object, which workers shared before.
    """
    has_grown = any(
        entries > run.sizes.get(path, entries) for run in runs for path, entries in run.last_container_sizes.items()
    )
    if not loader.objects or loader.start_method != "fork" or has_grown:
        return None
    measured = [[task.memory for task in run.tasks if task.memory] for run in runs if run.worker >= 0]
    if not measured or not all(_rises_steadily(memory) for memory in measured):
        return None
    rises = [memory[-1] - memory[0] for memory in measured]
    path, objects = max(loader.objects.items(), key=lambda item: item[1])
    batches = [len(task.indices) for run in runs for task in run.tasks]
    slope = f", by {_describe_rise_per_sample(runs)}" if all(batches) else ""
    return Problem.at(
        loader.dataset_place if loader.dataset_place.file else loader.place,
        "memory",
        f"Every worker copies the Python objects of {path}, because reading an object writes its reference count. So "
        "forked workers do not share the memory of these objects.",
        f"{path} has {objects:,} objects. The memory of {pluralize(len(rises), 'worker')} rose by "
        f"{sum(rises) / _MIB:.0f} MiB in total while {loader} read {sum(batches):,} samples{slope}.",
        "Store numbers in one NumPy array or tensor, and strings in one bytes object with an array of offsets.",
    )


def _describe_rise_per_sample(runs: list[FetcherPassRecord]) -> str:
    """Describe the mean rise of the memory per sample that a worker reads, with a 95 % interval.

    The function ignores the first measurement of each worker, as :func:`_rises_steadily` does.
    """
    slopes = []
    for run in runs:
        read = accumulate(len(task.indices) for task in run.tasks)
        points = [(number, task.memory) for number, task in zip(read, run.tasks, strict=True) if task.memory][1:]
        slopes += [(after - before) / (end - begin) / _KIB for (begin, before), (end, after) in pairwise(points)]
    half = student_quantile(0.975, len(slopes) - 1) * stdev(slopes) / math.sqrt(len(slopes))
    mean = fmean(slopes)
    return f"{mean:.1f} KiB for each sample (95 % interval: {mean - half:.1f} to {mean + half:.1f})"


def _rises_steadily(memory: list[int]) -> bool:
    """Return whether the memory rises in several steps.

    The rise between the first two measurements does not count, because it may be memory that a process needs only once.
    """
    steps = [after - before for before, after in pairwise(memory[1:])]
    rise = sum(steps)
    return len(memory) >= _LEAST_MEASURED and rise >= _LEAST_RISE and max(steps) <= _MAX_STEP_SHARE * rise
