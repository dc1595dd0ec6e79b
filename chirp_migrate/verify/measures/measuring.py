"""Measure one training of each entry point: waits for batches, memory and GPU use, and augmentation.

A wait lasts from the request of a batch to its arrival. A thread reads memory and GPU use in the background. After the
training, this module measures how long the augmentation of the datasets takes, and reads the migrated datasets in
worker processes. The timed rounds run without these measurements.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader, default_collate

from chirp_migrate.training.watch.augmentation_cost import time_with_and_without_augmentation
from chirp_migrate.training.watch.interception import Interception, LoaderIteratorWrapper
from chirp_migrate.training.watch.samples import (
    augmented_positions,
    can_read_samples,
    nested_class_names,
    unaugmented_dataset,
)
from chirp_migrate.verify.measures.metric_data import (
    AugmentationCost,
    EntryMeasures,
    PassTiming,
    UsageReading,
    VersionMeasures,
)
from chirp_migrate.verify.measures.worker_safety import Collate, check_workers, measure_loader_rates
from chirpid_patch import BatchedDataLoader, DataLoaderPerformanceMonitor
from chirpid_patch.loading.batch_timer import count_batch_samples
from chirpid_patch.machine.process_memory import MemoryReading

_INTERVAL_S = 0.1
_FOR_RATES = 0.35
"""Share of ``extra_s`` that is reserved for the last measurement: loading without training."""
_COST_ROUNDS = 3
_COST_BATCHES = 5
_LONGEST_COST_S = 2.0
"""Seconds after which no further round of timing augmentation begins, because datasets may be slow."""


@dataclass
class _LoaderDataset:
    """A dataset, with the batch size and ``collate_fn`` of its loader in the training."""

    dataset: Any
    collate: Collate
    batch_size: int
    batched: bool


@dataclass
class _EntryMeasurement:
    """The loader passes and datasets of one entry point."""

    walks: list[PassTiming] = field(default_factory=list)
    held: dict[str, _LoaderDataset] = field(default_factory=dict)
    trained_on: set[str] = field(default_factory=set)
    lost_workers: set[int] = field(default_factory=set)


class TrainingMeasurement(Interception):
    """Context manager under which :meth:`train` measures entry points. The results are in :attr:`found`.

    Args:
        worker_counts: numbers of worker processes with which to read each dataset; empty to start none.
        extra_s: seconds to measure the datasets of all entry points together, after the training. Measurements that
            would take longer are reported as not tried.
    """

    def __init__(self, worker_counts: Sequence[int], extra_s: float) -> None:
        super().__init__(self._measure)
        self.found = VersionMeasures()
        self._worker_counts = worker_counts
        self._rates_s = extra_s * _FOR_RATES if worker_counts else 0.0
        self._extra_s = extra_s - self._rates_s
        self._monitor = DataLoaderPerformanceMonitor()
        self.found.gpu = str(self._monitor.gpu_status())
        self._entry = _EntryMeasurement()
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._begun = 0.0
        self._reading_s = 0.0
        self._trained_s = 0.0
        self._slowest: tuple[float, _LoaderDataset] | None = None
        self._known: set[str] = set()

    def train(self, label: str, call: Callable[[], tuple[float, Any]]) -> float:
        """Train one entry point with ``call``, which returns its seconds and its result.

        Returns:
            The seconds of the training, without the seconds that the measurements took.
        """
        self.cover_new_classes()
        self._entry, self._reading_s = _EntryMeasurement(), 0.0
        self._numbers.clear()
        watching = _ResidentMemoryMonitor()
        with watching.watch(_INTERVAL_S) as usage:
            self._begun = time.perf_counter()
            seconds, value = call()
        del value
        seconds -= self._reading_s
        for sample, resident in zip(usage.samples, watching.resident, strict=True):
            memory, gpu = sample.memory, sample.gpu
            self.found.memory_kind = memory.kind if memory is not None else self.found.memory_kind
            point = UsageReading(
                self._trained_s + min(sample.seconds, seconds),
                None if memory is None else memory.bytes,
                resident,
                gpu.utilization_percent,
                gpu.memory_used_bytes,
            )
            self.found.usage.append(point)
        self._trained_s += seconds
        self.found.entries[label] = EntryMeasures(seconds, self._entry.walks, len(self._entry.lost_workers))
        return seconds

    def measure_datasets(self, label: str) -> None:
        """Measure the augmentation of the last entry point's datasets, and read these datasets in worker processes."""
        entry, self._entry = self._entry, _EntryMeasurement()  # passes over loaders of this module are not recorded
        waits = [wait for walk in entry.walks if walk.role == "train" for wait in walk.waits_s[1:]]
        wait_s = sum(waits) / len(waits) if waits else 0.0
        for name, held in entry.held.items():
            self._known.add(name)
            began = time.monotonic()
            until = began + self._extra_s
            try:
                if augmented_positions(held.dataset, held.collate):
                    cost = augmentation_cost(held.dataset, held.collate, held.batch_size, held.batched, until)
                    self.found.augmentation.append(cost)
                if self._worker_counts:
                    self.found.workers += check_workers(held.dataset, held.collate, self._worker_counts, until)
            except Exception as error:  # the dataset cannot be read by index, although its loader can read it
                self.found.unread[name] = f"{type(error).__name__}: {error}"
            else:
                if waits and name in entry.trained_on and (self._slowest is None or wait_s > self._slowest[0]):
                    self._slowest = (wait_s, held)  # the training waited longest for its batches
            self._extra_s -= time.monotonic() - began
        augmented = {cost.dataset for cost in self.found.augmentation}
        self.found.entries[label].augmentations = sorted(entry.trained_on & augmented)

    def finish(self) -> VersionMeasures:
        """Measure loading without training, for the dataset that loads slowest, and return all results.

        Call this method after the end of the context.
        """
        if self._worker_counts and self._slowest is not None:
            held = self._slowest[1]
            until = time.monotonic() + self._rates_s
            self.found.rates = measure_loader_rates(
                held.dataset, held.collate, held.batch_size, self._worker_counts, until
            )
        return self.found

    def _measure(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        if loader not in self._numbers:
            self._numbers[loader] = len(self._numbers)
        role = "train" if torch.is_grad_enabled() else "validation"
        walk = PassTiming(self._numbers[loader], role, self.clock(), self.clock())
        self._entry.walks.append(walk)
        dataset: Any = getattr(loader, "dataset", None)
        if can_read_samples(dataset):
            name = nested_class_names(dataset)
            if role == "train":
                self._entry.trained_on.add(name)
            if name not in self._known and (role == "train" or name not in self._entry.held):
                collate = default_collate if loader.batch_size is None else loader.collate_fn
                size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None) or 1
                self._entry.held[name] = _LoaderDataset(dataset, collate, size, isinstance(loader, BatchedDataLoader))
        over = False

        def around(advance: Callable[[], Any]) -> Any:
            """Time the wait for the batch."""
            nonlocal over
            asked = self.clock() if walk.waits_s else walk.begun_s
            try:
                batch = advance()
            except StopIteration:
                if not over:
                    over = True
                    self._end_pass(loader, walk)
                raise
            walk.ended_s = self.clock()
            walk.waits_s.append(walk.ended_s - asked)
            walk.samples += count_batch_samples(batch)
            return batch

        return LoaderIteratorWrapper(self, loader, start(), around)

    def clock(self) -> float:
        """Return the seconds since the beginning of the training call, without the time that the measurements took."""
        return time.perf_counter() - self._begun - self._reading_s

    def _end_pass(self, loader: Any, walk: PassTiming) -> None:
        """Record the memory at the end of a loader pass. The growth of memory is computed from these records."""
        walk.ended_s = self.clock()
        began = time.perf_counter()
        if getattr(loader, "lost_workers", False):
            self._entry.lost_workers.add(walk.loader)
        if walk.role == "train":
            memory = self._monitor.memory_status()
            walk.memory_bytes = None if memory is None else memory.bytes
        self._reading_s += time.perf_counter() - began


def augmentation_cost(
    dataset: Any, collate: Callable[[list[Any]], Any], batch_size: int, batched: bool, until: float
) -> AugmentationCost:
    """Time the loading of batches with and without augmentation, in this process, in at most three rounds.

    Args:
        dataset: an augmented dataset.
        collate: ``collate_fn`` of the loader.
        batch_size: samples per batch.
        batched: whether to load with ``chirpid_patch.BatchedDataLoader``, like the training; else with PyTorch's
            loader.
        until: time on the clock of ``time.monotonic`` after which no further round begins. One round always runs.
    """
    cost = AugmentationCost(nested_class_names(dataset))
    plain = unaugmented_dataset(dataset, collate)
    if plain is None:
        cost.reason = f"{type(dataset).__name__} has no version without augmentation that reads the same samples"
        return cost
    monitor = DataLoaderPerformanceMonitor()
    until = min(until, time.monotonic() + _LONGEST_COST_S)

    def batch_s(source: Any) -> float:
        loader: DataLoader[Any]
        if batched:
            loader = BatchedDataLoader(source, batch_size=batch_size, collate_fn=collate, prefetch_threads=0)
        else:
            loader = DataLoader(source, batch_size=batch_size, collate_fn=collate)
        return float(monitor.time_batch_loading(loader, _COST_BATCHES)["p50_batch_time"])

    cost.with_s, cost.without_s = time_with_and_without_augmentation(dataset, plain, batch_s, _COST_ROUNDS, until)
    return cost


class _ResidentMemoryMonitor(DataLoaderPerformanceMonitor):
    """A performance monitor that also records the resident memory at each reading."""

    def __init__(self) -> None:
        super().__init__()
        self.resident: list[int] = []

    def memory_status(self) -> MemoryReading | None:
        """Return the reading of the base class, and record the resident memory at the same time."""
        self.resident.append(resident_bytes())
        return super().memory_status()


def resident_bytes() -> int:
    """Return the resident memory of this process and its children in bytes; shared pages count once per process."""
    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.Error):  # the process has ended meanwhile
            total += process.memory_info().rss
    return total
