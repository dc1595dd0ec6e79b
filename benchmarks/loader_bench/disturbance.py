"""How busy other processes kept the machine: figures taken beside them say little."""

from __future__ import annotations

import os
import time
from pathlib import Path

from chirpid_patch import usable_cpus

_STAT = Path("/proc/stat")


class Disturbance:
    """Measures from its creation on."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._busy = _busy_seconds()
        self._own = _own_seconds()

    def share(self) -> float | None:
        """Share of the CPUs that others used; None where the system does not tell.

        Ask when all worker processes have ended: only then is their time known to be ours.
        """
        busy = _busy_seconds()
        if self._busy is None or busy is None:
            return None
        others = busy - self._busy - (_own_seconds() - self._own)
        elapsed = time.perf_counter() - self._begun
        return min(1.0, max(0.0, others / (elapsed * (os.cpu_count() or 1))))


def _busy_seconds() -> float | None:
    """CPU seconds that all processes of the machine have used, and that it was kept from using."""
    if usable_cpus() != os.cpu_count() or not _STAT.is_file():
        return None  # part of a larger machine: its other processes run on other CPUs
    user, nice, system, _, _, irq, softirq, steal, *_ = map(int, _STAT.read_text(encoding="ascii").split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
