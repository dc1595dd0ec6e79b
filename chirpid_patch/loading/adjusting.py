"""The number of threads and worker processes of one training loop, decided by its waits and steps.

``LoadController`` watches the loop and tries threads within an epoch. Workers follow the load between epochs
(``WorkerCount``).
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from chirpid_patch.loading.batch_timer import BatchTimer, TimedBatches
from chirpid_patch.loading.limits import MOST_THREADS, WAITING
from chirpid_patch.machine.cpus import rank_cpus

#: The first batches of a loop include the warm-up and show nothing.
_IGNORED = 2
_WATCHED = 4
#: Number of batches after which a decision is checked: do the loop's steps still take the same time?
_LOOKED_AT = 16
#: Number of batches to measure with and without threads before the comparison, twice in turns.
_BLOCK = 5
_BLOCKS = 4
#: Threads must shorten the time from batch to batch at least to this part of it.
_WORTH = 0.9
#: Loading that takes less than this (seconds, or share of the time from batch to batch) is not adjusted.
_LEAST_SECONDS = 2e-4
_LEAST_PART = 0.03
#: Seconds a thread waits before it loads, where there is time: the loop goes on in Python with the batch it has just
#: been given, and would have to wait for the interpreter lock again and again.
_PAUSE = 5e-4


class Clocks(NamedTuple):
    """Seconds of wall time, of this thread's CPU time, and of the CPU time of the whole process."""

    wall: float
    thread: float
    process: float

    @classmethod
    def now(cls) -> Clocks:
        """Return the current readings."""
        return cls(time.perf_counter(), time.thread_time(), time.process_time())

    def __sub__(self, earlier: Clocks) -> Clocks:
        return Clocks(self.wall - earlier.wall, self.thread - earlier.thread, self.process - earlier.process)


@dataclass(frozen=True)
class _LoopStep:
    """One step of the loop: the training step, and then the wait for the next batch."""

    away: Clocks
    wait: Clocks

    @property
    def period(self) -> float:
        return self.away.wall + self.wait.wall


class LoadController:
    """Watch the waits and steps of one loader's loop, and decide how many threads and workers load for it.

    Loading begins without threads. If the first batches show an idle CPU, the controller compares threads with none, in
    turns, in the running loop. It keeps the mode with the shorter time from batch to batch, until the duration of
    training steps changes. Batches are the same either way.

    Args:
        threads: number of prefetching threads, without worker processes; None tries whether they help.
        may_wait: whether loading may wait for something other than a CPU or memory, such as a disk, so that more
            threads than CPUs can help.
    """

    def __init__(self, threads: int | None, *, may_wait: bool = False) -> None:
        #: The number of threads that load ahead in this process, and the reason.
        self.threads, self.why = (0, "no batches seen yet") if threads is None else (threads, "given")
        #: Seconds that a thread waits before it loads a requested batch.
        self.pause = 0.0
        #: Decides on worker processes; None where their number is fixed.
        self.worker_count: WorkerCount | None = None
        self._is_fixed = threads is not None
        self._may_wait = may_wait
        self._timer = BatchTimer(Clocks.now)
        self._step: Clocks | None = None  # the time of the loop for the previous batch
        self._is_first = True  # the next batch is the first of an epoch
        self._settled = False
        self._away = 0.0
        self._candidate = 0
        self._unwatched = _IGNORED  # number of coming batches that are not measured
        self._watch_after = _WATCHED
        self._watched: list[_LoopStep] = []
        self._trial: dict[int, list[float]] = {}
        self._to_skip = 0
        self._running: list[weakref.ref[TimedBatches]] = []
        self._load: EpochLoad | None = None  # the load of the last epoch

    # -- within an epoch

    def begin_epoch(self) -> None:
        """Start an epoch: the time since the last batch is no step, and timing starts at the second batch."""
        self._timer.restart()
        self._step, self._is_first = None, True

    def batch_requested(self) -> None:
        """Record that the loop requests a batch."""
        if not self._is_first and not self._is_fixed and not self._unwatched:
            self._step = self._timer.ask()

    def batch_delivered(self, threads: int) -> None:
        """Record that the requested batch has arrived, loaded by ``threads`` prefetching threads (0: none)."""
        if self._is_first or self._is_fixed:
            self._is_first = False
            return
        if self._unwatched:
            self._unwatched -= 1
            return
        wait = self._timer.arrive()
        if self._step is not None and wait is not None:  # else the first of an epoch
            self._observe(_LoopStep(self._step, wait), threads)

    def _observe(self, step: _LoopStep, threads: int) -> None:
        if self._settled:
            self._restart_if_changed(step)
            return
        if self._candidate:
            self._try(step, threads)
            return
        self._watched.append(step)
        if len(self._watched) == _WATCHED:
            self._begin_trial_if_useful()

    def _begin_trial_if_useful(self) -> None:
        """Begin a trial if the measured waits and idle CPUs permit a gain; else watch again later."""
        steps, self._watched = self._watched, []
        load = median(step.wait.wall for step in steps)
        away = median(step.away.wall for step in steps)
        if load < max(_LEAST_SECONDS, _LEAST_PART * (load + away)):
            self._postpone_trial("loading takes next to no time")
            return
        cpus = max(rank_cpus(), 1)
        waiting = self._may_wait and median(step.wait.thread / step.wait.wall for step in steps) < WAITING
        if not waiting and away > load / 2 and _idle_cpus(steps, cpus) < 0.5:
            self._postpone_trial("the training keeps every CPU busy")
            return
        most = MOST_THREADS if waiting else min(cpus, MOST_THREADS)
        wanted = math.ceil(load / max(away, load / most))
        if most < 2 and away < load / 2:
            self._postpone_trial("there is one CPU, and the training uses it")
            return
        self._candidate = max(1, min(most, wanted))
        self.pause = _PAUSE if self._candidate == 1 and away > load + 4 * _PAUSE else 0.0
        self._away = away
        self._trial = {0: [], self._candidate: []}
        self._switch(self._candidate)

    def _restart_if_changed(self, step: _LoopStep) -> None:
        """Start again if the duration of training steps has changed since the decision."""
        self._watched.append(step)
        if len(self._watched) < _LOOKED_AT:
            return
        away, self._watched = median(step.away.wall for step in self._watched), []
        if not self._away / 2 - _PAUSE <= away <= 2 * self._away + _PAUSE:
            self._settled, self._candidate, self.threads, self.pause = False, 0, 0, 0.0
            self._watch_after = _WATCHED

    def _postpone_trial(self, why: str) -> None:
        """Start no trial now, for the reason ``why``; watch again later, with growing intervals."""
        self.why = why
        self._watch_after *= 4
        self._unwatched = self._watch_after
        self._timer.restart()

    def _switch(self, threads: int) -> None:
        self.threads = threads
        self._to_skip = self._candidate + 2  # until the threads have caught up, or their batches are used up

    def _try(self, step: _LoopStep, threads: int) -> None:
        if self._to_skip or threads != self.threads:
            self._to_skip = max(self._to_skip - 1, 0)
            return
        taken = self._trial[threads]
        taken.append(step.period)
        if len(taken) % _BLOCK:
            return
        alone, ahead = (self._trial[mode] for mode in (0, self._candidate))
        if len(alone) + len(ahead) < _BLOCKS * _BLOCK:
            self._switch(self._candidate if threads == 0 else 0)
            return
        gain = median(ahead) / median(alone)
        self.threads = self._candidate if gain < _WORTH else 0
        measured = f"{self._candidate} of them took {gain:.2f} times as long from batch to batch"
        self.why = f"measured against no prefetch threads, {measured}"
        self._settled = True
        self._watched, self._trial = [], {}

    # -- between epochs

    def watch(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield ``batches`` of the new epoch, and record their waits for the decision about workers."""
        watched = TimedBatches(batches, self._end_epoch)
        self._running.append(weakref.ref(watched))
        return watched

    def next_workers(self) -> int | None:
        """Return the number of workers for the new epoch; None while another epoch is running."""
        self._running = [ref for ref in self._running if (batches := ref()) is not None and not batches.over]
        load = self._load
        if load is None or self._running or self.worker_count is None:
            return None
        self._load = None
        return self.worker_count.observe(load)

    def _end_epoch(self, epoch: TimedBatches) -> None:
        self._load = EpochLoad.of(epoch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": []}


def _idle_cpus(steps: list[_LoopStep], cpus: int) -> float:
    """Return the number of CPUs that were idle on average during training steps."""
    wall = sum(step.away.wall for step in steps)
    return cpus - sum(step.away.process for step in steps) / max(wall, 1e-9)


@dataclass(frozen=True)
class EpochLoad:
    """The load of an epoch, from its second batch on: the first batch waits for workers to start.

    ``waited_s`` of ``elapsed_s`` seconds were waits for ``batches`` batches.
    """

    waited_s: float
    elapsed_s: float
    batches: int

    @classmethod
    def of(cls, epoch: TimedBatches) -> EpochLoad:
        """Return the load of a complete epoch."""
        waited = sum(epoch.waits[1:])
        return cls(waited, waited + sum(epoch.steps[:-1]), max(len(epoch.waits) - 1, 0))

    @property
    def share_waited(self) -> float:
        """Return the share of the time spent waiting, 0 to 1."""
        return self.waited_s / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def batch_s(self) -> float:
        """Return the seconds from batch to batch."""
        return self.elapsed_s / self.batches


class WorkerCount:
    """Decides the number of workers for the next epoch from the load of the last epochs.

    It uses neither a loader nor a clock.

    * After an epoch that waited more than ``RAISE_ABOVE`` of its time, it doubles the workers (first to 2).
    * After ``PATIENCE`` epochs in a row that waited less than ``LOWER_BELOW``, it tries half of them.
    * It keeps a change that has the expected effect: more workers must shorten the time from batch to batch by
      ``WORTH``, and fewer must not lengthen it by as much. Otherwise it undoes the change and does not try that number
      again.

    Between the two shares, and in epochs of fewer than ``LEAST_BATCHES`` batches, nothing changes. It starts with
    ``workers``, and never exceeds ``most``.
    """

    RAISE_ABOVE = 0.10
    LOWER_BELOW = 0.01
    PATIENCE = 3
    WORTH = 0.05
    LEAST_BATCHES = 8

    def __init__(self, workers: int, most: int) -> None:
        self.most = most
        self.workers = min(workers, most)
        #: The reason for the current number, in words.
        self.why = "nothing seen yet"
        self._refused: set[int] = set()
        self._trial: tuple[int, float] | None = None  # the number before, and its seconds from batch to batch
        self._idle = 0

    def observe(self, load: EpochLoad) -> int:
        """Record an epoch with ``workers`` workers, and return the number for the next epoch."""
        if load.batches < self.LEAST_BATCHES or load.elapsed_s <= 0:
            return self.workers
        if self._trial is not None:
            before, batch_s = self._trial
            self._trial = None
            if self._missed_expectation(before, load.batch_s / batch_s):
                self._refused.add(self.workers)
                self.why = (
                    f"{self.workers} took {load.batch_s / batch_s:.2f} times as long a batch as {before}: taken back"
                )
                self.workers = before
                return before
        waited = load.share_waited
        self._idle = self._idle + 1 if waited < self.LOWER_BELOW else 0
        if waited > self.RAISE_ABOVE:
            self._try(min(max(2 * self.workers, 2), self.most), load, f"{waited:.0%} of the epoch was waited")
        elif self._idle >= self.PATIENCE:
            self._idle = 0
            self._try(self.workers // 2, load, f"{waited:.1%} of the epochs was waited")
        return self.workers

    def _missed_expectation(self, before: int, ratio: float) -> bool:
        """Return whether changing the number of workers from ``before`` had an unwanted effect.

        ``ratio``: the seconds from batch to batch after the change, divided by those before.
        """
        return ratio > 1 - self.WORTH if self.workers > before else ratio > 1 + self.WORTH

    def _try(self, workers: int, load: EpochLoad, reason: str) -> None:
        if workers == self.workers or workers in self._refused:
            return
        self.why = f"{workers} after {self.workers}: {reason}"
        self._trial = (self.workers, load.batch_s)
        self.workers = workers
