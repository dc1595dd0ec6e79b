"""How many CPUs this process may use: affinity and cgroup quota, not the CPUs of the machine."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from chirpid_patch.machine.ranks import local_ranks

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_CGROUP_OF_PROCESS = Path("/proc/self/cgroup")


def _affinity() -> int:
    if hasattr(os, "process_cpu_count"):  # Python 3.13: affinity and the PYTHON_CPU_COUNT setting
        return int(os.process_cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):  # not a Linux machine, or no such controller
        return None


def _groups(process_file: Path) -> list[tuple[str, PurePosixPath]]:
    """(controllers, path) of each cgroup this process is in; version 2 has no controllers in its line."""
    groups = []
    for line in (_read(process_file) or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            groups.append((parts[1], PurePosixPath(parts[2].lstrip("/"))))
    return groups


def _quota_v2(folder: Path) -> float | None:
    words = (_read(folder / "cpu.max") or "").split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return None  # no such file, or "max": no limit
    return int(words[0]) / int(words[1])


def _quota_v1(folder: Path) -> float | None:
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if quota is None or period is None or not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None  # a quota of -1 means no limit
    return int(quota) / int(period)


def cgroup_quota(root: Path = _CGROUP_ROOT, process_file: Path = _CGROUP_OF_PROCESS) -> float | None:
    """CPUs the tightest cgroup limit on the way up from this process's group allows; None without a limit."""
    limits: list[float] = []
    for controllers, path in _groups(process_file) or [("", PurePosixPath())]:
        names = controllers.split(",")
        if controllers and "cpu" not in names:
            continue
        mounts = [root / controllers, root / "cpu"] if controllers else [root]
        read = _quota_v1 if controllers else _quota_v2
        for mount in mounts:
            # Inside a container the path in the file may not exist below the mount: the mount itself counts
            # then.
            for group in (path, *path.parents):
                limit = read(mount / group)
                if limit is not None:
                    limits.append(limit)
    return min(limits, default=None)


def usable_cpus(root: Path = _CGROUP_ROOT, process_file: Path = _CGROUP_OF_PROCESS) -> int:
    """CPUs this process may use, at least 1: its affinity, bounded by its cgroup quota rounded down."""
    quota = cgroup_quota(root, process_file)
    count = _affinity()
    return max(1, count if quota is None else min(count, int(quota)))


def rank_cpus() -> int:
    """CPUs of this process where the ranks on this machine share them: 0 where there are more ranks than CPUs."""
    return usable_cpus() // local_ranks()


def spare_cpus() -> int:
    """CPUs of this rank beside the one it trains on."""
    return max(rank_cpus() - 1, 0)
