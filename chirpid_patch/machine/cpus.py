"""The number of CPUs that this process may use: affinity and cgroup quota, not the CPUs of the machine."""

from __future__ import annotations

import os
from pathlib import Path

from chirpid_patch.machine.cgroups import OF_PROCESS, ROOT, group_folders, read
from chirpid_patch.machine.ranks import local_ranks


def _affinity() -> int:
    if hasattr(os, "process_cpu_count"):  # Python 3.13: affinity and the PYTHON_CPU_COUNT setting
        return int(os.process_cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_quota(root: Path = ROOT, process_file: Path = OF_PROCESS) -> float | None:
    """Return the number of CPUs of the smallest cgroup quota of this process; None without a limit."""
    limits: list[float] = []
    for folder, is_v1 in group_folders("cpu", root, process_file):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if is_v1 else ("cpu.max",)
        words = " ".join(read(folder / name) for name in names).split()
        # "max", or a quota of -1, is no limit.
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
            limits.append(int(words[0]) / int(words[1]))
    return min(limits, default=None)


def usable_cpus(root: Path = ROOT, process_file: Path = OF_PROCESS) -> int:
    """Return the number of CPUs that this process may use, at least 1: its affinity, at most its cgroup quota."""
    quota = cgroup_quota(root, process_file)
    count = _affinity()
    return max(1, count if quota is None else min(count, int(quota)))


def rank_cpus() -> int:
    """Return this rank's share of the CPUs of this process: 0 if there are more ranks than CPUs."""
    return usable_cpus() // local_ranks()


def spare_cpus() -> int:
    """Return the number of CPUs of this rank, less the one it trains on."""
    return max(rank_cpus() - 1, 0)
