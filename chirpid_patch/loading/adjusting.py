"""Classes that choose the number of threads and worker processes while a training runs.

``LoadingController`` measures how long the training loop waits for batches, and how long its steps take. Within an
epoch, the controller measures whether threads make loading faster. Between epochs, ``WorkerCountChooser`` changes the
number of workers.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from chirpid_patch import thresholds
from chirpid_patch.loading.batch_timer import BatchTimer, TimedBatches
from chirpid_patch.loading.limits import MOST_THREADS
from chirpid_patch.machine.cpus import cpus_per_rank
from chirpid_patch.speed_comparison import costly_is_faster

#: Number of batches at the start of a training loop that are not measured, because the first steps are slower.
_IGNORED_BATCHES = 2
#: Number of batches that are measured before the controller decides whether to try threads.
_BATCHES_BEFORE_TRIAL = 4
#: Number of batches after which the controller checks whether training steps still take the same time.
_BATCHES_BETWEEN_CHECKS = 16
#: Number of batches in a block of a trial, and number of blocks in a trial. Blocks with threads and blocks without
#: threads alternate.
_BATCHES_PER_BLOCK = 5
_BLOCKS_PER_TRIAL = 4
#: Seconds that a thread waits before it loads a batch, if training steps are long enough. Right after a batch arrives,
#: the training loop runs Python code. Without the pause, this code would have to wait for the interpreter lock.
_PAUSE_SECONDS = 5e-4


class ClockReadings(NamedTuple):
    """The values of three clocks in seconds: wall time, CPU time of this thread, and CPU time of the whole process."""

    wall: float
    thread: float
    process: float

    @classmethod
    def now(cls) -> ClockReadings:
        """Return the current values of the clocks."""
        return cls(time.perf_counter(), time.thread_time(), time.process_time())

    def __sub__(self, earlier: ClockReadings) -> ClockReadings:
        return ClockReadings(self.wall - earlier.wall, self.thread - earlier.thread, self.process - earlier.process)


@dataclass(frozen=True)
class _LoopStep:
    """The times of a training step (``away``) and of the wait for the next batch (``wait``)."""

    away: ClockReadings
    wait: ClockReadings

    @property
    def period(self) -> float:
        return self.away.wall + self.wait.wall


class LoadingController:
    """Measure the waits and steps of a training loop, and choose how many threads and workers load its batches.

    Loading begins without threads. If a CPU is idle during the first batches, the controller tries threads while the
    loop continues. In this trial, the controller measures batches with threads and batches without threads in turns.
    After the trial, the controller keeps the threads if the time from batch to batch is clearly shorter with threads.
    If the duration of the training steps changes later, the controller measures again. The batches are the same with
    and without threads.

    Args:
        threads: fixed number of threads that load batches in advance; None: the controller measures whether threads
            help.
        may_wait: whether loading may wait for a disk or a network. If True, the controller may use more threads than
            CPUs.
    """

    def __init__(self, threads: int | None, *, may_wait: bool = False) -> None:
        #: The number of threads that load batches in advance, and the reason for this number.
        self.threads, self.why = (0, "no batch has been measured yet") if threads is None else (threads, "given")
        #: Seconds that a thread waits before it loads a requested batch.
        self.pause = 0.0
        #: The object that chooses the number of worker processes; None if the number is fixed.
        self.worker_count: WorkerCountChooser | None = None
        self._is_fixed = threads is not None
        self._may_wait = may_wait
        self._timer = BatchTimer(ClockReadings.now)
        self._step: ClockReadings | None = None  # the time of the last training step
        self._is_first = True  # whether the next batch is the first of an epoch
        self._is_decided = False
        self._away = 0.0
        self._candidate = 0
        self._unwatched = _IGNORED_BATCHES  # number of further batches that are not measured
        self._watch_after = _BATCHES_BEFORE_TRIAL
        self._watched: list[_LoopStep] = []
        self._trial: dict[int, list[float]] = {}
        self._to_skip = 0
        self._running: list[weakref.ref[TimedBatches]] = []
        self._load: EpochWaits | None = None  # the waits of the last epoch

    # -- within an epoch

    def begin_epoch(self) -> None:
        """Record that an epoch begins.

        The time since the last batch of the previous epoch does not count as a training step. Measurements start at the
        second batch.
        """
        self._timer.restart()
        self._step, self._is_first = None, True

    def batch_requested(self) -> None:
        """Record that the loop requests a batch."""
        if not self._is_first and not self._is_fixed and not self._unwatched:
            self._step = self._timer.batch_requested()

    def batch_delivered(self, threads: int) -> None:
        """Record that the requested batch has arrived; ``threads`` is the number of loading threads, or 0."""
        if self._is_first or self._is_fixed:
            self._is_first = False
            return
        if self._unwatched:
            self._unwatched -= 1
            return
        wait = self._timer.batch_arrived()
        if self._step is not None and wait is not None:  # None for the first batch of an epoch
            self._observe(_LoopStep(self._step, wait), threads)

    def _observe(self, step: _LoopStep, threads: int) -> None:
        if self._is_decided:
            self._restart_if_changed(step)
            return
        if self._candidate:
            self._try(step, threads)
            return
        self._watched.append(step)
        if len(self._watched) == _BATCHES_BEFORE_TRIAL:
            self._begin_trial_if_useful()

    def _begin_trial_if_useful(self) -> None:
        """Begin a trial of threads if the measured waits and idle CPUs show that threads could help.

        Otherwise, measure again after more batches.
        """
        steps, self._watched = self._watched, []
        load = median(step.wait.wall for step in steps)
        away = median(step.away.wall for step in steps)
        if load < max(thresholds.LEAST_LOADING_SECONDS, thresholds.TIED_IN_TRAINING * (load + away)):
            self._postpone_trial("loading takes almost no time")
            return
        cpus = max(cpus_per_rank(), 1)
        waiting = self._may_wait and median(step.wait.thread / step.wait.wall for step in steps) < thresholds.WAITING
        if not waiting and away > load / 2 and _idle_cpus(steps, cpus) < thresholds.LEAST_IDLE_CPUS:
            self._postpone_trial("the training keeps every CPU busy")
            return
        most = MOST_THREADS if waiting else min(cpus, MOST_THREADS)
        wanted = math.ceil(load / max(away, load / most))
        if most < 2 and away < load / 2:
            self._postpone_trial("there is one CPU, and the training uses it")
            return
        self._candidate = max(1, min(most, wanted))
        self.pause = _PAUSE_SECONDS if self._candidate == 1 and away > load + 4 * _PAUSE_SECONDS else 0.0
        self._away = away
        self._trial = {0: [], self._candidate: []}
        self._switch(self._candidate)

    def _restart_if_changed(self, step: _LoopStep) -> None:
        """Measure again if the duration of the training steps has changed since the decision about threads."""
        self._watched.append(step)
        if len(self._watched) < _BATCHES_BETWEEN_CHECKS:
            return
        away, self._watched = median(step.away.wall for step in self._watched), []
        factor = thresholds.CHANGED_STEPS
        if not self._away / factor - _PAUSE_SECONDS <= away <= factor * self._away + _PAUSE_SECONDS:
            self._is_decided, self._candidate, self.threads, self.pause = False, 0, 0, 0.0
            self._watch_after = _BATCHES_BEFORE_TRIAL

    def _postpone_trial(self, why: str) -> None:
        """Wait for some batches before the next measurement; ``why`` is the reason why no trial begins now.

        Each call waits for four times as many batches as the previous call.
        """
        self.why = why
        self._watch_after *= 4
        self._unwatched = self._watch_after
        self._timer.restart()

    def _switch(self, threads: int) -> None:
        self.threads = threads
        self._to_skip = self._candidate + 2  # batches that the previous number of threads still affects

    def _try(self, step: _LoopStep, threads: int) -> None:
        if self._to_skip or threads != self.threads:
            self._to_skip = max(self._to_skip - 1, 0)
            return
        taken = self._trial[threads]
        taken.append(step.period)
        if len(taken) % _BATCHES_PER_BLOCK:
            return
        alone, ahead = (self._trial[mode] for mode in (0, self._candidate))
        if len(alone) + len(ahead) < _BLOCKS_PER_TRIAL * _BATCHES_PER_BLOCK:
            self._switch(self._candidate if threads == 0 else 0)
            return
        ratio = median(ahead) / median(alone)
        self.threads = self._candidate if costly_is_faster(ratio, 1.0, thresholds.TIED_IN_TRAINING) else 0
        measured = f"the time from batch to batch is {ratio:.2f} times as long as without threads"
        self.why = f"measured with prefetch_threads={self._candidate}: {measured}"
        self._is_decided = True
        self._watched, self._trial = [], {}

    # -- between epochs

    def watch(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator over ``batches``, the batches of an epoch.

        The iterator records the waits. ``next_workers`` chooses the number of workers from these waits.
        """
        watched = TimedBatches(batches, self._end_epoch)
        self._running.append(weakref.ref(watched))
        return watched

    def next_workers(self) -> int | None:
        """Return the number of workers for the next epoch; None: the number does not change.

        The result is None if the number is fixed, if no epoch has ended since the last decision, or while another
        epoch is running.
        """
        self._running = [ref for ref in self._running if (batches := ref()) is not None and not batches.over]
        load = self._load
        if load is None or self._running or self.worker_count is None:
            return None
        self._load = None
        return self.worker_count.observe(load)

    def _end_epoch(self, epoch: TimedBatches) -> None:
        self._load = EpochWaits.of(epoch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": []}


def _idle_cpus(steps: list[_LoopStep], cpus: int) -> float:
    """Return the number of CPUs that were idle on average during training steps."""
    wall = sum(step.away.wall for step in steps)
    return cpus - sum(step.away.process for step in steps) / max(wall, 1e-9)


@dataclass(frozen=True)
class EpochWaits:
    """The waits of the training for the batches of an epoch.

    The first batch does not count, because the workers start during the wait for this batch.

    Attributes:
        waited_s: seconds that the training waited for batches.
        elapsed_s: seconds from the arrival of the first batch to the arrival of the last batch.
        batches: number of batches, without the first batch.
    """

    waited_s: float
    elapsed_s: float
    batches: int

    @classmethod
    def of(cls, epoch: TimedBatches) -> EpochWaits:
        """Return the waits of an epoch that has ended."""
        waited = sum(epoch.waits[1:])
        return cls(waited, waited + sum(epoch.steps[:-1]), max(len(epoch.waits) - 1, 0))

    @property
    def share_waited(self) -> float:
        """Return the share of the epoch in which the training waited, from 0 to 1."""
        return self.waited_s / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def batch_s(self) -> float:
        """Return the mean time from batch to batch in seconds."""
        return self.elapsed_s / self.batches


class WorkerCountChooser:
    """Choose the number of workers for the next epoch from the waits in previous epochs.

    * If the training waited for more than 10 % of an epoch, the number is doubled (0 becomes 2).
    * If the training waited for less than 1 % of each of three consecutive epochs, the number is halved.
    * A larger number must reduce the time from batch to batch by more than 5 %. A smaller number must not reduce the
      speed by more than 5 %. Otherwise the loader returns to the previous number, and does not try the worse number
      again.
    * An epoch of fewer than 8 batches does not change the number.

    The module ``thresholds`` defines these percentages and counts.

    Args:
        workers: number of workers of the first epoch.
        most: largest number of workers that is tried.
    """

    def __init__(self, workers: int, most: int) -> None:
        self.most = most
        self.workers = min(workers, most)
        #: The reason for the current number of workers, as a part of a sentence.
        self.why = "no epoch has ended yet"
        self._refused: set[int] = set()
        self._trial: tuple[int, float] | None = None  # the previous number, and its seconds from batch to batch
        self._idle = 0

    def observe(self, load: EpochWaits) -> int:
        """Record the waits of an epoch, and return the number of workers for the next epoch."""
        if load.batches < thresholds.LEAST_EPOCH_BATCHES or load.elapsed_s <= 0:
            return self.workers
        if self._trial is not None:
            before, batch_s = self._trial
            self._trial = None
            ratio = load.batch_s / batch_s  # the speed before / the speed now
            if not costly_is_faster(ratio, 1.0) if self.workers > before else costly_is_faster(1.0, ratio):
                self._refused.add(self.workers)
                self.why = (
                    f"back to {before} workers: with {self.workers} workers, a batch took {ratio:.2f} times as long as "
                    f"with {before}"
                )
                self.workers = before
                return before
        waited = load.share_waited
        self._idle = self._idle + 1 if waited < thresholds.LOWER_WORKERS_BELOW else 0
        if waited > thresholds.RAISE_WORKERS_ABOVE:
            self._try(
                min(max(2 * self.workers, 2), self.most),
                load,
                f"the training waited {waited:.0%} of an epoch for batches",
            )
        elif self._idle >= thresholds.LOWER_WORKERS_AFTER:
            self._idle = 0
            self._try(self.workers // 2, load, f"the training waited only {waited:.1%} of an epoch for batches")
        return self.workers

    def _try(self, workers: int, load: EpochWaits, reason: str) -> None:
        if workers == self.workers or workers in self._refused:
            return
        self.why = f"{workers} instead of {self.workers}: {reason}"
        self._trial = (self.workers, load.batch_s)
        self.workers = workers
