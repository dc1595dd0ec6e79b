"""Whether other processes had the cores: a time taken beside them says little about the code that was timed.

The system counts how long every CPU was busy; what this process and its children did not use of that, others did. Time
that a hypervisor gave to other machines (steal) counts as theirs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil

__all__ = ["BUSY_ABOVE", "Span", "Watch", "not_watched", "own_s", "share_of_others"]

BUSY_ABOVE = 0.10
"""Share of the CPUs in use by others above which a measurement counts as disturbed. An idle desktop or server is
below 2 %; one busy process on ten cores, or a fifth of the time on two, reaches it."""

_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
"""What a CPU is busy with: time of guests is part of user time."""

_COUNTED_FROM_S = 0.2
"""Where so much CPU time of our own did not show in the system's count, it does not count (some sandboxes)."""


@dataclass(frozen=True)
class Span:
    """What was used of the CPUs for a while, in CPU seconds.

    Attributes:
        busy_s: by anybody.
        own_s: by us.
        available_s: what there was to use.
    """

    busy_s: float
    own_s: float
    available_s: float


class Watch:
    """Measures from its creation on.

    Args:
        used_s: gives the CPU seconds used by all of ours so far; by default those of this process and of its children
            that were waited for.
    """

    def __init__(self, used_s: Callable[[], float] | None = None) -> None:
        self._cpus = _own_cpus()
        self._used_s = used_s or own_s
        self._began = time.perf_counter()
        self._busy = _busy_s(self._cpus)
        self._own = self._used_s()

    def span(self) -> Span | None:
        """What was used since the beginning; None where that is not known."""
        busy = _busy_s(self._cpus)
        if self._busy is None or busy is None or not_watched() is not None:
            return None
        available = (time.perf_counter() - self._began) * len(self._cpus)
        return Span(busy - self._busy, self._used_s() - self._own, available)

    def others(self) -> float | None:
        """Share (0 to 1) of the CPUs this process may use that others used; None where that is not known.

        Ask when all that ours used is known: that of a child is when it has ended and was waited for.
        """
        return share_of_others([self.span()])


def share_of_others(spans: Iterable[Span | None]) -> float | None:
    """Share (0 to 1) of the CPUs that others used in all these spans together; None where that is not known.

    The system counts in hundredths of a second, so a short span by itself says little.
    """
    known = [span for span in spans if span is not None]
    busy = sum(span.busy_s for span in known)
    own = sum(span.own_s for span in known)
    available = sum(span.available_s for span in known)
    if available == 0 or (busy == 0 and own > _COUNTED_FROM_S):
        return None
    return min(1.0, max(0.0, (busy - own) / available))


def not_watched() -> str | None:
    """Why other processes cannot be watched here, or None where they can be."""
    cpus = _own_cpus()
    if _busy_s(cpus) is None:
        return "this system does not count how long each CPU is busy"
    from chirpid_patch.machine.cpus import cgroup_quota  # imports PyTorch, which options can do without

    quota = cgroup_quota()
    if quota is not None and quota < len(cpus):
        return "a quota limits this process to part of the CPUs, and others may well run on the rest"
    return None


def _own_cpus() -> frozenset[int]:
    """CPUs this process, and so its children, may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _busy_s(cpus: frozenset[int]) -> float | None:
    """Seconds that ``cpus`` were busy since the system started, all together; None where nothing is counted."""
    try:
        counted = psutil.cpu_times(percpu=True)
    except OSError:
        return None
    if max(cpus) >= len(counted):  # those that are switched off are not counted, so the places are no numbers
        return None
    return sum(getattr(counted[cpu], kind, 0.0) for cpu in cpus for kind in _BUSY) or None


def own_s() -> float:
    """CPU seconds of this process and of its children that were waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
