"""Whether worker processes are worth their start: decided from what a training loop's batches show."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

#: So many batches loaded here are looked at before processes are started, unless one alone takes as long as that.
_LOOKED_AT = 3
_KEPT = 16
#: Processes are started to save so many times what their start takes.
_WORTH_STARTING = 2
#: Loading that takes less than this part of the time from batch to batch is left as it is.
_LEAST_PART = 0.03
#: Batches of a trial that count, beside those loaded before the processes had caught up.
_MEASURED = 8
#: Processes must shorten the time from batch to batch to this part of it.
_WORTH = 0.95
#: After a trial that failed, so many batches pass before another, and ever more.
_PATIENCE = 128
#: The loop's own steps take another time when they take so many times more or less, if that is so much of a period.
_OTHER_TIMES, _OTHER_PART = 2, 0.2


@dataclass
class _Trial:
    """The batches of worker processes since they were started."""

    started_s: float
    periods: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=64))
    count: int = 0
    total_s: float = 0.0
    epoch_ended: bool = False


class WorkerDemand:
    """Whether the batches of one loader are to be loaded by its worker processes, in ``wanted``; why, in ``why``.

    Loading begins in the training process. Processes are wanted once they could save more of the loading that is left
    in the epoch than their start takes. They stay wanted if the loop gets faster by them, which is measured: from
    batch to batch once they are at work, and over the epoch with their start, unless they are kept for the next.
    Knows no loader and no clock.

    Args:
        workers: how many there would be.
        ahead: how many batches they load ahead, together.
        kept: whether they outlive the epoch.
        start_s: what starting them may take, in seconds, until that was measured.
    """

    def __init__(self, workers: int, *, ahead: int, kept: bool, start_s: float) -> None:
        self._workers = workers
        self._ahead = ahead
        self._kept = kept
        #: What starting the processes takes, in seconds: at first a guess, then as measured.
        self.start_s = start_s
        self.wanted = False
        self.why = "no batches seen yet"
        #: Whether ``wanted`` is final.
        self.settled = False
        #: Whether no batch has been read here yet.
        self.untried = True
        self._here: deque[tuple[float | None, float]] = deque(maxlen=_KEPT)
        self._loaded_here = 0
        self._wait_for = 0
        self._patience = _PATIENCE
        self._trial: _Trial | None = None
        self._stands_at: float | None = None

    def settle(self, why: str) -> None:
        """Processes are wanted for good: only they can load as was asked for."""
        self.wanted, self.settled, self.why = True, True, why

    def loaded_here(self, away_s: float | None, load_s: float, left: int | None) -> None:
        """A batch was, or would be, loaded here in ``load_s`` seconds, ``away_s`` after the one before.

        ``left`` batches are left in the epoch, None if nobody knows.
        """
        self._here.append((away_s, load_s))
        self._loaded_here += 1
        if self._loaded_here < self._wait_for:
            return
        away, load = self._away_here or 0.0, median(load for _, load in self._here)
        if load < _LEAST_PART * (load + away):
            self.why = "loading takes next to no time"
            return
        if left is None or self._kept:
            left = max(left or 0, self._loaded_here)  # it may well go on for as long as it has
        # Nothing hides the first batch of the processes: one of them loads it while the loop waits.
        could_save = max(left - 1, 0) * (load - max(load / self._workers - away, 0.0))
        surely = len(self._here) >= _LOOKED_AT or load > self.start_s
        if surely and could_save > _WORTH_STARTING * self.start_s:
            self.wanted, self.why = True, f"loading takes {load * 1e3:.2g} ms a batch"
        else:
            self.why = "starting them would take longer than they could save"

    @property
    def _away_here(self) -> float | None:
        times = [away for away, _ in self._here if away is not None]
        return median(times) if times else None

    def started(self, seconds: float) -> None:
        """The processes were started for an epoch, or the rest of one, in so many seconds."""
        if self._trial is None or not self._kept:
            self._trial = _Trial(seconds)
        self._trial.epoch_ended = False

    def loaded_by_workers(self, away_s: float | None, wait_s: float) -> None:
        """The processes' next batch was waited for ``wait_s`` seconds, ``away_s`` after the one before."""
        trial = self._trial
        if self.settled or trial is None:
            return
        trial.count += 1
        trial.total_s += wait_s + (away_s or 0.0)
        if trial.count == 1:
            self.start_s = max(trial.started_s + wait_s - self._load_here, 0.0)
        elif away_s is not None:
            trial.periods.append((away_s, wait_s))
        if self._stands_at is None and trial.count == self._ahead + 2 + _MEASURED:
            counted = list(trial.periods)[-_MEASURED:]
            self._judge(median(away + wait for away, wait in counted), median(away for away, _ in counted))

    @property
    def _load_here(self) -> float:
        return median(load for _, load in self._here) if self._here else 0.0

    def _judge(self, period_s: float, away_s: float) -> None:
        """Whether ``period_s`` from batch to batch, ``away_s`` of it the loop's, is worth the processes."""
        here = self._load_here + (away_s if self._away_here is None else self._away_here)
        ratio = period_s / here if here else 1.0
        self.why = f"they took {ratio:.2f} times as long from batch to batch as loading in this process"
        if ratio <= _WORTH:
            self._stands_at = away_s
            return
        self._begin_anew(self._patience)
        self._patience *= 4

    def _begin_anew(self, wait_for: int) -> None:
        """Load here again, at least ``wait_for`` batches."""
        self.wanted, self._stands_at, self._trial = False, None, None
        self._here.clear()
        self._loaded_here, self._wait_for = 0, wait_for

    def epoch_begins(self) -> None:
        """An epoch begins; the loop may have left the one before without coming to its end."""
        if self._trial is not None and not self._trial.epoch_ended:
            self.epoch_ended()

    def epoch_ended(self) -> None:
        """An epoch ended; where the processes end with it, their start counts."""
        trial = self._trial
        if not self.wanted or self.settled or trial is None or not trial.periods:
            return
        trial.epoch_ended = True
        away, period = median(away for away, _ in trial.periods), median(map(sum, trial.periods))
        if self._stands_at is not None and _is_other(away, self._stands_at, period):
            self._begin_anew(0)
            self.why = "the steps of the loop take another time than before"
        elif not self._kept:
            self._judge((trial.started_s + trial.total_s) / trial.count, away)


def _is_other(away_s: float, before_s: float, period_s: float) -> bool:
    """Whether the loop's own steps take quite another time than before."""
    far = not before_s / _OTHER_TIMES <= away_s <= before_s * _OTHER_TIMES
    return far and abs(away_s - before_s) > _OTHER_PART * period_s
