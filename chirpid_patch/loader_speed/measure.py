"""Functions that measure how long a training loop waits for a loader, and how many samples a loader loads per second.

``tune=True`` and ``chirp-migrate tune`` measure loading modes with ``measure_loading_rate``, which builds loaders with
an ``EndlessSampler``. ``diagnose_dataloader_speed`` and ``DataLoaderPerformanceMonitor`` measure loaders of the caller,
or copies of these loaders, with ``measure_batch_waits``.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler, Sampler

from chirpid_patch.loading.batch_timer import TimedBatches
from chirpid_patch.loading.limits import count_prefetched_batches, worker_processes
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.samplers import copy_sampler
from chirpid_patch.loading.worker_start import default_start_method
from chirpid_patch.randomness.random_states import restore_generators_after
from chirpid_patch.torch_private import DataLoader, end_workers

#: Arguments of ``DataLoader`` that affect the loading rate, in addition to the arguments about sampling.
_MEASURED_OPTIONS = ("collate_fn", "worker_init_fn", "multiprocessing_context", "prefetch_factor", "pin_memory")
_MOST_GIVEN = 256

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

    The docstring of ``DataLoaderPerformanceMonitor.time_batch_loading`` describes the measurement and the results.

    Args:
        loader: as for ``time_batch_loading``.
        num_batches: as for ``time_batch_loading``.
        epochs: as for ``time_batch_loading``.
        at_end: function that is called at the end of each iteration over the loader, while the workers still exist.
            None: no function.

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
        # A loader with a single batch is read a second time, because the first wait is only start-up time.
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
    """Iterate over at most ``most`` batches of ``loader``, and return the wait for each batch.

    The wait for the first batch includes the construction of the iterator. ``first_pass`` is True for the first
    iteration over the loader.
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
    """The measured speed of one loading mode, in samples per second, with other values of the same measurement.

    Attributes:
        first_s: seconds until the first batch, including the construction of the loader.
        batches: number of measured batches. Batches that were loaded together with the first batch do not count.
        seconds: seconds that the measured batches took.
        samples_per_second: number of samples loaded per second during ``seconds``.
        cpu_share: CPU time of the thread that requests batches, divided by ``seconds``, from 0 to 1.
        lost_workers: whether a worker process could not be started, or died.
    """

    first_s: float
    batches: int
    seconds: float
    samples_per_second: float
    cpu_share: float
    lost_workers: bool


class EndlessSampler(Sampler[Any]):
    """A sampler without end, for measurements.

    The sampler yields random indices from its own generator. If ``options`` contains a sampler or batch sampler, this
    class reads the indices of the first ``_MOST_GIVEN`` batches from a copy of that sampler. The class then yields
    random choices from these batches. With ``batch_size=None``, the class reads and yields single indices instead of
    batches.

    Args:
        sample_count: number of samples of the dataset, at least 1.
        options: arguments of ``DataLoader``, by name. This class uses only ``batch_size``, ``sampler`` and
            ``batch_sampler``.
    """

    def __init__(self, sample_count: int, options: Mapping[str, Any]) -> None:
        self._sample_count = sample_count
        self._batch_size: int | None = options.get("batch_size", 1)
        batches, sampler = options.get("batch_sampler"), options.get("sampler")
        given: Any = ()
        if batches is not None:
            given, self._batch_size = copy_sampler(batches), 1
        elif sampler is not None:
            given = copy_sampler(sampler)
            if self._batch_size is not None:
                given = BatchSampler(given, self._batch_size, drop_last=False)
        #: The first indices of the caller's sampler. Indices that this sampler does not yield may be invalid for the
        #: dataset.
        self._given = list(itertools.islice(given, _MOST_GIVEN))
        #: Mean number of samples for each item of this sampler.
        self.per_draw: float = self._batch_size or 1
        if self._given and self._batch_size is not None:
            self.per_draw = sum(map(len, self._given)) / len(self._given)

    def sampling(self) -> dict[str, Any]:
        """Return the arguments of ``DataLoader`` for a loader that uses this sampler."""
        return {"batch_size": None, "sampler": self} if self._batch_size is None else {"batch_sampler": self}

    def __len__(self) -> int:
        return sys.maxsize

    def __iter__(self) -> Iterator[Any]:
        generator = np.random.default_rng(0)
        while True:
            if self._given:
                yield self._given[int(generator.integers(len(self._given)))]
            else:
                yield np.asarray(generator.integers(0, self._sample_count, self._batch_size)).tolist()


def measure_loading_rate(
    dataset: Any,
    sampler: EndlessSampler,
    options: Mapping[str, Any],
    *,
    num_workers: int,
    prefetch_threads: int,
    seconds: float,
    until: float = math.inf,
    step: Callable[[Any], object] | None = None,
    is_batched: bool = True,
) -> LoadingRate:
    """Load batches for about ``seconds`` in a loading mode, and return the rate. At the end, stop the workers.

    Threads or workers load several batches at the same time, so the number of measured batches is a multiple of the
    number of threads or workers.

    Args:
        dataset: a map-style dataset with at least one sample.
        sampler: the sampler of the loader.
        options: arguments of ``DataLoader``, by name. The function uses only the arguments in ``_MEASURED_OPTIONS``.
        num_workers: number of worker processes.
        prefetch_threads: number of threads that load batches in advance.
        seconds: duration of the measurement in seconds, without the start of the loader.
        until: latest end of the measurement, as a value of ``time.perf_counter``.
        step: function that is called with each batch and imitates a training step; None: no function.
        is_batched: whether to measure a ``BatchedDataLoader``. False measures PyTorch's ``DataLoader``.

    Raises:
        Exception: any error that building or reading the loader raises.
    """
    at_once = max(num_workers, prefetch_threads, 1)
    arguments = {name: options[name] for name in _MEASURED_OPTIONS if options.get(name) is not None}
    if num_workers:
        arguments.setdefault("multiprocessing_context", default_start_method())
        arguments |= {"num_workers": num_workers, "persistent_workers": True}
    else:
        arguments.pop("multiprocessing_context", None)
        arguments["prefetch_factor"] = None
    make: Callable[..., Any] = DataLoader
    if is_batched:
        arguments |= {"keep_workers": num_workers > 0, "prefetch_threads": prefetch_threads}
        make = BatchedDataLoader
    if prefetch_threads:
        arguments |= {"num_workers": prefetch_threads, "prefetch_factor": 1, "in_process": True, "thread_safe": True}
    use = step or (lambda batch: None)
    begun = time.perf_counter()
    loader = make(dataset, **arguments, **sampler.sampling())
    try:
        batches = iter(loader)
        use(next(batches))
        first = time.perf_counter() - begun
        # The measurement begins after the batches that were loaded together with the first batch.
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
        lost = bool(getattr(loader, "lost_workers", False))
        return LoadingRate(first, count, passed, count * sampler.per_draw / passed, share, lost)
    finally:
        shut_down_workers(loader)


def shut_down_workers(loader: Any) -> None:
    """End the persistent workers of ``loader`` now, and not only when the loader is garbage-collected."""
    if callable(getattr(loader, "shutdown", None)):
        loader.shutdown()
    else:
        end_workers(loader)
