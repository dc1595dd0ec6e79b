"""Check migrated datasets in worker processes: every sample arrives once, has equal values, and no worker crashes.

PyTorch's own loader reads the datasets, with the default start method of the system. The loader of ``chirpid_patch``
could hide the error of a worker.
"""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from torch.utils.data import DataLoader, Dataset

from chirp_migrate.training.errors import first_message_line
from chirp_migrate.training.watch.samples import (
    augmented_positions,
    differing_positions,
    leaf_type,
    leaves_by_position,
    nested_class_names,
    read_samples,
)
from chirp_migrate.verify.measures.metric_data import LoaderRate, WorkerCheck
from chirpid_patch import DataLoaderPerformanceMonitor

_BATCHES_PER_WORKER = 2
_BATCH = 4
_RATE_BATCHES = 8
_BATCHES_AHEAD = 2
"""Number of batches that each worker loads ahead: PyTorch's default for ``prefetch_factor``."""

_FETCHES_BEFORE_BLAME = 20
_TIMEOUT_S = 60.0
_SECONDS_TO_END = 1.0
"""Seconds to wait for the end of a worker whose connection broke."""

_START_S = {"fork": 0.03, "forkserver": 2.5, "spawn": 2.5}
"""Dictionary: start method → least number of seconds to start a worker, mostly for its imports."""

Collate = Callable[[list[Any]], Any]


class _IndexedDataset(Dataset[Any]):
    """A wrapper of a dataset that adds the indices of the samples to each batch."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitems__(self, indices: list[int]) -> tuple[list[int], list[Any]]:
        return list(indices), read_samples(self.dataset, indices)


def _collate_with_indices(collate: Collate, numbered: tuple[list[int], list[Any]]) -> tuple[list[int], Any]:
    """Collate the samples with ``collate``, and return the indices with the batch."""
    indices, samples = numbered
    return indices, collate(samples)


def check_workers(dataset: Any, collate: Collate, worker_counts: Sequence[int], until: float) -> list[WorkerCheck]:
    """Read a part of the dataset with each number of workers, and compare the batches with batches of this process.

    Each worker reads two batches, and no sample is read twice. For augmented values, only types and shapes must be
    equal.

    Args:
        dataset: the dataset to read.
        collate: ``collate_fn`` of the loader.
        worker_counts: numbers of worker processes.
        until: time on the clock of ``time.monotonic``. If a number of workers would probably take longer, the function
            skips this number.
    """
    method = multiprocessing.get_context().get_start_method()
    name = nested_class_names(dataset)
    random = augmented_positions(dataset, collate)
    trials = []
    for workers in worker_counts:
        size = min(_BATCH, max(1, len(dataset) // max(1, workers * _BATCHES_PER_WORKER)))
        began = time.perf_counter()
        _read_batch(dataset, collate, range(min(size, len(dataset))))
        expected_s = (2 * (time.perf_counter() - began) * _BATCHES_PER_WORKER + _START_S[method]) * max(1, workers)
        if problem := _why_skipped(expected_s, until):
            trials.append(WorkerCheck(name, workers, method, 0, problem, tried=False))
            continue
        indices = list(range(min(len(dataset), size * max(1, workers) * _BATCHES_PER_WORKER)))
        found = _batch_problem(dataset, collate, workers, size, indices, random)
        trials.append(WorkerCheck(name, workers, method, len(indices), found))
    return trials


def _batch_problem(
    dataset: Any, collate: Collate, workers: int, size: int, indices: list[int], random: set[str]
) -> str | None:
    """Return the first problem of the batches that worker processes read, as a sentence; None without a problem."""
    seen: list[int] = []
    started: list[multiprocessing.process.BaseProcess] = []
    try:
        with _ignore_worker_warning():
            loader: DataLoader[Any] = DataLoader(
                _IndexedDataset(dataset),
                batch_size=size,
                sampler=indices,
                num_workers=workers,
                collate_fn=partial(_collate_with_indices, collate),
                timeout=_TIMEOUT_S if workers else 0,
            )
            running = set(multiprocessing.active_children())
            batches = iter(loader)
            started += set(multiprocessing.active_children()) - running
        for numbers, batch in batches:
            seen += numbers
            wrong = _batch_difference(dataset, collate, numbers, batch, random)
            if wrong is not None:
                return wrong
    except Exception as error:  # the error of a dataset or worker is the problem to report
        if started and isinstance(error, ConnectionError | EOFError):  # a worker may be ending at this moment
            _wait_for_an_end(started)
        dead = [worker for worker in started if worker.exitcode]
        if dead:  # the exit of the worker caused the error
            return f"a worker exited unexpectedly, with exit code {dead[0].exitcode}"
        return f"{type(error).__name__}: {first_message_line(error) or 'no message'}"
    if seen != indices:
        lost = len(set(indices) - set(seen))
        return (
            f"{lost} of {len(indices)} samples are missing, {len(seen) - len(set(seen))} arrive twice, or the order "
            "differs"
        )
    return None


def _wait_for_an_end(workers: Sequence[multiprocessing.process.BaseProcess]) -> None:
    """Wait until one of ``workers`` has ended, for up to ``_SECONDS_TO_END`` seconds."""
    with suppress(RuntimeError):  # PyTorch's handler of SIGCHLD raises it when the worker has ended
        ended = wait([worker.sentinel for worker in workers], _SECONDS_TO_END)
        for worker in workers:
            if worker.sentinel in ended:
                worker.join(_SECONDS_TO_END)  # a process closes its files shortly before it ends


def _batch_difference(dataset: Any, collate: Collate, numbers: list[int], batch: Any, random: set[str]) -> str | None:
    """Return how a batch differs from the same batch read in this process; None if both are equal.

    Positions in the batch that vary from read to read, because of augmentation, are added to ``random``.
    """
    got, here = leaves_by_position(batch), _read_batch(dataset, collate, numbers)
    wrong = differing_positions(got, here)
    if wrong - random:  # earlier reads may have missed a rare augmentation
        again = (_read_batch(dataset, collate, numbers) for _ in range(_FETCHES_BEFORE_BLAME))
        random |= {place for other in again for place in differing_positions(here, other)}
    wrong = {place for place in wrong if place not in random or leaf_type(got.get(place)) != leaf_type(here.get(place))}
    if not wrong:
        return None
    return (
        f"samples {numbers[0]} to {numbers[-1]}: {min(wrong) or 'the batch'} differs from the dataset's sample in "
        "this process"
    )


def _read_batch(dataset: Any, collate: Collate, numbers: Sequence[int]) -> dict[str, Any]:
    """Read the samples ``numbers`` in this process, and return the values of the collated batch by their position."""
    return leaves_by_position(collate(read_samples(dataset, numbers)))


def _why_skipped(expected_s: float, until: float) -> str:
    """Return why a check of ``expected_s`` seconds is skipped; an empty string if the check ends before ``until``."""
    if time.monotonic() + expected_s <= until:
        return ""
    return f"not tried: the check takes about {expected_s:.0f} s, more than the remaining time"


@contextmanager
def _ignore_worker_warning() -> Iterator[None]:
    """Suppress PyTorch's warning that a loader has more workers than the machine has CPUs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield


def measure_loader_rates(
    dataset: Any, collate: Collate, batch_size: int, worker_counts: Sequence[int], until: float
) -> list[LoaderRate]:
    """Measure the samples per second of PyTorch's loader with each number of workers, and of the factory's loader.

    The factory is ``chirpid_patch.OptimalDataLoaderFactory``. All loaders read the same samples in the same order. A
    small dataset is read several times. Batches that workers load before the measurement begins do not count (see
    :meth:`chirpid_patch.DataLoaderPerformanceMonitor.time_batch_loading`). The loaders have more batches than are
    measured, so that all workers are busy until the end of the measurement.
    """
    monitor = DataLoaderPerformanceMonitor()
    method = multiprocessing.get_context().get_start_method()
    name = nested_class_names(dataset)
    began = time.perf_counter()
    _read_batch(dataset, collate, [index % len(dataset) for index in range(batch_size)])
    batch_s = time.perf_counter() - began
    wanted = [("factory", 0), *(("plain", workers) for workers in worker_counts)]
    found = []
    for kind, workers in wanted:
        ahead = _BATCHES_AHEAD * workers
        measured = _RATE_BATCHES + ahead
        batches = 2 + ahead + measured + ahead
        expected_s = batches * batch_s + workers * _START_S[method]
        if problem := _why_skipped(expected_s, until):
            found.append(LoaderRate(kind, name, workers, None, problem))
            continue
        order = [number % len(dataset) for number in range(batches * batch_size)]
        options: dict[str, Any] = {"loader": kind, "sampler": order, "collate_fn": collate}
        if kind == "plain":
            options.update(num_workers=workers, persistent_workers=workers > 0)
        with _ignore_worker_warning():
            figures = monitor.benchmark_configurations(
                dataset, batch_size, [options], num_batches=measured, rounds=1, verbose=False
            )["config_1"]
        error = figures.get("error")
        found.append(LoaderRate(kind, name, workers, figures.get("samples_per_second"), error))
    return found
