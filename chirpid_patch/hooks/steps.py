"""What the steps of a training took, which of them were slow, and what they took together (R-001)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

_RECENT = 100
#: The median is taken anew after so many batches: often enough to follow a run, too seldom to cost anything.
_RENEWED_AFTER = 10
#: Batches that took less than this above the usual are not slow, whatever the factor: clocks and schedulers jitter.
_LEAST_SECONDS = 1e-3


@dataclass(slots=True)
class Step:
    """A step, from ``begun`` to ``ended``: moments of the host in seconds, or events of a CUDA device.

    ``wait`` and ``host_seconds`` are seconds on the host's clock: for the batch (None: nobody said when it was asked
    for), and from having it to being done with it. ``before`` and ``within`` are transfers, each from its beginning to
    its end, before the step began and in it.
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
        """Whether its times are known by now."""
        return isinstance(self.ended, float) or bool(self.ended.query())

    def transfers(self) -> list[float]:
        """Seconds of each transfer."""
        return [_seconds(*marks) for marks in (*self.before, *self.within)]

    def seconds(self) -> float:
        """Seconds of the step without the transfers in it; on CUDA, of the device."""
        return _seconds(self.begun, self.ended) - sum(_seconds(*marks) for marks in self.within)


def _seconds(begun: Any, ended: Any) -> float:
    return float(ended - begun if isinstance(begun, float) else begun.elapsed_time(ended) * 1e-3)


@dataclass(frozen=True)
class SlowBatch:
    """A batch that took much longer than the usual: seconds on the host's clock."""

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
    """The median of what the last 100 batches took, and whether one took ``factor`` times as long."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._seen = 0
        #: Seconds of a usual batch, by which the last one was judged; None until some were seen.
        self.seconds: float | None = None

    def is_exceeded(self, seconds: float) -> bool:
        """Whether a batch that took so long was slow; it counts for those that follow."""
        if self._seen and self._seen % _RENEWED_AFTER == 0:
            self.seconds = median(self._recent)
        self._recent.append(seconds)
        self._seen += 1
        return self.seconds is not None and seconds > max(self._factor * self.seconds, self.seconds + _LEAST_SECONDS)


@dataclass(frozen=True)
class StepSummary:
    """What a stretch of training spent on its data; None where nothing was measured.

    Attributes:
        batches: steps taken.
        wait_mean, wait_p99: seconds waited for a batch.
        wait_share: part of the loop's time spent waiting, 0 to 1.
        transfer_mean: seconds of a transfer.
        step_mean: seconds of a step, without its transfers (on CUDA, of the device).
        slow_batches: how many batches took much longer than the usual.
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
    """The seconds of many ``waits``, ``transfers`` and ``steps``, in order, and how many batches were ``slow``."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.transfers: list[float] = []
        self.steps: list[float] = []
        self.slow = 0
        self._host_seconds = 0.0

    def add(self, step: Step, *, slow: bool) -> None:
        """Take down a step whose times are known."""
        if step.wait is not None:
            self.waits.append(step.wait)
        self.transfers += step.transfers()
        self.steps.append(step.seconds())
        self.slow += slow
        self._host_seconds += step.host_seconds

    def summary(self) -> StepSummary:
        """What they took together."""
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
    """As ``numpy.percentile``, which takes twice as long for the few values of a stretch."""
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=100, method="inclusive")[98]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
