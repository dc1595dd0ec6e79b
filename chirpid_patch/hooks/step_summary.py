"""What training spent on its data, summed up, and which batches were slow."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from chirpid_patch.hooks.step_clock import StepTimes

_RECENT = 100
#: The median is taken anew after so many batches: often enough to follow a run, too seldom to cost anything.
_RENEWED_AFTER = 10
#: Batches that took less than this above the usual are not slow, whatever the factor: clocks and schedulers jitter.
_LEAST_SECONDS = 1e-3


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
        taken = milliseconds(self.wait_seconds + self.step_seconds)
        parts = f"data wait {milliseconds(self.wait_seconds)}, step {milliseconds(self.step_seconds)}"
        return f"slow batch {self.batch_idx}{source}: {taken}, usually {milliseconds(self.usual_seconds)} ({parts})"


class SlowBatches:
    """Tells batches that took ``factor`` times as long as the median of those before, up to 100 of them."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._seen = 0
        #: Seconds of a usual batch, by which the last one was judged; None until some were seen.
        self.usual: float | None = None

    def is_slow(self, seconds: float) -> bool:
        """Whether a batch that took so long was slow; it counts for those that follow."""
        if self._seen and self._seen % _RENEWED_AFTER == 0:
            self.usual = median(self._recent)
        self._recent.append(seconds)
        self._seen += 1
        return self.usual is not None and seconds > max(self._factor * self.usual, self.usual + _LEAST_SECONDS)


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
        wait_by_loader: mean seconds waited, by loader's name.
    """

    batches: int
    wait_mean: float | None
    wait_p99: float | None
    wait_share: float | None
    transfer_mean: float | None
    step_mean: float | None
    slow_batches: int
    wait_by_loader: dict[str, float]

    def __str__(self) -> str:
        parts = [f"{self.batches} batch{'' if self.batches == 1 else 'es'}"]
        if self.wait_mean is not None and self.wait_p99 is not None:
            parts.append(f"data wait mean {milliseconds(self.wait_mean)}, p99 {milliseconds(self.wait_p99)}")
        if self.wait_share is not None:
            parts[-1] += f", {self.wait_share:.0%} of the time"
        if self.transfer_mean is not None:
            parts.append(f"transfer mean {milliseconds(self.transfer_mean)}")
        if self.step_mean is not None:
            parts.append(f"step mean {milliseconds(self.step_mean)}")
        if self.slow_batches:
            parts.append(f"{self.slow_batches} slow")
        if len(self.wait_by_loader) > 1:
            waits = (f"{name} {milliseconds(seconds)}" for name, seconds in self.wait_by_loader.items())
            parts.append(f"data wait mean by loader: {', '.join(waits)}")
        return "; ".join(parts)


class StepTally:
    """The times of many steps.

    Attributes:
        waits, transfers, steps: seconds of each, in order.
    """

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.transfers: list[float] = []
        self.steps: list[float] = []
        self._host_seconds = 0.0
        self._slow = 0
        self._waits_by_loader: dict[str, list[float]] = {}

    def add(self, step: StepTimes, *, slow: bool) -> None:
        """Take down a step."""
        if step.wait is not None:
            self.waits.append(step.wait)
            self._waits_by_loader.setdefault(step.dataloader_name, []).append(step.wait)
        self.transfers += step.transfers
        self.steps.append(step.seconds)
        self._host_seconds += step.host_seconds
        self._slow += slow

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
            slow_batches=self._slow,
            wait_by_loader={name: sum(waits) / len(waits) for name, waits in self._waits_by_loader.items()},
        )


def milliseconds(seconds: float) -> str:
    """``0.00123`` as "1.23 ms"."""
    return f"{seconds * 1e3:.2f} ms"


def _p99(values: Sequence[float]) -> float | None:
    """As ``numpy.percentile``, which takes twice as long for the few values of a stretch."""
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=100, method="inclusive")[98]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
