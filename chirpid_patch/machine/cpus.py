"""Functions that return how many CPUs this process may use. CPU affinity and cgroup quotas can limit this number."""

from __future__ import annotations

import os
from pathlib import Path

from chirpid_patch.machine.cgroups import OF_PROCESS, ROOT, cgroup_folders, read_or_empty
from chirpid_patch.machine.ranks import ranks_on_this_machine


def _affinity() -> int:
    if hasattr(os, "process_cpu_count"):  # Python 3.13: respects affinity and PYTHON_CPU_COUNT
        return int(os.process_cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_quota(cgroup_root: Path = ROOT, process_file: Path = OF_PROCESS) -> float | None:
    """Return the smallest CPU quota of the cgroups of this process, as a number of CPUs; None without a quota."""
    limits: list[float] = []
    for folder, is_v1 in cgroup_folders("cpu", cgroup_root, process_file):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if is_v1 else ("cpu.max",)
        words = " ".join(read_or_empty(folder / name) for name in names).split()
        # "max" and a quota of -1 mean that there is no quota.
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
            limits.append(int(words[0]) / int(words[1]))
    return min(limits, default=None)


def usable_cpus(cgroup_root: Path = ROOT, process_file: Path = OF_PROCESS) -> int:
    """Return the number of CPUs that this process may use, at least 1.

    The result is the number of CPUs to which the process is bound (CPU affinity), or the cgroup quota if the quota is
    smaller. A quota is rounded down to a whole number.
    """
    quota = cgroup_quota(cgroup_root, process_file)
    count = _affinity()
    return max(1, count if quota is None else min(count, int(quota)))


def cpus_per_rank() -> int:
    """Return the number of usable CPUs per rank on this machine, rounded down; 0 if there are more ranks than CPUs."""
    return usable_cpus() // ranks_on_this_machine()


def cpus_for_loading() -> int:
    """Return how many CPUs this rank has for loading: its CPUs minus one CPU for the training, so possibly 0."""
    return max(cpus_per_rank() - 1, 0)
