"""How many threads load ahead of one training loop: decided from what its first batches show."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from statistics import median

from chirpid_patch.loading.limits import MOST_THREADS, WAITING
from chirpid_patch.machine.cpus import rank_cpus

#: The first batches of a loop pay for warming up and tell nothing.
_IGNORED = 2
_WATCHED = 4
#: So many batches at a time a settled loop is looked at: is it still the loop that was settled for?
_LOOKED_AT = 16
#: Batches measured of either way before they are compared, twice in turns.
_BLOCK = 5
_BLOCKS = 4
#: Threads must shorten the time from batch to batch at least to this part of it.
_WORTH = 0.9
#: Loading that takes less than this, in seconds or as a part of the time from batch to batch, is left as it is.
_LEAST_SECONDS = 2e-4
_LEAST_PART = 0.03
#: Seconds a thread waits before it loads, where there is time: the loop goes on in Python with the batch it has just
#: been given, and would have to wait for the interpreter lock again and again.
_PAUSE = 5e-4


@dataclass(frozen=True)
class _Clocks:
    """Seconds on the clock, of this thread's CPU time, and of that of the whole process."""

    wall: float
    thread: float
    process: float

    @classmethod
    def now(cls) -> _Clocks:
        return cls(time.perf_counter(), time.thread_time(), time.process_time())

    def since(self, earlier: _Clocks) -> _Clocks:
        return _Clocks(self.wall - earlier.wall, self.thread - earlier.thread, self.process - earlier.process)


@dataclass(frozen=True)
class _Step:
    """One batch: the loop was away for a step of the training, then asked and waited."""

    away: _Clocks
    wait: _Clocks

    @property
    def period(self) -> float:
        return self.away.wall + self.wait.wall


class Overlap:
    """The number of prefetch threads for one loader's loop, in ``threads``.

    Loading begins without threads. Once a few batches show that a CPU is idle meanwhile, threads are tried against
    none, in turns, in the running loop; what gives the shorter time from batch to batch stays, until the loop's own
    steps take another time. The batches are the same either way.

    may_wait: loading may wait for something else than a CPU or memory, so that more threads than CPUs can help.
    """

    def __init__(self, *, may_wait: bool = False) -> None:
        self._may_wait = may_wait
        self.threads = 0
        #: Seconds for a thread to wait before it loads the batch it was just asked for.
        self.pause = 0.0
        self.why = "no batches seen yet"
        self._fixed = False
        self._settled = False
        self._away = 0.0
        self._candidate = 0
        self._seen = 0
        self._watch_after = _WATCHED
        self._watched: list[_Step] = []
        self._trial: dict[int, list[float]] = {}
        self._to_skip = 0
        self._asked: _Clocks | None = None
        self._delivered: _Clocks | None = None

    @classmethod
    def fixed(cls, threads: int) -> Overlap:
        """A decision made beforehand."""
        overlap = cls()
        overlap.threads, overlap.why, overlap._fixed = threads, "given", True
        return overlap

    def begin_epoch(self) -> None:
        """An epoch begins: the time since the last batch was no step."""
        self._delivered = None

    def asked(self) -> None:
        """The loop asks for a batch."""
        if not self._fixed:
            self._asked = _Clocks.now()

    def delivered(self, threads: int) -> None:
        """The batch asked for is there; it was loaded by ``threads`` prefetch threads, 0 for none."""
        if self._fixed:
            return
        before, self._delivered = self._delivered, _Clocks.now()
        if before is None or self._asked is None:
            return  # the first of an epoch
        step = _Step(self._asked.since(before), self._delivered.since(self._asked))
        if self._settled:
            self._look_again(step)
            return
        if self._candidate:
            self._try(step, threads)
            return
        self._seen += 1
        if self._seen > _IGNORED:
            self._watched.append(step)
        if len(self._watched) == _WATCHED:
            self._consider()

    def _consider(self) -> None:
        """Begin a trial if what was watched leaves something to gain; else watch on, later."""
        steps, self._watched = self._watched, []
        load = median(step.wait.wall for step in steps)
        away = median(step.away.wall for step in steps)
        if load < max(_LEAST_SECONDS, _LEAST_PART * (load + away)):
            self._watch_again("loading takes next to no time")
            return
        cpus = max(rank_cpus(), 1)
        waiting = self._may_wait and median(step.wait.thread / step.wait.wall for step in steps) < WAITING
        if not waiting and away > load / 2 and _idle_cpus(steps, cpus) < 0.5:
            self._watch_again("the training keeps every CPU busy")
            return
        most = MOST_THREADS if waiting else min(cpus, MOST_THREADS)
        wanted = math.ceil(load / max(away, load / most))
        if most < 2 and away < load / 2:
            self._watch_again("there is one CPU, and the training does not leave it")
            return
        self._candidate = max(1, min(most, wanted))
        self.pause = _PAUSE if self._candidate == 1 and away > load + 4 * _PAUSE else 0.0
        self._away = away
        self._trial = {0: [], self._candidate: []}
        self._switch(self._candidate)

    def _look_again(self, step: _Step) -> None:
        """Begin anew if the loop's own steps take another time than when it was settled."""
        self._watched.append(step)
        if len(self._watched) < _LOOKED_AT:
            return
        away, self._watched = median(step.away.wall for step in self._watched), []
        if not self._away / 2 - _PAUSE <= away <= 2 * self._away + _PAUSE:
            self._settled, self._candidate, self.threads, self.pause = False, 0, 0, 0.0
            self._seen, self._watch_after = _IGNORED, _WATCHED

    def _watch_again(self, why: str) -> None:
        """Not now; look again later, and ever less often."""
        self.why = why
        self._watch_after *= 4
        self._seen = _IGNORED - self._watch_after

    def _switch(self, threads: int) -> None:
        self.threads = threads
        self._to_skip = self._candidate + 2  # until the threads have caught up, or what they hold is used up

    def _try(self, step: _Step, threads: int) -> None:
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


def _idle_cpus(steps: list[_Step], cpus: int) -> float:
    """CPUs that were idle on average while the loop was away."""
    wall = sum(step.away.wall for step in steps)
    return cpus - sum(step.away.process for step in steps) / max(wall, 1e-9)
