"""The CPU use of other processes, which makes timings unreliable.

The system counts how long every CPU was busy. Other processes used the part that this process and its children did not
use. Time that a hypervisor gave to other machines (steal) counts as time of other processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

__all__ = ["BUSY_ABOVE", "Watch", "not_watched", "own_cpu_seconds"]

BUSY_ABOVE = 0.10
"""Share of the CPUs in use by others above which a measurement counts as disturbed. An idle desktop or server is
below 2 %; one busy process on ten cores, or a fifth of the time on two, reaches it."""

_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
"""Fields of busy CPU time: the time of guests is part of user time."""

_COUNTED_FROM_S = 0.2
"""If this many seconds of our own CPU time are missing in the system's count, the count is wrong (some sandboxes)."""


def own_cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Watch:
    """The CPU use of other processes during :meth:`watching`, over all these times.

    The system counts in hundredths of a second, so a single short time is inaccurate.
    """

    def __init__(self) -> None:
        self._cpus = _own_cpus()
        self._busy_s = self._own_s = self._available_s = 0.0

    @contextmanager
    def watching(self, used_s: Callable[[], float] = own_cpu_seconds) -> Iterator[None]:
        """Return a context that watches; at its end, the CPU time of all own processes must be known.

        Args:
            used_s: returns the CPU seconds that all own processes have used so far.
        """
        began, busy_before, own_before = time.perf_counter(), _busy_s(self._cpus), used_s()
        yield
        busy = _busy_s(self._cpus)
        if busy is not None and busy_before is not None and not_watched() is None:
            self._busy_s += busy - busy_before
            self._own_s += used_s() - own_before
            self._available_s += (time.perf_counter() - began) * len(self._cpus)

    def others(self) -> float | None:
        """Return the share (0 to 1) of the usable CPUs that other processes used; None if it is not known."""
        if self._available_s == 0 or (self._busy_s == 0 and self._own_s > _COUNTED_FROM_S):
            return None
        return min(1.0, max(0.0, (self._busy_s - self._own_s) / self._available_s))


def not_watched() -> str | None:
    """Return why other processes cannot be watched on this system; None if they can."""
    cpus = _own_cpus()
    if _busy_s(cpus) is None:
        return "this system does not count how long each CPU is busy"
    from chirpid_patch.machine.cpus import cgroup_quota  # imports PyTorch, which options do not need

    quota = cgroup_quota()
    if quota is not None and quota < len(cpus):
        return "a quota limits this process to part of the CPUs, and other processes may use the rest"
    return None


def _own_cpus() -> frozenset[int]:
    """Return the CPUs on which this process and its children may run."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _busy_s(cpus: frozenset[int]) -> float | None:
    """Return the seconds that ``cpus`` together were busy since the system started.

    The result is None if the system does not count.
    """
    try:
        counted = psutil.cpu_times(percpu=True)
    except OSError:
        return None
    if max(cpus) >= len(counted):  # disabled CPUs are missing, so positions are not CPU numbers
        return None
    return sum(getattr(counted[cpu], kind, 0.0) for cpu in cpus for kind in _BUSY) or None
