"""Divide a training call into epochs, time each epoch, and end the call after enough epochs.

The class :class:`.EpochDetector` decides when an epoch begins. The pages docs/verify.md and docs/verify-measures.md
define epochs, start-up time and the measured values.
"""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from chirp_migrate.training.watch.epoch_detector import EpochDetector, StopTraining
from chirp_migrate.training.watch.interception import Interception, LoaderIteratorWrapper
from chirp_migrate.verify.spec import EntryPointTiming
from chirpid_patch import DataLoaderPerformanceMonitor
from chirpid_patch.device.moving import map_parts
from chirpid_patch.loading.batch_timer import count_batch_samples
from chirpid_patch.machine.nvml import GpuProbe

LONGEST_VISIT = 6
"""Largest number of epochs after the first epoch that one round times. If epochs are long, a round times fewer epochs.
"""

_ENOUGH_S = 0.2

_MOST_WAITS = 400
"""Largest number of waits for batches that one timing stores, so that the report stays small."""

_OF_BATCHES = ("samples", "batches", "waits_s", "first_waits_s", "waited_s")
"""Fields of :class:`.EntryPointTiming` to which each epoch after the first epoch adds its values."""

FOR_ALL_S = 5.0
"""Seconds for the timing of all later epochs (after the first) of all entry points of a process together.

Each entry point gets a share of this time, in proportion to the number of epochs in the full training that the user
would run.
"""


class RepeatedBatchLoading(Interception):
    """Context manager for zero-cost loading: a loader yields the same batch from memory again and again.

    The number and the sizes of the batches are the same as without this context. Loaders without ``batch_size`` (for
    example with a ``batch_sampler``), and loaders whose sampler has no length (iterable datasets), load as usual.

    Attributes:
        is_active: whether loaders repeat one batch now. If False, loaders load as usual.
        making_s: seconds for loading the batches that are then repeated. :class:`EpochTimer` does not count this time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_active = True
        self.making_s = 0.0

    def _make_iterator(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        if not self.is_active or loader.batch_size is None or not hasattr(loader.sampler, "__len__"):
            return start()  # unknown batches: load as usual, so the headroom is underestimated
        return self._batches(loader)

    def _batches(self, loader: Any) -> Iterator[Any]:
        began = time.perf_counter()
        total, size = len(loader.sampler), loader.batch_size
        if total == 0:
            return
        batch = loader.collate_fn([loader.dataset[index] for index in islice(iter(loader.sampler), size)])
        self.making_s += time.perf_counter() - began
        whole, rest = divmod(total, size)
        for _ in range(whole):
            yield batch
        if rest and not loader.drop_last:
            yield map_parts(batch, lambda part: part[:rest] if isinstance(part, Tensor) and part.ndim > 0 else part)


class EpochTimer(Interception):
    """Context manager in which :meth:`time` divides a training call into epochs, and times each epoch.

    Several contexts may replace ``iter(loader)``. The context that was entered last runs first. Enter first contexts
    such as :class:`RepeatedBatchLoading`, then this context, and :class:`.SimulatedSteps` last. A new epoch then begins
    before the other contexts use the loader, and waits for batches do not include simulated steps.

    Args:
        turn: function that is called after each epoch, for example to wait for the next turn of this process. The
            duration of this call is not part of any epoch.
        least: smallest number of epochs to time, in addition to the first epoch.
        cached: context of zero-cost loading, in which one more epoch is timed at the end; None to time no such epoch.
        most: largest number of epochs to time, in addition to the first epoch.
    """

    def __init__(
        self,
        turn: Callable[[], None],
        least: int = 1,
        cached: RepeatedBatchLoading | None = None,
        most: int = LONGEST_VISIT,
    ) -> None:
        super().__init__()
        self._turn = turn
        self._least = least
        self._most = max(least, most)
        self._enough_s = _ENOUGH_S
        self._times_cached = cached is not None
        self._cached = cached or RepeatedBatchLoading()
        self._cached.is_active = False
        self._is_timing = False
        self._pacing = EpochDetector()
        self._gpus = GpuProbe()
        self._reset()

    def time(self, call: Callable[[], Any], enough_s: float = 0.0, *, reads_memory: bool = False) -> EntryPointTiming:
        """Run a training call until enough epochs are timed, and return its timing.

        Args:
            call: function without parameters that runs the training.
            enough_s: seconds that the epochs after the first epoch must take in total; values below 0.2 count as 0.2.
                The timing ends when this time is reached and at least ``least`` of these epochs are timed. The timing
                also ends when ``most`` of these epochs are timed.
            reads_memory: whether to measure the memory of this process and its workers in the first epoch. A
                measurement may take 0.1 s, which is not part of the epoch.
        """
        self._reset()
        self._enough_s = max(_ENOUGH_S, enough_s)
        self._reads_memory = reads_memory
        self.cover_new_classes()
        self._start_clock()
        self._is_timing = True
        try:
            with self._pacing, suppress(StopTraining):
                value = call()
                self._visit.rest_s = self._elapsed_seconds()
                del value
        finally:
            self._is_timing = False
        self._cached.is_active = False
        visit = self._visit
        if not self._pacing.later:
            self._count_as_start_up(visit.rest_s)
            visit.rest_s = 0.0
        later = len(visit.epochs_s)
        visit.samples /= max(1, later)
        visit.batches /= max(1, later)
        if len(visit.waits_s) > _MOST_WAITS:
            # Not every n-th wait, because with n workers, every n-th wait is long.
            visit.waits_s = random.Random(0).sample(visit.waits_s, _MOST_WAITS)
        self._pacing = EpochDetector()  # the previous detector would keep the datasets in memory
        return visit

    def _reset(self) -> None:
        self._visit = EntryPointTiming()
        self._pacing = EpochDetector()
        self._over = False
        self._epoch = EntryPointTiming()
        self._lost: weakref.WeakSet[Any] = weakref.WeakSet()
        self._reads_memory = False
        self._stopped_s = 0.0

    def _make_iterator(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        if not self._is_timing:
            return start()
        if self._pacing.begins_epoch(loader) or self._over:
            self._end_epoch()
        last = self._number_of_batches(loader) if self._reads_memory and not self._pacing.later else None
        trains, batches, begun = torch.is_grad_enabled(), 0, time.perf_counter()

        def around(advance: Callable[[], Any]) -> Any:
            """Take a batch, and record how long the training waited for the batch.

            The wait for the first batch of an iteration begins at ``iter(loader)``.
            """
            nonlocal batches
            asked = time.perf_counter() if batches else begun
            try:
                batch = advance()
            except StopIteration:
                if getattr(loader, "lost_workers", False) and loader not in self._lost:
                    self._lost.add(loader)
                    self._visit.lost_workers += 1
                raise
            wait_s, epoch = time.perf_counter() - asked, self._epoch
            if trains:
                (epoch.waits_s if batches else epoch.first_waits_s).append(wait_s)
            epoch.waited_s += wait_s
            epoch.samples += count_batch_samples(batch)
            epoch.batches += 1
            batches += 1
            if batches == last:
                self._read_memory()
            return batch

        return LoaderIteratorWrapper(self, loader, start(), around)

    def _end_epoch(self) -> None:
        seconds, visit = self._elapsed_seconds(), self._visit
        if self._over:
            raise StopTraining
        if self._pacing.later == 1:
            self._count_as_start_up(seconds)
        elif self._cached.is_active:
            visit.cached_s.append(seconds)
        else:
            visit.epochs_s.append(seconds)
            for name in _OF_BATCHES:
                setattr(visit, name, getattr(visit, name) + getattr(self._epoch, name))
            self._read_gpus()
        is_long = sum(visit.epochs_s) >= self._enough_s
        if self._pacing.is_over(1 + (self._least if is_long else self._most)):
            if visit.cached_s or not self._times_cached:
                self._over = True
                raise StopTraining
            self._cached.is_active = True
        self._turn()
        self._start_clock()

    def _count_as_start_up(self, seconds: float) -> None:
        """Count ``seconds``, and all epochs timed so far, as start-up time.

        Call this method at the end of the first epoch, or at the end of a training call without a second epoch. Epochs
        that were timed earlier were only iterations before the training, for example to compute a mean.
        """
        visit, empty = self._visit, EntryPointTiming()
        visit.start_s += sum(visit.epochs_s) + seconds
        for name in ("epochs_s", "cached_s", "gpu_percent", *_OF_BATCHES):
            setattr(visit, name, getattr(empty, name))
        self._cached.is_active = False

    def _start_clock(self) -> None:
        self._epoch = EntryPointTiming()
        self._stopped_s = 0.0
        _finish_device()
        self._cached.making_s = 0.0
        self._began = time.perf_counter()

    def _elapsed_seconds(self) -> float:
        _finish_device()
        return time.perf_counter() - self._began - self._stopped_s - self._cached.making_s

    def _number_of_batches(self, loader: Any) -> int | None:
        """Return the number of batches in an iteration over ``loader``; None if this number is not known.

        The clock of the epoch stops during this method, so the time that ``len(loader)`` takes does not count.
        """
        if isinstance(getattr(loader, "dataset", None), IterableDataset):
            return None  # after `len(loader)`, PyTorch warns if the loader yields more batches
        began = time.perf_counter()
        try:
            return len(loader)
        except Exception:  # the user's `__len__` may raise any error, and the training may never call it
            return None
        finally:
            self._stopped_s += time.perf_counter() - began

    def _read_memory(self) -> None:
        """Measure the memory at the last batch of an iteration, when the workers still run but load nothing more."""
        _finish_device()  # otherwise, the GPU would continue its work while the clock is stopped
        began = time.perf_counter()
        memory = DataLoaderPerformanceMonitor().memory_status()
        if memory is not None:
            self._visit.memory_bytes = max(memory.bytes, self._visit.memory_bytes or 0)
            self._visit.memory_kind = memory.kind
        self._stopped_s += time.perf_counter() - began

    def _read_gpus(self) -> None:
        if not torch.cuda.is_available():
            return
        percent = self._gpus.read().utilization_percent
        if percent is not None:
            self._visit.gpu_percent.append(percent)
        # Not from NVML, which would also count the memory of the other version's process on the same GPUs.
        self._visit.gpu_bytes = sum(map(torch.cuda.max_memory_reserved, range(torch.cuda.device_count())))


def _finish_device() -> None:
    """Wait until the GPU (CUDA, MPS or another device) has finished its work, so that the epoch includes this work."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
