"""The GPUs read again and again while training runs, on a thread of its own and within a known cost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType

from chirpid_patch.background import repeated
from chirpid_patch.device.nvml import FIELDS, GpuProbe, GpuReading, GpuStatus

#: Fields of a reading that are numbers.
_NUMBERS = ("utilization_percent", "memory_used_bytes", "sm_clock_mhz", "memory_clock_mhz", "power_w")


@dataclass(frozen=True)
class Spread:
    """What a field was over all readings that had it."""

    mean: float
    lowest: float
    highest: float
    readings: int


@dataclass(frozen=True)
class GpuSummary:
    """One GPU over the time it was watched.

    Attributes:
        name, uuid: as NVML says them.
        fields: of ``utilization_percent``, ``memory_used_bytes``, ``sm_clock_mhz``, ``memory_clock_mhz`` and
            ``power_w`` those that could be read, in the units of ``GpuReading``.
        throttled: for each reason that lowered the clocks, the share of the readings that saw it, 0 to 1.
        unreadable: for each field of a reading that could never be read, why.
    """

    name: str
    uuid: str
    fields: Mapping[str, Spread]
    throttled: Mapping[str, float]
    unreadable: Mapping[str, str]


@dataclass(frozen=True)
class SamplingCost:
    """What watching took.

    Attributes:
        readings: how often the GPUs were read.
        seconds: how long reading took in all, on the watching thread.
        cpu_seconds: CPU time of these readings.
        longest_s: the longest reading.
        share: ``seconds`` as a share of the time that was watched; at most about 0.05, because the pause between two
            readings is at least 19 times as long as a reading takes.
    """

    readings: int
    seconds: float
    cpu_seconds: float
    longest_s: float
    share: float

    def __str__(self) -> str:
        each = 1000 * self.seconds / max(self.readings, 1)
        return f"{self.readings} readings of {each:.2f} ms each, {self.share:.2%} of the time"


@dataclass(frozen=True)
class GpuUsage:
    """The visible GPUs over a time, in CUDA's order, or none and the ``reason``; and what it cost to know."""

    gpus: tuple[GpuSummary, ...]
    cost: SamplingCost
    reason: str | None = None
    notes: tuple[str, ...] = ()

    def mean(self, name: str) -> float | None:
        """Mean of a field over the GPUs that report it; None where none does."""
        means = [gpu.fields[name].mean for gpu in self.gpus if name in gpu.fields]
        return sum(means) / len(means) if means else None

    @property
    def throttled(self) -> dict[str, float]:
        """For each reason that lowered the clocks, the largest share of the readings of any GPU that saw it."""
        shares: dict[str, float] = {}
        for gpu in self.gpus:
            for why, share in gpu.throttled.items():
                shares[why] = max(share, shares.get(why, 0.0))
        return shares


class GpuSampler:
    """Watches the visible GPUs while a ``with`` block runs.

        with GpuSampler() as sampler:
            train(...)
        print(sampler.usage().mean("utilization_percent"))

    Reading never happens on the thread that trains, and takes at most about 5 % of another: the interval grows where
    readings are slow. What is kept does not grow with time.

    Args:
        interval_s: seconds between readings. NVML itself updates utilisation every 1/6 to 1 second.
        lead_s: seconds to pass before the first reading, so that NVML's period lies within the block.
        probe: what reads; by default a ``GpuProbe`` of its own.

    Raises:
        ValueError: ``interval_s`` is not above 0, or ``lead_s`` below 0.
    """

    def __init__(self, interval_s: float = 0.1, *, lead_s: float = 0.0, probe: GpuProbe | None = None) -> None:
        if interval_s <= 0:
            raise ValueError("interval_s must be above 0 seconds")
        if lead_s < 0:
            raise ValueError("lead_s must be 0 seconds or more")
        self.interval_s = interval_s
        self.lead_s = lead_s
        self._probe = probe
        self._lock = threading.Lock()
        self._seen = _Seen()
        self._begun = self._ended = 0.0
        self._running: ExitStack | None = None

    def __enter__(self) -> GpuSampler:
        with ExitStack() as stack:
            probe = self._probe or stack.enter_context(GpuProbe())
            with self._lock:
                self._seen = _Seen()
            self._begun, self._ended = time.perf_counter(), 0.0
            stack.callback(self._end)
            stack.enter_context(repeated(lambda: self._read(probe), self.interval_s, "chirpid-gpu-sampler"))
            self._running = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def _end(self) -> None:
        self._ended = time.perf_counter()

    def _read(self, probe: GpuProbe) -> None:
        begun, cpu = time.perf_counter(), time.thread_time()
        if begun - self._begun < self.lead_s:
            return
        status = probe.read()
        taken, cpu = time.perf_counter() - begun, time.thread_time() - cpu
        with self._lock:
            self._seen.add(status, taken, cpu)

    def usage(self) -> GpuUsage:
        """What was seen so far, or over the whole block once it has ended."""
        with self._lock:
            return self._seen.usage((self._ended or time.perf_counter()) - self._begun)


@dataclass
class _Sums:
    """One field, summed up."""

    total: float = 0.0
    lowest: float = float("inf")
    highest: float = -float("inf")
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        self.count += 1

    def spread(self) -> Spread:
        return Spread(self.total / self.count, self.lowest, self.highest, self.count)


@dataclass
class _Gpu:
    """What was seen of one GPU."""

    name: str
    fields: dict[str, _Sums] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    reasons_read: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def add(self, reading: GpuReading) -> None:
        self.unreadable.update(reading.unreadable)
        self.read.update(name for name in FIELDS if getattr(reading, name) is not None)
        for name in _NUMBERS:
            value = getattr(reading, name)
            if value is not None:
                self.fields.setdefault(name, _Sums()).add(value)
        if reading.throttling is not None:
            self.reasons_read += 1
            self.reasons.update(reading.throttling)

    def summary(self, uuid: str) -> GpuSummary:
        return GpuSummary(
            self.name,
            uuid,
            {name: sums.spread() for name, sums in self.fields.items()},
            {why: count / self.reasons_read for why, count in self.reasons.items()},
            {name: why for name, why in self.unreadable.items() if name not in self.read},
        )


@dataclass
class _Seen:
    """All readings, summed up."""

    gpus: dict[str, _Gpu] = field(default_factory=dict)
    reason: str | None = None
    notes: tuple[str, ...] = ()
    readings: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    longest_s: float = 0.0

    def add(self, status: GpuStatus, seconds: float, cpu_seconds: float) -> None:
        self.readings += 1
        self.seconds += seconds
        self.cpu_seconds += cpu_seconds
        self.longest_s = max(self.longest_s, seconds)
        self.reason, self.notes = status.reason, status.notes
        for reading in status.readings:
            self.gpus.setdefault(reading.uuid, _Gpu(reading.name)).add(reading)

    def usage(self, watched_s: float) -> GpuUsage:
        share = self.seconds / watched_s if watched_s > 0 else 0.0
        cost = SamplingCost(self.readings, self.seconds, self.cpu_seconds, self.longest_s, share)
        reason = self.reason if self.readings else "the time watched was too short for a reading"
        return GpuUsage(tuple(gpu.summary(uuid) for uuid, gpu in self.gpus.items()), cost, reason, self.notes)
