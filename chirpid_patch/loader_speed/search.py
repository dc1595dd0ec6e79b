"""Search for the fastest way to load one dataset on this machine."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler, DataLoader, Sampler

from chirpid_patch.loader_speed.measure import measure_rate
from chirpid_patch.loading.limits import MOST_THREADS, MOST_WORKERS, WAITING, describe_loading_mode
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.samplers import copy_sampler, tasks_drawn_freely
from chirpid_patch.loading.worker_start import default_start_method, why_no_processes
from chirpid_patch.machine.cpus import rank_cpus
from chirpid_patch.randomness.random_states import restored_generators

#: Least speed of a choice, as a multiple of loading in the process and of every simpler choice.
_WORTH = 1.05
#: The arguments that decide which samples make a batch.
_SAMPLING = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "generator")
_MOST_GIVEN = 256


@dataclass(frozen=True)
class LoadingTrial:
    """One loading mode and its rate.

    ``samples_per_second`` is the rate after the start. ``start_seconds`` is the time to the first batch. ``error``
    replaces the rate if that mode failed.
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
    """The loading mode that a measurement chose, with all trials; the first trial has no workers and no threads."""

    num_workers: int
    prefetch_threads: int
    trials: tuple[LoadingTrial, ...]
    notes: tuple[str, ...] = field(default=())
    #: Measured number of batches that each worker prefetches; None for the value of the call.
    prefetch_factor: int | None = None

    @property
    def why(self) -> str:
        """Return the comparison of the choice with the best alternative, as part of a sentence."""
        rates = {(trial.num_workers, trial.prefetch_threads): trial.samples_per_second for trial in self.trials}
        alone, chosen = rates[0, 0], rates[self.num_workers, self.prefetch_threads]
        assert alone is not None and chosen is not None
        if not (self.num_workers or self.prefetch_threads):
            others = ", ".join(f"{trial} {_rate_of_trial(trial)}" for trial in self.trials[1:]) or "nothing else to try"
            return f"measured {alone:.0f} samples/s; {others}"
        return f"measured {chosen:.0f} samples/s against {alone:.0f} without"


def _rate_of_trial(trial: LoadingTrial) -> str:
    return f"failed ({trial.error})" if trial.samples_per_second is None else f"{trial.samples_per_second:.0f}"


def choose_loading(
    dataset: Any,
    options: Mapping[str, Any],
    *,
    threads_allowed: bool,
    most_workers: int | None,
    seconds: float = 3.0,
    step: Callable[[Any], object] | None = None,
) -> LoaderChoice:
    """Try loading modes of ``dataset`` for about ``seconds`` altogether, and return the fastest.

    The search first tries loading in this process, then increasing numbers of threads or worker processes, on random
    samples, or on samples of the caller's sampler. It restores every random generator. It tries processes only if
    starting them is safe and short enough.

    Args:
        dataset: a map-style dataset with at least one sample.
        options: arguments of ``DataLoader``; the search uses those that define batches.
        threads_allowed: whether several threads may read the dataset at once.
        most_workers: largest number of worker processes to try; None tries as many as may help.
        seconds: duration of the search.
        step: called with each batch, in place of a training step, which leaves fewer CPUs for loading.
    """
    notes: list[str] = []
    with restored_generators(dataset, step, *options.values()):
        measuring = _Measuring(dataset, options, time.perf_counter() + seconds, step)
        alone = measuring.trial(0, 0, seconds / 4)
        trials = [alone]
        if alone.samples_per_second is None:
            raise measuring.errors[0]
        draws_freely = _draws_freely(dataset, options)
        if not draws_freely and not most_workers:
            notes.append("the sampler may draw random numbers during the epoch: nothing is prefetched")
        else:
            cpus = max(rank_cpus(), 1)
            if threads_allowed:
                most = MOST_THREADS if measuring.waits else min(cpus, MOST_THREADS)
                _try_increasing(trials, measuring, seconds / 6, "prefetch_threads", most)
            most = MOST_WORKERS if measuring.waits else min(cpus, MOST_WORKERS)
            if most_workers is not None:
                most = most_workers
            refused = why_no_processes(options, measuring.left())
            if refused is not None and most:
                notes.append(refused)
            elif draws_freely:
                _try_increasing(trials, measuring, seconds / 6, "num_workers", most)
            else:  # another number of workers would change the time at which indices are drawn
                trials.append(measuring.trial(most, 0, seconds / 6))
    best = alone
    for trial in trials[1:]:
        if trial.samples_per_second is not None and trial.samples_per_second > _WORTH * (best.samples_per_second or 0):
            best = trial
    return LoaderChoice(best.num_workers, best.prefetch_threads, tuple(trials), tuple(notes))


def _try_increasing(trials: list[LoadingTrial], measuring: _Measuring, seconds: float, what: str, most: int) -> None:
    """Try increasing numbers of threads or workers, as long as loading gets faster and time is left."""
    before = trials[0].samples_per_second or 0.0
    # If loading waits, many workers at once help, and there may be no time to try few workers first.
    count = min(most, 8 if measuring.waits else 2)
    while 0 < count <= most and measuring.left() >= seconds:
        trial = measuring.trial(**{"num_workers": 0, "prefetch_threads": 0, what: count}, seconds=seconds)
        trials.append(trial)
        if trial.samples_per_second is None or trial.samples_per_second < _WORTH * before:
            return
        before, count = trial.samples_per_second, count * 2


class _Measuring:
    """Trials on one dataset, up to a deadline."""

    def __init__(
        self, dataset: Any, options: Mapping[str, Any], until: float, step: Callable[[Any], object] | None
    ) -> None:
        self._dataset = dataset
        self._options = {
            name: options[name]
            for name in ("collate_fn", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
            if options.get(name) is not None
        }
        self._sampler = EndlessIndices(len(dataset), options)
        self._until = until
        self._step = step
        #: Whether loading left its CPU idle: it waits for a disk, a network, or a device.
        self.waits = False
        self.errors: list[Exception] = []

    def left(self) -> float:
        """Return the seconds left until the deadline."""
        return self._until - time.perf_counter()

    def trial(self, num_workers: int, prefetch_threads: int, seconds: float) -> LoadingTrial:
        """Measure one loading mode, over whole rounds of its threads or workers."""
        at_once = max(num_workers, prefetch_threads, 1)
        options = self._sampler.sampling() | self._options
        if num_workers:
            options.setdefault("multiprocessing_context", default_start_method())
        else:
            options.pop("multiprocessing_context", None)
            options["prefetch_factor"] = 1 if prefetch_threads else None

        def make() -> BatchedDataLoader[Any]:
            return BatchedDataLoader(
                self._dataset,
                num_workers=num_workers or prefetch_threads,
                persistent_workers=num_workers > 0,
                keep_workers=num_workers > 0,
                in_process=not num_workers,
                prefetch_threads=prefetch_threads,
                thread_safe=prefetch_threads > 0,
                **options,
            )

        try:
            rate = measure_rate(make, at_once, seconds, until=self._until, step=self._step)
        except Exception as error:  # an error of a loading mode is its result
            self.errors.append(error)
            return LoadingTrial(num_workers, prefetch_threads, error=f"{type(error).__name__}: {error}")
        if rate.lost_workers:
            return LoadingTrial(num_workers, prefetch_threads, error="worker processes could not be used")
        if at_once == 1:
            self.waits = rate.cpu_share < WAITING
        samples = rate.batches * self._sampler.per_draw
        return LoadingTrial(num_workers, prefetch_threads, samples / rate.seconds, rate.first_s)


class EndlessIndices(Sampler[Any]):
    """Yield indices without end: some of the caller's sampler, or random indices from a separate generator.

    Args:
        n: number of samples of the dataset, at least 1.
        options: arguments of ``DataLoader``; ``batch_size``, ``sampler`` and ``batch_sampler`` are used.
    """

    def __init__(self, n: int, options: Mapping[str, Any]) -> None:
        self._n = n
        self._batch_size: int | None = options.get("batch_size", 1)
        batches, sampler = options.get("batch_sampler"), options.get("sampler")
        given: Any = ()
        if batches is not None:
            given, self._batch_size = copy_sampler(batches), 1
        elif sampler is not None:
            given = copy_sampler(sampler)
            if self._batch_size is not None:
                given = BatchSampler(given, self._batch_size, drop_last=False)
        #: Samples to read repeatedly. Unreadable samples may be missing, and keys may be other values than numbers.
        self._given = list(itertools.islice(given, _MOST_GIVEN))
        #: Samples in one draw, on average.
        self.per_draw: float = self._batch_size or 1
        if self._given and self._batch_size is not None:
            self.per_draw = sum(map(len, self._given)) / len(self._given)

    def sampling(self) -> dict[str, Any]:
        """Return the arguments of a loader that uses these indices."""
        return {"batch_size": None, "sampler": self} if self._batch_size is None else {"batch_sampler": self}

    def __len__(self) -> int:
        return sys.maxsize

    def __iter__(self) -> Iterator[Any]:
        generator = np.random.default_rng(0)
        while True:
            if self._given:
                yield self._given[int(generator.integers(len(self._given)))]
            else:
                yield np.asarray(generator.integers(0, self._n, self._batch_size)).tolist()


def _draws_freely(dataset: Any, options: Mapping[str, Any]) -> bool:
    """Return whether drawing the indices of an epoch early changes no random number of the training."""
    sampling = {name: options[name] for name in _SAMPLING if name in options}
    return tasks_drawn_freely(DataLoader(dataset, **sampling)) > 0
