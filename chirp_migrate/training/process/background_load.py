"""Measure how much CPU time other processes use, because timings are unreliable if other processes are busy.

The operating system counts for how long each CPU is busy. The CPU time of other processes is the busy time of all CPUs
on which this process may run, minus the CPU time of this process and its children. The busy time includes steal time,
in which a hypervisor runs other virtual machines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

BUSY_ABOVE = 0.10
"""If other processes use more than this share of the CPUs (0 to 1), a measurement counts as disturbed.

For comparison: on an idle desktop or server, other processes use less than 2 %, and one busy process uses 10 % of ten
CPUs.
"""

_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
"""Fields of ``psutil.cpu_times`` that count as busy.

The field ``guest`` is missing here, because ``user`` already includes the time of virtual machines.
"""

_COUNTED_FROM_S = 0.2
"""If this process used more than this number of CPU seconds, but the system counted no busy time, the count of the
system is not reliable."""


def cpu_seconds_of_this_process() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class BackgroundLoadWatch:
    """Measures the CPU use of other processes as one total over all contexts of :meth:`watching`.

    The operating system counts CPU time in hundredths of a second, so the measurement of a single short context would
    be inaccurate.
    """

    def __init__(self) -> None:
        self._cpus = _own_cpus()
        self._busy_s = self._own_s = self._available_s = 0.0

    @contextmanager
    def watching(self, used_s: Callable[[], float] = cpu_seconds_of_this_process) -> Iterator[None]:
        """Return a context. The CPU use of other processes during this context is added to the measurement.

        Args:
            used_s: function that returns the CPU seconds that this process and its children have used so far.
        """
        began, busy_before, own_before = time.perf_counter(), _busy_s(self._cpus), used_s()
        yield
        busy = _busy_s(self._cpus)
        if busy is not None and busy_before is not None and why_cpu_use_not_measurable() is None:
            self._busy_s += busy - busy_before
            self._own_s += used_s() - own_before
            self._available_s += (time.perf_counter() - began) * len(self._cpus)

    def share_of_others(self) -> float | None:
        """Return the CPU time of other processes as a share (0 to 1) of the time of the CPUs of this process.

        The CPUs of this process are the CPUs on which it may run. The result is None if the share is not known.
        """
        if self._available_s == 0 or (self._busy_s == 0 and self._own_s > _COUNTED_FROM_S):
            return None
        return min(1.0, max(0.0, (self._busy_s - self._own_s) / self._available_s))


def why_cpu_use_not_measurable() -> str | None:
    """Return why the CPU use of other processes cannot be measured on this system; None if it can be measured."""
    cpus = _own_cpus()
    if _busy_s(cpus) is None:
        return "this system does not count how long each CPU is busy"
    from chirpid_patch.machine.cpus import cgroup_quota  # not at the top, because this module imports PyTorch

    quota = cgroup_quota()
    if quota is not None and quota < len(cpus):
        return "this process has a CPU quota, so other processes may use its CPUs without slowing it down"
    return None


def _own_cpus() -> frozenset[int]:
    """Return the CPUs on which this process and its children may run."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _busy_s(cpus: frozenset[int]) -> float | None:
    """Return the busy seconds of all ``cpus`` together since the system started; None without such a counter."""
    try:
        counted = psutil.cpu_times(percpu=True)
    except OSError:
        return None
    if max(cpus) >= len(counted):  # disabled CPUs are not in the list, so its positions are not CPU numbers
        return None
    return sum(getattr(counted[cpu], kind, 0.0) for cpu in cpus for kind in _BUSY) or None
