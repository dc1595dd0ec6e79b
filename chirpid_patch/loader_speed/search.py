"""A search for the fastest loading mode of a dataset on this machine."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler, Sampler

from chirpid_patch.loader_speed.measure import measure_loading_rate
from chirpid_patch.loading.limits import MOST_THREADS, MOST_WORKERS, WAITING, describe_loading_mode
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.samplers import batches_to_request_early, copy_sampler
from chirpid_patch.loading.worker_start import default_start_method, why_workers_cannot_start
from chirpid_patch.machine.cpus import cpus_per_rank
from chirpid_patch.randomness.random_states import restore_generators_after
from chirpid_patch.torch_private import DataLoader

#: A mode is chosen only if its speed is more than this multiple of the best speed before.
_WORTH = 1.05
#: The arguments of ``DataLoader`` that determine the samples of a batch.
_SAMPLING = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "generator")
_MOST_GIVEN = 256


@dataclass(frozen=True)
class LoadingTrial:
    """A loading mode that was tried, with its measured rate.

    Attributes:
        num_workers: number of worker processes.
        prefetch_threads: number of threads that load batches in advance.
        samples_per_second: number of samples loaded per second after the start; None if this mode failed.
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
        """Return the measured rates of all modes, as part of a sentence."""
        rates = {(trial.num_workers, trial.prefetch_threads): trial.samples_per_second for trial in self.trials}
        alone, chosen = rates[0, 0], rates[self.num_workers, self.prefetch_threads]
        assert alone is not None and chosen is not None
        if not (self.num_workers or self.prefetch_threads):
            others = ", ".join(f"{trial} {_rate_of_trial(trial)}" for trial in self.trials[1:]) or "nothing else to try"
            return f"measured {alone:.0f} samples/s; {others}"
        return f"measured {chosen:.0f} samples/s against {alone:.0f} without"


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
    """Try several loading modes of ``dataset``, and return the fastest.

    The search first tries loading in this process without threads. Then the search tries increasing numbers of threads
    and of worker processes. If starting worker processes is not safe, or would take much of the time, the search omits
    them. The trials read random samples, or samples that the caller's sampler yields. The search restores the state of
    every random generator.

    Args:
        dataset: a map-style dataset with at least one sample.
        options: arguments of ``DataLoader``, by name, such as ``batch_size`` and ``collate_fn``.
        threads_allowed: whether several threads may read the dataset at once.
        most_workers: largest number of worker processes to try; None: as many as may help.
        seconds: approximate duration of the search in seconds.
        step: function that is called with each batch and imitates a training step; None: no function.
    """
    notes: list[str] = []
    with restore_generators_after(dataset, step, *options.values()):
        measuring = _Measuring(dataset, options, time.perf_counter() + seconds, step)
        alone = measuring.trial(0, 0, seconds / 4)
        trials = [alone]
        if alone.samples_per_second is None:
            raise measuring.errors[0]
        draws_freely = _draws_freely(dataset, options)
        if not draws_freely and not most_workers:
            notes.append("nothing is prefetched, because the sampler may draw random numbers during the epoch")
        else:
            cpus = max(cpus_per_rank(), 1)
            if threads_allowed:
                most = MOST_THREADS if measuring.waits else min(cpus, MOST_THREADS)
                _try_increasing(trials, measuring, seconds / 6, "prefetch_threads", most)
            most = MOST_WORKERS if measuring.waits else min(cpus, MOST_WORKERS)
            if most_workers is not None:
                most = most_workers
            refused = why_workers_cannot_start(options, measuring.left())
            if refused is not None and most:
                notes.append(refused)
            elif draws_freely:
                _try_increasing(trials, measuring, seconds / 6, "num_workers", most)
            else:  # with another number, the sampler would draw indices at other times, so only this number is tried
                trials.append(measuring.trial(most, 0, seconds / 6))
    best = alone
    for trial in trials[1:]:
        if trial.samples_per_second is not None and trial.samples_per_second > _WORTH * (best.samples_per_second or 0):
            best = trial
    return LoaderChoice(best.num_workers, best.prefetch_threads, tuple(trials), tuple(notes))


def _try_increasing(trials: list[LoadingTrial], measuring: _Measuring, seconds: float, what: str, most: int) -> None:
    """Try increasing numbers of threads or workers while loading gets faster and time is left.

    Args:
        trials: list of the modes that were tried so far. The function appends each new trial.
        measuring: the object that measures.
        seconds: duration of each trial in seconds.
        what: ``"prefetch_threads"`` or ``"num_workers"``.
        most: largest number to try.
    """
    before = trials[0].samples_per_second or 0.0
    # If loading waits for a disk or network, many workers help. So the trials do not begin with few workers.
    count = min(most, 8 if measuring.waits else 2)
    while 0 < count <= most and measuring.left() >= seconds:
        trial = measuring.trial(**{"num_workers": 0, "prefetch_threads": 0, what: count}, seconds=seconds)
        trials.append(trial)
        if trial.samples_per_second is None or trial.samples_per_second < _WORTH * before:
            return
        before, count = trial.samples_per_second, count * 2


class _Measuring:
    """Measures loading modes of one dataset until a deadline."""

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
        #: Whether loading leaves the CPU idle, because loading waits for a disk or network.
        self.waits = False
        self.errors: list[Exception] = []

    def left(self) -> float:
        """Return the seconds left until the deadline."""
        return self._until - time.perf_counter()

    def trial(self, num_workers: int, prefetch_threads: int, seconds: float) -> LoadingTrial:
        """Measure a loading mode for about ``seconds``.

        The number of measured batches is a multiple of the number of threads or workers.
        """
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
            rate = measure_loading_rate(make, at_once, seconds, until=self._until, step=self._step)
        except Exception as error:  # the error is the result of the trial
            self.errors.append(error)
            return LoadingTrial(num_workers, prefetch_threads, error=f"{type(error).__name__}: {error}")
        if rate.lost_workers:
            return LoadingTrial(num_workers, prefetch_threads, error="worker processes could not be used")
        if at_once == 1:
            self.waits = rate.cpu_share < WAITING
        samples = rate.batches * self._sampler.per_draw
        return LoadingTrial(num_workers, prefetch_threads, samples / rate.seconds, rate.first_s)


class EndlessIndices(Sampler[Any]):
    """A sampler without end, for measurements.

    The sampler yields random indices, from its own generator. If the caller passes a sampler, the indices are random
    choices from the first indices of this sampler.

    Args:
        sample_count: number of samples of the dataset, at least 1.
        options: arguments of ``DataLoader``, by name. Only ``batch_size``, ``sampler`` and ``batch_sampler`` are used.
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
        #: The first indices of the caller's sampler. For the dataset, other indices may be invalid.
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


def _draws_freely(dataset: Any, options: Mapping[str, Any]) -> bool:
    """Return whether the sampler can yield indices early, so that no random number of the training changes."""
    sampling = {name: options[name] for name in _SAMPLING if name in options}
    return batches_to_request_early(DataLoader(dataset, **sampling)) > 0
