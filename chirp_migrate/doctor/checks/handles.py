"""Find trainings that keep batches from worker processes, and so keep the file descriptors of these batches open."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import LoaderPass, Recording

_SKIPPED_BATCHES = 4
"""Number of first batches to skip, because prefetching still opens file descriptors during these batches."""
_WINDOW = 4
_LEAST_BATCHES = 12
_MIN_RISE, _RISING_SHARE = 0.5, 0.6
"""Smallest mean number of file descriptors that a batch adds, and smallest share of steps in which the number rises."""


def check(recording: Recording) -> Iterator[Problem]:
    """Check whether the number of open file descriptors rises in each of two epochs, and does not fall between them."""
    if not recording.most_handles:
        return
    for series in recording.group_passes():
        passes = [one for loader, one in series if loader.num_workers and len(one.handles) >= _LEAST_BATCHES]
        if len(passes) < 2 or len(passes) < len(series):
            continue
        loader, (first, second) = series[0][0], passes[:2]
        window = max(_WINDOW, 2 * loader.num_workers)
        if (
            not (_keeps_rising(first, window) and _keeps_rising(second, window))
            or second.handles[0] < first.handles[-1]
        ):
            continue
        batches = len(first.handles) + len(second.handles)
        descriptors_per_batch = (second.handles[-1] - first.handles[0]) / (batches - 1)
        yield Problem.at(
            loader.place,
            "handles",
            "The training keeps its batches, and each batch from a worker process holds open file descriptors.",
            f"Open file descriptors rose from {first.handles[0]} to {second.handles[-1]} in {batches} batches of "
            f"{loader}, and did not fall between epochs. The process reaches its limit of {recording.most_handles} "
            f"after about {int((recording.most_handles - first.handles[0]) / descriptors_per_batch)} batches.",
            "Keep copies of the needed values instead of the batch: tensor.clone(), or tensor.item() for one number.",
        )


def _keeps_rising(one: LoaderPass, window: int) -> bool:
    """Return whether the number of open file descriptors keeps rising in an epoch, from the fifth batch on.

    The function compares the number after each batch with the number ``window`` batches later.
    """
    later = one.handles[_SKIPPED_BATCHES:]
    steps = [after - before for before, after in zip(later, later[window:], strict=False)]
    return (
        len(steps) >= _WINDOW
        and fmean(steps) >= _MIN_RISE * window
        and sum(step > 0 for step in steps) >= (_RISING_SHARE * len(steps))
    )
