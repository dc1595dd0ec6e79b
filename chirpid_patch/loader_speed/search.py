"""A search for the fastest loading mode of a dataset on this machine.

A loading mode uses worker processes, threads, or only the main thread of this process. Different numbers of processes
or threads are different modes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from chirpid_patch.loader_speed.measure import EndlessSampler, measure_loading_rate
from chirpid_patch.loading.limits import MOST_THREADS, MOST_WORKERS, describe_loading_mode
from chirpid_patch.loading.samplers import batches_to_request_early
from chirpid_patch.loading.worker_start import why_workers_cannot_start
from chirpid_patch.machine.cpus import cpus_per_rank
from chirpid_patch.randomness.random_states import restore_generators_after
from chirpid_patch.speed_comparison import compare_speeds, costly_is_faster
from chirpid_patch.thresholds import WAITING
from chirpid_patch.torch_private import DataLoader

#: The arguments of ``DataLoader`` that determine the samples of a batch.
_SAMPLING = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "generator")


@dataclass(frozen=True)
class LoadingTrial:
    """A loading mode that was tried, with its measured rate.

    Attributes:
        num_workers: number of worker processes.
        prefetch_threads: number of threads that load batches in advance.
        samples_per_second: number of samples loaded per second after the start of the loader; None if this mode failed.
        start_seconds: seconds until the first batch; None if this mode failed.
        error: the error message if this mode failed; else None.
    """

    num_workers: int
    prefetch_threads: int
    samples_per_second: float | None = None
    start_seconds: float | None = None
    error: str | None = None

    def __str__(self) -> str:
        return describe_loading_mode(self.num_workers, self.prefetch_threads)


@dataclass(frozen=True)
class LoaderChoice:
    """The loading mode that a search chose.

    Attributes:
        num_workers: number of worker processes of the chosen mode.
        prefetch_threads: number of threads of the chosen mode that load batches in advance.
        trials: all loading modes that were tried. The first mode has no workers and no threads.
        notes: sentences that explain which loading modes were not tried, and why.
    """

    num_workers: int
    prefetch_threads: int
    trials: tuple[LoadingTrial, ...]
    notes: tuple[str, ...] = field(default=())
    #: Measured best number of batches that each worker prefetches; None: the argument of the loader.
    prefetch_factor: int | None = None

    @property
    def why(self) -> str:
        """Return the measured rates of the modes, as a part of a sentence."""
        rates = {(trial.num_workers, trial.prefetch_threads): trial.samples_per_second for trial in self.trials}
        alone, chosen = rates[0, 0], rates[self.num_workers, self.prefetch_threads]
        assert alone is not None and chosen is not None
        if not (self.num_workers or self.prefetch_threads):
            others = ", ".join(f"{trial} {_rate_of_trial(trial)}" for trial in self.trials[1:]) or "no other trials"
            return f"measured {alone:.0f} samples/s; {others}"
        return f"measured {chosen:.0f} samples/s, and {alone:.0f} samples/s without threads and workers"


def _rate_of_trial(trial: LoadingTrial) -> str:
    return f"failed ({trial.error})" if trial.samples_per_second is None else f"{trial.samples_per_second:.0f}"


def choose_loading_mode(
    dataset: Any,
    options: Mapping[str, Any],
    *,
    threads_allowed: bool,
    most_workers: int | None,
    seconds: float = 3.0,
    step: Callable[[Any], object] | None = None,
) -> LoaderChoice:
    """Try several loading modes of ``dataset``, and return the first mode that is about as fast as the fastest mode.

    The search first tries loading in this process without threads, then increasing numbers of threads, and then
    increasing numbers of worker processes. A sampler may draw random numbers during the epoch, at times that depend on
    the number of worker processes. With such a sampler, the search tries no other number of worker processes than
    ``most_workers``. If ``most_workers`` is None or 0, the search then also tries no threads. If worker processes
    cannot be started safely, or too little time is left to start a worker process, the search omits worker processes.

    If ``options`` contains a sampler or a batch sampler, the trials read samples that this sampler yields; otherwise
    the trials read random samples. The search restores the state of every random generator.

    Args:
        dataset: a map-style dataset with at least one sample.
        options: arguments of ``DataLoader``, by name, such as ``batch_size`` and ``collate_fn``.
        threads_allowed: whether several threads may read the dataset at the same time.
        most_workers: largest number of worker processes to try. None: 8 if loading mostly waits for a disk or
            network, else the number of CPUs per rank, but at most 8.
        seconds: approximate duration of the search in seconds.
        step: function that is called with each batch and imitates a training step; None: no function.
    """
    notes: list[str] = []
    with restore_generators_after(dataset, step, *options.values()):
        search = _Search(dataset, options, seconds, step)
        search.measure(0, 0, seconds / 4)
        sampling = {name: options[name] for name in _SAMPLING if name in options}
        can_request_early = batches_to_request_early(DataLoader(dataset, **sampling)) > 0
        if not can_request_early and not most_workers:
            notes.append("no batch is prefetched, because the sampler may draw random numbers during the epoch")
        else:
            cpus = max(cpus_per_rank(), 1)
            if threads_allowed:
                most = MOST_THREADS if search.waits else min(cpus, MOST_THREADS)
                search.measure_increasing("prefetch_threads", most, seconds / 6)
            most = MOST_WORKERS if search.waits else min(cpus, MOST_WORKERS)
            if most_workers is not None:
                most = most_workers
            refused = why_workers_cannot_start(options, search.left())
            if refused is not None and most:
                notes.append(refused)
            elif can_request_early:
                search.measure_increasing("num_workers", most, seconds / 6)
            else:  # another number would change when the sampler draws random numbers, so only this number is tried
                search.measure(most, 0, seconds / 6)
    tied = compare_speeds([[rate] if (rate := one.samples_per_second) else [] for one in search.trials]).tied
    best = search.trials[tied.index(True)]
    return LoaderChoice(best.num_workers, best.prefetch_threads, tuple(search.trials), tuple(notes))


class _Search:
    """Measure loading modes of one dataset until a deadline."""

    def __init__(
        self, dataset: Any, options: Mapping[str, Any], seconds: float, step: Callable[[Any], object] | None
    ) -> None:
        self._until = time.perf_counter() + seconds
        sampler = EndlessSampler(len(dataset), options)
        self._rate = partial(measure_loading_rate, dataset, sampler, options, until=self._until, step=step)
        #: All loading modes that were measured. The first mode has no workers and no threads.
        self.trials: list[LoadingTrial] = []
        #: Whether loading leaves the CPU idle, because loading waits for a disk or network.
        self.waits = False

    def left(self) -> float:
        """Return the number of seconds until the deadline."""
        return self._until - time.perf_counter()

    def measure(self, num_workers: int, prefetch_threads: int, seconds: float) -> float:
        """Measure a loading mode for about ``seconds``, and return samples per second; 0 if this mode failed.

        Raises:
            Exception: loading without workers and threads failed.
        """
        trial = partial(LoadingTrial, num_workers, prefetch_threads)
        try:
            rate = self._rate(num_workers=num_workers, prefetch_threads=prefetch_threads, seconds=seconds)
        except Exception as error:  # the error is the result of the trial
            if not self.trials:
                raise
            self.trials.append(trial(error=f"{type(error).__name__}: {error}"))
            return 0.0
        if rate.lost_workers:
            self.trials.append(trial(error="a worker process could not be started, or died"))
            return 0.0
        if not self.trials:
            self.waits = rate.cpu_share < WAITING
        self.trials.append(trial(rate.samples_per_second, rate.first_s))
        return rate.samples_per_second

    def measure_increasing(self, what: str, most: int, seconds: float) -> None:
        """Measure increasing numbers of threads or workers while loading gets faster and time is left.

        Args:
            what: ``"prefetch_threads"`` or ``"num_workers"``.
            most: largest number to try.
            seconds: duration of each trial in seconds.
        """
        before = self.trials[0].samples_per_second or 0.0
        # If loading waits for a disk or network, many workers help, so the trials do not begin with few workers.
        count = min(most, 8 if self.waits else 2)
        while 0 < count <= most and self.left() >= seconds:
            speed = self.measure(**{"num_workers": 0, "prefetch_threads": 0, what: count}, seconds=seconds)
            if not costly_is_faster(before, speed):
                return
            before, count = speed, count * 2
