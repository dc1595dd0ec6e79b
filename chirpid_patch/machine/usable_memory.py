"""How much memory this process may use: the machine's, or its cgroup's limit where that is lower."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

try:
    import psutil
except ImportError:  # optional: POSIX systems tell without it
    psutil = None

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_CGROUP_OF_PROCESS = Path("/proc/self/cgroup")


def machine_memory() -> int:
    """Bytes of memory in this machine.

    Raises NotImplementedError where the system tells only psutil and that is not installed (Windows).
    """
    if psutil is not None:
        return int(psutil.virtual_memory().total)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):
        raise NotImplementedError("install psutil to learn this machine's memory, or give limits in bytes") from None


def cgroup_memory_limit(root: Path = _CGROUP_ROOT, process_file: Path = _CGROUP_OF_PROCESS) -> int | None:
    """Bytes that the tightest cgroup limit on the way up from this process's group allows; None without a limit."""
    limits = []
    for line in _text(process_file).splitlines():
        _, controllers, place = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        mount, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        path = PurePosixPath(place.lstrip("/"))
        # Inside a container the path in the file may not exist below the mount: the mount itself counts then.
        for group in (path, *path.parents):
            words = _text(mount / group / name).split()
            if words and words[0].isdecimal():  # "max": no limit
                limits.append(int(words[0]))
    return min(limits, default=None)


def usable_memory(root: Path = _CGROUP_ROOT, process_file: Path = _CGROUP_OF_PROCESS) -> int:
    """Bytes that this process and those it starts may use together.

    Raises NotImplementedError as ``machine_memory``.
    """
    limit, machine = cgroup_memory_limit(root, process_file), machine_memory()
    return machine if limit is None else min(limit, machine)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:  # not a Linux machine, or no such controller
        return ""
