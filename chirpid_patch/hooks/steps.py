"""Times of training steps, summaries of these times, and a class that detects slow batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

_RECENT_BATCHES = 100
#: The median of the batch times is computed again after this number of batches.
_MEDIAN_RENEWED_AFTER = 10
#: Smallest difference in seconds between the time of a slow batch and the median. Smaller differences are jitter of
#: clock and scheduler.
_LEAST_SLOW_SECONDS = 1e-3


@dataclass(slots=True)
class TrainingStep:
    """A training step, with its times.

    On CUDA, ``begun``, ``ended``, and the begins and ends of transfers are CUDA events. Otherwise these times are
    numbers of seconds of the CPU's clock.

    Attributes:
        batch_idx: number of the batch in the epoch.
        dataloader_name: name of the loader; an empty string if the loaders have no names.
        wait: seconds of the CPU's clock that the loop waited for the batch; None if the hook did not record when the
            loop requested the batch.
        begun: the time at which the step began.
        before: begin and end of each transfer between the previous step and this step.
        within: begin and end of each transfer within this step.
        ended: the time at which the step ended.
        host_seconds: seconds of the CPU's clock from the arrival of the batch to the request of the next batch.
    """

    batch_idx: int
    dataloader_name: str
    wait: float | None
    begun: Any
    before: list[tuple[Any, Any]] = field(default_factory=list)
    within: list[tuple[Any, Any]] = field(default_factory=list)
    ended: Any = None
    host_seconds: float = 0.0

    def has_end_time(self) -> bool:
        """Return whether the end time of the step is known.

        A CUDA event has no time until the device has reached the event.
        """
        return isinstance(self.ended, float) or bool(self.ended.query())

    def transfers(self) -> list[float]:
        """Return the seconds that each transfer took."""
        return [_seconds(*marks) for marks in (*self.before, *self.within)]

    def seconds(self) -> float:
        """Return the seconds of the step without its transfers. On CUDA, the device measures this time."""
        return _seconds(self.begun, self.ended) - sum(_seconds(*marks) for marks in self.within)


def _seconds(begun: Any, ended: Any) -> float:
    return float(ended - begun if isinstance(begun, float) else begun.elapsed_time(ended) * 1e-3)


@dataclass(frozen=True)
class SlowBatch:
    """A batch that took much longer than usual. All times are seconds of the CPU's clock."""

    batch_idx: int
    dataloader_name: str
    wait_seconds: float
    step_seconds: float
    usual_seconds: float

    def __str__(self) -> str:
        source = f" of {self.dataloader_name}" if self.dataloader_name else ""
        taken = _milliseconds(self.wait_seconds + self.step_seconds)
        parts = f"data wait {_milliseconds(self.wait_seconds)}, step {_milliseconds(self.step_seconds)}"
        return f"slow batch {self.batch_idx}{source}: {taken}, usually {_milliseconds(self.usual_seconds)} ({parts})"


class UsualBatchTime:
    """The median time of the last 100 batches, to detect slow batches.

    A batch is slow if its time is above ``factor`` times the median, and at least 1 ms above the median.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._recent: deque[float] = deque(maxlen=_RECENT_BATCHES)
        self._seen = 0
        #: The median in seconds at the last call of ``is_exceeded``; None after too few batches.
        self.seconds: float | None = None

    def is_exceeded(self, seconds: float) -> bool:
        """Return whether a batch that took ``seconds`` is slow, and store ``seconds`` for the following medians."""
        if self._seen and self._seen % _MEDIAN_RENEWED_AFTER == 0:
            self.seconds = median(self._recent)
        self._recent.append(seconds)
        self._seen += 1
        return self.seconds is not None and seconds > max(
            self._factor * self.seconds, self.seconds + _LEAST_SLOW_SECONDS
        )


@dataclass(frozen=True)
class StepSummary:
    """A summary of several training steps. A value that was not measured is None.

    Attributes:
        batches: number of steps.
        wait_mean: mean of the waits for a batch, in seconds.
        wait_p99: 99th percentile of the waits for a batch, in seconds.
        wait_share: time of the waits, divided by the time of waits and steps together, from 0 to 1.
        transfer_mean: mean time of a transfer in seconds.
        step_mean: mean time of a step without its transfers, in seconds. On CUDA, the device measures this time.
        slow_batches: number of batches that took much longer than usual.
    """

    batches: int
    wait_mean: float | None
    wait_p99: float | None
    wait_share: float | None
    transfer_mean: float | None
    step_mean: float | None
    slow_batches: int

    def __str__(self) -> str:
        parts = [f"{self.batches} batch{'' if self.batches == 1 else 'es'}"]
        if self.wait_mean is not None and self.wait_p99 is not None:
            parts.append(f"data wait mean {_milliseconds(self.wait_mean)}, p99 {_milliseconds(self.wait_p99)}")
        if self.wait_share is not None:
            parts[-1] += f", {self.wait_share:.0%} of the time"
        if self.transfer_mean is not None:
            parts.append(f"transfer mean {_milliseconds(self.transfer_mean)}")
        if self.step_mean is not None:
            parts.append(f"step mean {_milliseconds(self.step_mean)}")
        if self.slow_batches:
            parts.append(f"{self.slow_batches} slow")
        return "; ".join(parts)


class StepTimes:
    """The times of several steps, from which ``summary`` computes a summary.

    ``waits``, ``transfers`` and ``steps`` are lists of seconds, in order. ``slow`` is the number of slow batches.
    """

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.transfers: list[float] = []
        self.steps: list[float] = []
        self.slow = 0
        self._host_seconds = 0.0

    def add(self, step: TrainingStep, *, slow: bool) -> None:
        """Add the times of ``step``, whose end time must be known. ``slow`` is True if the batch was slow."""
        if step.wait is not None:
            self.waits.append(step.wait)
        self.transfers += step.transfers()
        self.steps.append(step.seconds())
        self.slow += slow
        self._host_seconds += step.host_seconds

    def summary(self) -> StepSummary:
        """Return the summary of all steps."""
        waiting = sum(self.waits)
        looping = waiting + self._host_seconds
        return StepSummary(
            batches=len(self.steps),
            wait_mean=_mean(self.waits),
            wait_p99=float(np.percentile(self.waits, 99)) if self.waits else None,
            wait_share=waiting / looping if self.waits and looping > 0 else None,
            transfer_mean=_mean(self.transfers),
            step_mean=_mean(self.steps),
            slow_batches=self.slow,
        )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
