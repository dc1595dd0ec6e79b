"""A thread that checks memory limits while a training runs, and logs which settings to change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntEnum

import torch

from chirpid_patch.machine.nvml import GpuProbe
from chirpid_patch.machine.polling import call_repeatedly
from chirpid_patch.machine.process_memory import process_memory
from chirpid_patch.machine.usable_memory import usable_memory

logger = logging.getLogger("chirpid_patch")

#: An alert ends when the memory in use has fallen below the limit by this share of the limit.
_HYSTERESIS = 0.1


class MemoryPressure(IntEnum):
    """The highest limit that the memory in use exceeds: SOFT or HARD, or NONE if memory exceeds no limit."""

    NONE = 0
    SOFT = 1
    HARD = 2


@dataclass(frozen=True)
class MemoryUse:
    """The memory that processes or a GPU use at one moment.

    Attributes:
        source: "process" for this process with its workers, or "gpu 0", "gpu 1", ….
        used_bytes: number of bytes in use.
        total_bytes: number of bytes that this process may use, or that the GPU has.
        processes: number of processes that use this memory, if ``source`` is "process"; 1 for a GPU.
    """

    source: str
    used_bytes: int
    total_bytes: int
    processes: int = 1


@dataclass(frozen=True)
class MemoryAlert:
    """A report that memory has exceeded a limit, or has fallen below a limit again.

    Attributes:
        pressure: the highest limit that counts as exceeded now (see ``MemoryWatch``).
        before: the highest limit that counted as exceeded at the previous reading.
        use: the memory in use.
        limit_bytes: the limit in bytes that memory has exceeded, or has fallen below.
    """

    pressure: MemoryPressure
    before: MemoryPressure
    use: MemoryUse
    limit_bytes: int

    @property
    def rising(self) -> bool:
        """Return whether memory has exceeded a limit (True) or has fallen below a limit (False)."""
        return self.pressure > self.before

    def __str__(self) -> str:
        used, limit = self.use.used_bytes / 2**30, self.limit_bytes / 2**30
        where = "this process and its workers use" if self.use.source == "process" else f"{self.use.source} uses"
        if not self.rising:
            return f"{where} {used:.2f} GiB, below the limit of {limit:.2f} GiB again"
        return f"{where} {used:.2f} GiB, over the {self.pressure.name.lower()} limit of {limit:.2f} GiB: {self.advice}"

    @property
    def advice(self) -> str:
        """Return the settings to change, as a sentence without a full stop."""
        if self.use.source != "process":
            return (
                "lower batch_size (see handle_oom_errors); with MultiScaleStep, also lower the largest scale, or pass "
                "memory_budget"
            )
        workers = self.use.processes - 1
        if workers > 0:
            several = f"{workers} processes are running" if workers > 1 else "1 process is running"
            return f"lower num_workers ({several}), prefetch_factor or batch_size"
        return "lower batch_size, or keep images as bytes and scale them on demand (memory_efficient=True)"


class MemoryWatch:
    """Watch, in a thread, the memory of this process with its workers, and of the visible GPUs.

        with MemoryWatch(soft=0.8, hard=0.95, on_alert=notify) as watch:
            train(...)

    When memory exceeds a limit, the watch logs an alert with the settings to change. When memory falls below 90 % of
    this limit, the watch logs another alert. Until then, the limit counts as exceeded. The property ``pressure`` is the
    highest limit that counted as exceeded at the last reading. The watch misses peaks between two readings.

    Args:
        soft: lower limit, as a share of the total memory. The total memory is the memory that this process and its
            workers may use, or the memory of each GPU. On a GPU, memory in use includes the memory of other programs,
            but not memory that PyTorch's allocator only reserves.
        hard: upper limit, as a share of the total memory, at least ``soft`` and at most 1.
        interval_s: seconds between two readings.
        on_alert: function that is called with each alert, mostly in the thread of the watch; None: no function. If this
            function raises an error, the watch logs the error and continues.

    Raises:
        ValueError: ``interval_s`` is 0 or negative, or the limits do not meet ``0 < soft <= hard <= 1``.
        NotImplementedError: psutil is not installed.
    """

    def __init__(
        self,
        soft: float = 0.8,
        hard: float = 0.95,
        *,
        interval_s: float = 1.0,
        on_alert: Callable[[MemoryAlert], object] | None = None,
    ) -> None:
        if not 0 < soft <= hard <= 1:
            raise ValueError(f"soft and hard must be shares with 0 < soft <= hard <= 1, not {soft} and {hard}")
        if interval_s <= 0:
            raise ValueError("interval_s must be above 0 seconds")
        self._limits = {MemoryPressure.HARD: hard, MemoryPressure.SOFT: soft}
        self.interval_s = interval_s
        self.on_alert = on_alert
        self._pressures: dict[str, MemoryPressure] = {}
        self._running: ExitStack | None = None
        self._probe: GpuProbe | None = None

    @property
    def pressure(self) -> MemoryPressure:
        """Return the highest limit that counted as exceeded at the last reading of this process and the GPUs."""
        return max(tuple(self._pressures.values()), default=MemoryPressure.NONE)

    def check(self) -> list[MemoryAlert]:
        """Read memory now in the calling thread, log each new alert, call ``on_alert``, and return the new alerts."""
        alerts = [alert for use in self._uses() if (alert := self._alert_for(use)) is not None]
        for alert in alerts:
            self._log_alert(alert)
        return alerts

    def start(self) -> MemoryWatch:
        """Start the watch, unless the watch is already running, and return this object.

        The watch reads memory immediately, and then repeatedly until the program calls ``stop``.
        """
        if self._running is None:
            with ExitStack() as stack:
                self._probe = stack.enter_context(GpuProbe())
                stack.callback(setattr, self, "_probe", None)
                self.check()
                stack.enter_context(call_repeatedly(self.check, self.interval_s, "chirpid-memory-watch"))
                self._running = stack.pop_all()
        return self

    def stop(self) -> None:
        """End the watch. If ``on_alert`` is running, wait for its end. Calling ``stop`` twice is safe."""
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def __enter__(self) -> MemoryWatch:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _uses(self) -> list[MemoryUse]:
        if self._probe is not None:
            return memory_in_use(self._probe)
        with GpuProbe() as probe:
            return memory_in_use(probe)

    def _alert_for(self, use: MemoryUse) -> MemoryAlert | None:
        """Return the alert for a reading; None if the source had the same pressure at the previous reading."""
        before = self._pressures.get(use.source, MemoryPressure.NONE)
        limits = {level: int(share * use.total_bytes) for level, share in self._limits.items()}
        over = (
            level
            for level, limit in limits.items()
            if use.used_bytes >= limit * (1 - _HYSTERESIS if before >= level else 1)
        )
        now = self._pressures[use.source] = next(over, MemoryPressure.NONE)
        return None if now == before else MemoryAlert(now, before, use, limits[max(now, before)])

    def _log_alert(self, alert: MemoryAlert) -> None:
        levels = {MemoryPressure.SOFT: logging.WARNING, MemoryPressure.HARD: logging.ERROR}
        logger.log(levels[alert.pressure] if alert.rising else logging.INFO, "%s", alert)
        if self.on_alert is not None:
            try:
                self.on_alert(alert)
            except Exception:  # an error of the caller's code must not end the watch
                logger.exception("on_alert raised an error; the memory watch continues")


def memory_in_use(probe: GpuProbe) -> list[MemoryUse]:
    """Return the memory in use of this process with its workers, and of each GPU that ``probe`` reads."""
    own = process_memory(include_children=True)
    return [
        MemoryUse("process", own.bytes, usable_memory(), own.processes),
        *(
            MemoryUse(f"gpu {number}", gpu.memory_used_bytes - reusable_gpu_bytes(number), gpu.memory_total_bytes)
            for number, gpu in enumerate(probe.read().readings)
            if gpu.memory_used_bytes is not None and gpu.memory_total_bytes is not None
        ),
    ]


def reusable_gpu_bytes(device: int) -> int:
    """Return the bytes of a CUDA device that PyTorch's allocator in this process reserves, but does not use."""
    if not torch.cuda.is_initialized() or device >= torch.cuda.device_count():  # type: ignore[no-untyped-call]
        return 0
    return torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
