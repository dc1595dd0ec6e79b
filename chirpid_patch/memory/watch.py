"""Limits on memory, watched while training runs, with alerts that say what to change (R-003)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import IntEnum
from types import TracebackType

import torch

from chirpid_patch.machine.nvml import GpuProbe
from chirpid_patch.machine.polling import repeated
from chirpid_patch.machine.process_memory import process_memory
from chirpid_patch.machine.usable_memory import usable_memory

logger = logging.getLogger("chirpid_patch")

#: Bytes (an int), or a share of all there is (a float above 0, up to 1).
Limit = int | float


class MemoryPressure(IntEnum):
    """How much of a limit is used; ordered."""

    NONE = 0
    SOFT = 1
    HARD = 2


@dataclass(frozen=True)
class MemoryUse:
    """Memory in use at one moment, in bytes.

    ``source`` is "process" (this process with its workers) or "gpu 0" and so on; ``total_bytes`` what there is at
    most; ``processes`` how many processes use it, where that is known.
    """

    source: str
    used_bytes: int
    total_bytes: int
    processes: int = 1


@dataclass(frozen=True)
class MemoryAlert:
    """A limit was passed, or (``pressure`` NONE, or SOFT after HARD) memory fell below one again."""

    pressure: MemoryPressure
    before: MemoryPressure
    use: MemoryUse
    limit_bytes: int

    @property
    def rising(self) -> bool:
        """Whether a limit was passed."""
        return self.pressure > self.before

    def __str__(self) -> str:
        used, limit = self.use.used_bytes / 2**30, self.limit_bytes / 2**30
        where = "this process and its workers use" if self.use.source == "process" else f"{self.use.source} uses"
        if not self.rising:
            return f"{where} {used:.2f} GiB, below the limit of {limit:.2f} GiB again"
        return f"{where} {used:.2f} GiB, over the {self.pressure.name.lower()} limit of {limit:.2f} GiB: {self.advice}"

    @property
    def advice(self) -> str:
        """The settings to change."""
        if self.use.source != "process":
            return (
                "lower batch_size or the largest scale, give MultiScaleStep a memory_budget, or train with "
                "DynamicBatchStep"
            )
        workers = self.use.processes - 1
        if workers > 0:
            several = f"{workers} processes were started" if workers > 1 else "1 process was started"
            return f"lower num_workers ({several}), prefetch_factor or batch_size"
        return "lower batch_size, or keep images as bytes and scale them on demand (memory_efficient=True)"


Alerted = Callable[[MemoryAlert], object]


class MemoryWatch:
    """Watches the memory of this process with its workers, and of the visible GPUs, on a thread.

        with MemoryWatch(soft=0.8, hard=0.95, on_alert=notify) as watch:
            train(...)

    ``pressure`` is that of the last reading. An alert is given when a limit is passed, and when memory is below it
    again; each is logged (logger ``chirpid_patch``: WARNING over the soft limit, ERROR over the hard one, INFO below)
    with what to change, and given to ``on_alert``, on the watching thread (an error there is logged, and watching goes
    on). Memory is read at moments: peaks between them are not seen.

    Args:
        soft, hard: limits on memory of the process and its workers (``memory.process_memory``); bytes as an int, or a
            float above 0 up to 1: a share of what this process may use (``memory_limit.usable_memory``). None: none.
        gpu_soft, gpu_hard: the same for each visible GPU, a share being one of its memory. What other programs hold
            counts, what PyTorch's allocator keeps ready for reuse does not.
        hysteresis: memory must fall this share below a limit before it counts as below.
        quiet_s: seconds within which passing the same limit again is not told again. If memory is still above it
            then, it is.
        interval_s: seconds between readings.
        on_alert: called with each alert, or several such functions.
        read: what is read instead, for measures of your own; ``soft`` and ``hard`` hold for the source "process" and
            all that do not begin with "gpu".
        clock: seconds, for ``quiet_s``.

    Raises:
        ValueError: a limit, ``hysteresis`` or ``interval_s`` out of range, or a soft limit above the hard one.
        NotImplementedError: this system needs psutil for such readings.
    """

    def __init__(
        self,
        *,
        soft: Limit | None = 0.8,
        hard: Limit | None = 0.95,
        gpu_soft: Limit | None = 0.85,
        gpu_hard: Limit | None = 0.95,
        hysteresis: float = 0.1,
        quiet_s: float = 60.0,
        interval_s: float = 1.0,
        on_alert: Alerted | Sequence[Alerted] = (),
        read: Callable[[], Sequence[MemoryUse]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = {"process": _checked(soft, hard, ""), "gpu": _checked(gpu_soft, gpu_hard, "gpu_")}
        if not 0 <= hysteresis < 1:
            raise ValueError(f"hysteresis is a share of a limit, from 0 up to below 1, not {hysteresis}")
        if interval_s <= 0:
            raise ValueError("interval_s must be above 0 seconds")
        self.hysteresis = hysteresis
        self.quiet_s = quiet_s
        self.interval_s = interval_s
        self.on_alert: list[Alerted] = [on_alert] if callable(on_alert) else list(on_alert)
        self._reads_gpus = read is None
        self._read = read
        self._clock = clock
        self._states: dict[str, _State] = {}
        self._lock = threading.Lock()
        self._running: ExitStack | None = None
        self._probe: GpuProbe | None = None

    @property
    def pressure(self) -> MemoryPressure:
        """The highest pressure of all sources at the last reading."""
        with self._lock:
            return max((state.pressure for state in self._states.values()), default=MemoryPressure.NONE)

    def check(self) -> list[MemoryAlert]:
        """Read memory now, on this thread, and give the alerts that follow."""
        uses = self._uses()
        with self._lock:
            alerts = [alert for use in uses if (alert := self._judge(use)) is not None]
        for alert in alerts:
            self._tell(alert)
        return alerts

    def start(self) -> MemoryWatch:
        """Read now, and then again and again until ``stop``; a watch that runs already goes on."""
        if self._running is None:
            with ExitStack() as stack:
                if self._reads_gpus:
                    self._probe = stack.enter_context(GpuProbe())
                self.check()
                stack.enter_context(repeated(self.check, self.interval_s, "chirpid-memory-watch"))
                self._running = stack.pop_all()
        return self

    def stop(self) -> None:
        """End watching; no alert is under way afterwards. Safe to call twice."""
        running, self._running = self._running, None
        if running is not None:
            running.close()
            self._probe = None

    def __enter__(self) -> MemoryWatch:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _uses(self) -> Sequence[MemoryUse]:
        if self._read is not None:
            return self._read()
        uses = []
        if self._limits["process"]:
            reading = process_memory(include_children=True)
            uses.append(MemoryUse("process", reading.bytes, usable_memory(), reading.processes))
        if self._limits["gpu"]:
            uses += self._gpus()
        return uses

    def _gpus(self) -> list[MemoryUse]:
        probe = self._probe or GpuProbe()
        readings = probe.read().readings
        if probe is not self._probe:
            probe.close()
        return [
            MemoryUse(f"gpu {number}", gpu.memory_used_bytes - reusable_gpu_bytes(number), gpu.memory_total_bytes)
            for number, gpu in enumerate(readings)
            if gpu.memory_used_bytes is not None and gpu.memory_total_bytes is not None
        ]

    def _judge(self, use: MemoryUse) -> MemoryAlert | None:
        """The alert that a reading gives rise to, if any; called with the lock held."""
        shares = self._limits["gpu" if use.source.startswith("gpu") else "process"]
        limits = {level: _in_bytes(limit, use.total_bytes) for level, limit in shares.items()}
        state = self._states.setdefault(use.source, _State())
        state.pressure = self._level(use.used_bytes, limits, state.pressure)
        before, now = state.announced, state.pressure
        if now == before:
            return None
        moment = self._clock()
        if now > before:
            if moment - state.told_at.get(now, -float("inf")) < self.quiet_s:
                return None
            state.told_at[now] = moment
        state.announced = now
        return MemoryAlert(now, before, use, limits[now if now > before else before])

    def _level(self, used: int, limits: dict[MemoryPressure, int], now: MemoryPressure) -> MemoryPressure:
        for level in (MemoryPressure.HARD, MemoryPressure.SOFT):
            if level in limits and used >= limits[level] * (1 - self.hysteresis if now >= level else 1):
                return level
        return MemoryPressure.NONE

    def _tell(self, alert: MemoryAlert) -> None:
        levels = {MemoryPressure.SOFT: logging.WARNING, MemoryPressure.HARD: logging.ERROR}
        logger.log(levels.get(alert.pressure, logging.INFO) if alert.rising else logging.INFO, "%s", alert)
        for alerted in self.on_alert:
            try:
                alerted(alert)
            except Exception:  # the caller's code must not end the watching
                logger.exception("on_alert failed; watching goes on")


@dataclass
class _State:
    """What is known of one source: its pressure, the one last told of, and when each limit was last told of."""

    pressure: MemoryPressure = MemoryPressure.NONE
    announced: MemoryPressure = MemoryPressure.NONE
    told_at: dict[MemoryPressure, float] = field(default_factory=dict)


def reusable_gpu_bytes(device: int) -> int:
    """Bytes of a CUDA device that PyTorch's allocator in this process holds and no tensor uses."""
    if not torch.cuda.is_initialized() or device >= torch.cuda.device_count():  # type: ignore[no-untyped-call]
        return 0
    return torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _checked(soft: Limit | None, hard: Limit | None, prefix: str) -> dict[MemoryPressure, Limit]:
    given = {MemoryPressure.SOFT: soft, MemoryPressure.HARD: hard}
    for level, limit in given.items():
        if limit is not None and (limit <= 0 or (isinstance(limit, float) and limit > 1)):
            name = f"{prefix}{level.name.lower()}"
            raise ValueError(f"{name} is bytes (an int above 0) or a share (a float above 0, up to 1), not {limit!r}")
    if soft is not None and hard is not None and type(soft) is type(hard) and soft > hard:
        raise ValueError(f"{prefix}soft must not be above {prefix}hard, as {soft!r} is above {hard!r}")
    return {level: limit for level, limit in given.items() if limit is not None}


def _in_bytes(limit: Limit, total: int) -> int:
    return int(limit * total) if isinstance(limit, float) else limit
