"""Times of the steps of a training, slow steps, and their summary."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

_RECENT = 100
#: Number of batches between two computations of the median: it follows a run, and costs next to nothing.
_RENEWED_AFTER = 10
#: Batches that took less than this above the usual are not slow at any factor: clocks and schedulers jitter.
_LEAST_SECONDS = 1e-3


@dataclass(slots=True)
class TrainingStep:
    """A training step. ``begun`` and ``ended`` are times of the host in seconds, or events of a CUDA device.

    ``wait`` and ``host_seconds`` are seconds on the host's clock: the wait for the batch (None: the request is not
    known), and the time with the batch. ``before`` and ``within`` list the transfers before and within the step, each
    with begin and end.
    """

    batch_idx: int
    dataloader_name: str
    wait: float | None
    begun: Any
    before: list[tuple[Any, Any]] = field(default_factory=list)
    within: list[tuple[Any, Any]] = field(default_factory=list)
    ended: Any = None
    host_seconds: float = 0.0

    def is_known(self) -> bool:
        """Return whether the times of the step are known."""
        return isinstance(self.ended, float) or bool(self.ended.query())

    def transfers(self) -> list[float]:
        """Return the seconds of each transfer."""
        return [_seconds(*marks) for marks in (*self.before, *self.within)]

    def seconds(self) -> float:
        """Return the seconds of the step without its transfers; on CUDA, of the device."""
        return _seconds(self.begun, self.ended) - sum(_seconds(*marks) for marks in self.within)


def _seconds(begun: Any, ended: Any) -> float:
    return float(ended - begun if isinstance(begun, float) else begun.elapsed_time(ended) * 1e-3)


@dataclass(frozen=True)
class SlowBatch:
    """A batch that took much longer than usual: seconds on the host's clock."""

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


class UsualTime:
    """The median time of the last 100 batches, and the test of whether a batch took ``factor`` times as long."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._seen = 0
        #: Seconds of a usual batch when the last batch was judged; None before enough batches.
        self.seconds: float | None = None

    def is_exceeded(self, seconds: float) -> bool:
        """Return whether a batch with this time was slow; the time counts for later batches."""
        if self._seen and self._seen % _RENEWED_AFTER == 0:
            self.seconds = median(self._recent)
        self._recent.append(seconds)
        self._seen += 1
        return self.seconds is not None and seconds > max(self._factor * self.seconds, self.seconds + _LEAST_SECONDS)


@dataclass(frozen=True)
class StepSummary:
    """The time that a part of a training spent on its data; None for values without measurement.

    Attributes:
        batches: number of steps.
        wait_mean, wait_p99: seconds of waiting for a batch.
        wait_share: share of the loop's time spent waiting, 0 to 1.
        transfer_mean: seconds of a transfer.
        step_mean: seconds of a step, without its transfers (on CUDA, of the device).
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


class StepTally:
    """Seconds of many ``waits``, ``transfers`` and ``steps``, in order, and the number of ``slow`` batches."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.transfers: list[float] = []
        self.steps: list[float] = []
        self.slow = 0
        self._host_seconds = 0.0

    def add(self, step: TrainingStep, *, slow: bool) -> None:
        """Add a step whose times are known."""
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
            wait_p99=_p99(self.waits),
            wait_share=waiting / looping if self.waits and looping > 0 else None,
            transfer_mean=_mean(self.transfers),
            step_mean=_mean(self.steps),
            slow_batches=self.slow,
        )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _p99(values: Sequence[float]) -> float | None:
    """Return the 99th percentile, as ``numpy.percentile`` does, in half the time for few values."""
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=100, method="inclusive")[98]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
