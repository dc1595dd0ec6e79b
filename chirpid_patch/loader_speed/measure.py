"""Functions that measure how long a training loop waits for a loader, and how many samples a loader loads per second.

All comparisons of loading modes use these functions: ``tune=True``, ``diagnose_dataloader_speed``,
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
from chirpid_patch.loading.limits import count_prefetched_batches, worker_processes
from chirpid_patch.randomness.random_states import restore_generators_after
from chirpid_patch.torch_private import end_workers

#: The results of ``measure_batch_waits``, by name.
Times = Mapping[str, float | int | bool]


@dataclass(frozen=True)
class _Wait:
    seconds: float
    samples: int
    starting: bool  # True: the wait includes the start of the loader or of new workers


def measure_batch_waits(
    loader: Any, num_batches: int, *, epochs: int = 1, at_end: Callable[[], object] | None = None
) -> tuple[Times, list[float]]:
    """Measure how long a loop waits for each batch of a loader, or of any iterable of batches.

    ``DataLoaderPerformanceMonitor.time_batch_loading`` documents the method and the results.

    Args:
        loader: as for ``time_batch_loading``.
        num_batches: as for ``time_batch_loading``.
        epochs: as for ``time_batch_loading``.
        at_end: function that is called at the end of each loader pass, while the workers still exist. None: no
            function.

    Returns:
        The dictionary that ``time_batch_loading`` returns, and the list of the measured waits in seconds.

    Raises:
        ValueError: the loader is empty, or ``num_batches`` or ``epochs`` is below 1.
    """
    if num_batches < 1 or epochs < 1:
        raise ValueError("num_batches and epochs must be at least 1")
    ahead = count_prefetched_batches(loader)
    waits: list[_Wait] = []
    with restore_generators_after(loader):
        wanted = 1 + ahead + num_batches
        passes = 0
        # A loader with a single batch is read once more, because the first wait is only start-up time.
        while len(waits) < wanted and (passes < epochs or len(waits) == 1):
            found = _measure_waits(loader, wanted - len(waits), first_pass=passes == 0, at_end=at_end)
            waits += found
            passes += 1
            if not found:
                break  # ``loader`` is an iterator without further batches
    if not waits:
        raise ValueError("the loader has no batch to measure: its dataset is empty, or drop_last drops its only batch")
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
    """Return up to ``most`` waits of one loader pass.

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
class LoadingRate:
    """The measured rate of a loading mode.

    Attributes:
        first_s: seconds until the first batch, including the construction of the loader.
        batches: number of measured batches. Batches that were loaded together with the first batch do not count.
        seconds: seconds that the measured batches took.
        cpu_share: share of ``seconds`` in which the thread that requests batches used a CPU, 0 to 1.
        lost_workers: whether a worker process could not be started, or died.
    """

    first_s: float
    batches: int
    seconds: float
    cpu_share: float
    lost_workers: bool


def measure_loading_rate(
    make_loader: Callable[[], Any],
    batches_at_once: int,
    seconds: float,
    *,
    until: float = math.inf,
    step: Callable[[Any], object] | None = None,
) -> LoadingRate:
    """Load batches for about ``seconds``, return the rate, and end the workers of the loader.

    Args:
        make_loader: function that builds the loader. The loader must yield batches without end.
        batches_at_once: number of batches that the loader loads in parallel. The number of measured batches is a
            multiple of this number.
        seconds: duration of the measurement in seconds, without the start of the loader.
        until: latest end of the measurement, as a value of ``time.perf_counter``.
        step: function that is called with each batch and imitates a training step; None: no function.

    Raises:
        Exception: any error that building or reading the loader raises.
    """
    use = step or _no_step
    begun = time.perf_counter()
    loader = make_loader()
    try:
        batches = iter(loader)
        use(next(batches))
        first = time.perf_counter() - begun
        # The measurement begins after the batches that were loaded together with the first batch.
        for _ in range(batches_at_once - 1):
            use(next(batches))
        wall, cpu, count = time.perf_counter(), time.thread_time(), 0
        seconds = min(seconds, until - wall)
        while True:
            for _ in range(batches_at_once):
                use(next(batches))
            count += batches_at_once
            passed = time.perf_counter() - wall
            if passed >= seconds:
                break
        share = min((time.thread_time() - cpu) / passed, 1.0)
        return LoadingRate(first, count, passed, share, bool(getattr(loader, "lost_workers", False)))
    finally:
        shut_down_workers(loader)


def _no_step(batch: Any) -> None:
    """Do nothing: the default for ``step``."""


def shut_down_workers(loader: Any) -> None:
    """End the persistent workers of ``loader`` at once, before the loader is garbage-collected."""
    if callable(getattr(loader, "shutdown", None)):
        loader.shutdown()
    else:
        end_workers(loader)
