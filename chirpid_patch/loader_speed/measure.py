"""Measurement of a loader: its waits, or its rate in an endless loop.

All comparisons of loading modes use these two functions: ``tune=True``, ``diagnose_dataloader_speed``,
``DataLoaderPerformanceMonitor`` and ``chirp-migrate tune``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from chirpid_patch.loading.batch_timer import TimedBatches
from chirpid_patch.loading.limits import batches_ahead, worker_processes
from chirpid_patch.randomness.random_states import restored_generators
from chirpid_patch.torch_private import end_workers

#: Figures of ``measure``.
Times = Mapping[str, float | int | bool]


@dataclass(frozen=True)
class _Wait:
    seconds: float
    samples: int
    starting: bool  # the loader was starting: its first batch, or the first batch of new workers


def measure(
    loader: Any, num_batches: int, *, epochs: int = 1, at_end: Callable[[], object] | None = None
) -> tuple[Times, list[float]]:
    """Time the wait for each next batch of a loader, or of any iterable of batches.

    ``DataLoaderPerformanceMonitor.time_batch_loading`` documents the method and the values.

    Args:
        loader: as for ``time_batch_loading``.
        num_batches: as for ``time_batch_loading``.
        epochs: as for ``time_batch_loading``.
        at_end: called at the end of each iteration, while its workers exist.

    Returns:
        The values, and the waits in seconds.

    Raises:
        ValueError: the loader has no batch, or ``num_batches`` or ``epochs`` is below 1.
    """
    if num_batches < 1 or epochs < 1:
        raise ValueError("num_batches and epochs must be at least 1")
    ahead = batches_ahead(loader)
    waits: list[_Wait] = []
    with restored_generators(loader):
        wanted = 1 + ahead + num_batches
        passes = 0
        # A loader of one batch is iterated over once more: its first wait alone would be start-up only.
        while len(waits) < wanted and (passes < epochs or len(waits) == 1):
            found = _measure_waits(loader, wanted - len(waits), first_pass=passes == 0, at_end=at_end)
            waits += found
            passes += 1
            if not found:
                break  # an iterator, now used up
    if not waits:
        raise ValueError("the loader has no batches to time: is its dataset empty, or smaller than a dropped batch?")
    steady = [wait for wait in waits if not wait.starting]
    measured = (steady or waits)[-num_batches:]
    seconds = [wait.seconds for wait in measured]
    head_start = min(len(measured), max(0, ahead - (len(steady) - len(measured)))) if steady else 0
    times = {
        "mean_batch_time": float(np.mean(seconds)),
        "std_batch_time": float(np.std(seconds)),
        "p50_batch_time": float(np.percentile(seconds, 50)),
        "p99_batch_time": float(np.percentile(seconds, 99)),
        "total_time": float(np.sum(seconds)),
        "samples_per_second": sum(wait.samples for wait in measured) / max(sum(seconds), 1e-9),
        "num_batches": len(measured),
        "first_batch_time": waits[0].seconds,
        "head_start_batches": head_start,
        "start_up_included": not steady,
    }
    return times, seconds


def _measure_waits(loader: Any, most: int, *, first_pass: bool, at_end: Callable[[], object] | None) -> list[_Wait]:
    """Return up to ``most`` waits of one iteration in seconds.

    The first wait includes the construction of the iterator.
    """
    restarts = worker_processes(loader) > 0 and not getattr(loader, "persistent_workers", False)
    begun = time.perf_counter()
    batches = TimedBatches(iter(loader))
    started = time.perf_counter() - begun
    try:
        for _ in zip(range(most), batches, strict=False):
            pass
    finally:
        if at_end is not None:
            at_end()
    if batches.waits:
        batches.waits[0] += started
    starting = [first_pass or restarts, *[False] * len(batches.waits)]
    return [_Wait(*wait) for wait in zip(batches.waits, batches.samples, starting, strict=False)]


@dataclass(frozen=True)
class Rate:
    """The rate of a loading mode after its start.

    Attributes:
        first_s: seconds until the first batch, including the construction of the loader.
        batches, seconds: number of batches after those that were started with the first one, and their time.
        cpu_share: share of that time in which the requesting thread was on a CPU.
        lost_workers: whether worker processes could not be started, or died.
    """

    first_s: float
    batches: int
    seconds: float
    cpu_share: float
    lost_workers: bool


def measure_rate(
    make: Callable[[], Any],
    at_once: int,
    seconds: float,
    *,
    until: float = math.inf,
    step: Callable[[Any], object] | None = None,
) -> Rate:
    """Load for about ``seconds`` with the loader from ``make``, and end its workers.

    Args:
        make: builds the loader, which yields batches without end.
        at_once: number of batches that load in parallel. Only whole rounds of that many batches count, at least one
            round.
        seconds: duration of the measurement, without the start.
        until: latest end (``time.perf_counter``).
        step: called with each batch.

    Raises:
        Exception: any error of building or reading the loader.
    """
    use = step or _no_step
    begun = time.perf_counter()
    loader = make()
    try:
        batches = iter(loader)
        use(next(batches))
        first = time.perf_counter() - begun
        # The batches that began with the first batch arrive together, before measuring begins.
        for _ in range(at_once - 1):
            use(next(batches))
        wall, cpu, count = time.perf_counter(), time.thread_time(), 0
        seconds = min(seconds, until - wall)
        while True:
            for _ in range(at_once):
                use(next(batches))
            count += at_once
            passed = time.perf_counter() - wall
            if passed >= seconds:
                break
        share = min((time.thread_time() - cpu) / passed, 1.0)
        return Rate(first, count, passed, share, bool(getattr(loader, "lost_workers", False)))
    finally:
        shut_down_workers(loader)


def _no_step(batch: Any) -> None:
    """Do nothing, in place of a training step."""


def shut_down_workers(loader: Any) -> None:
    """End the persistent workers of a loader now, instead of at its garbage collection."""
    if callable(getattr(loader, "shutdown", None)):
        loader.shutdown()
    else:
        end_workers(loader)
