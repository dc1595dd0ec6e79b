"""The memory that this process may use: that of the machine, or the limit of its cgroup if that is lower."""

from __future__ import annotations

import os
from pathlib import Path

from chirpid_patch.machine.cgroups import OF_PROCESS, ROOT, group_folders, read
from chirpid_patch.machine.process_memory import process_memory

try:
    import psutil
except ImportError:  # optional: POSIX systems report it without psutil
    psutil = None


def machine_memory() -> int:
    """Return the bytes of memory in this machine.

    Raises NotImplementedError if only psutil can read it, and psutil is not installed (Windows).
    """
    if psutil is not None:
        return int(psutil.virtual_memory().total)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):
        raise NotImplementedError("install psutil to read this machine's memory") from None


def cgroup_memory_limit(root: Path = ROOT, process_file: Path = OF_PROCESS) -> int | None:
    """Return the lowest memory limit, in bytes, of this process's cgroup and its parents; None without a limit."""
    folders = group_folders("memory", root, process_file)
    texts = [read(folder / ("memory.limit_in_bytes" if is_v1 else "memory.max")) for folder, is_v1 in folders]
    return min((int(text) for text in texts if text.isdecimal()), default=None)  # "max": no limit


def usable_memory(root: Path = ROOT, process_file: Path = OF_PROCESS) -> int:
    """Return the bytes that this process and its child processes may use together.

    Raises NotImplementedError as ``machine_memory`` does.
    """
    limit, machine = cgroup_memory_limit(root, process_file), machine_memory()
    return machine if limit is None else min(limit, machine)


def available_memory() -> int:
    """Return the bytes that this process can allocate before the machine swaps or its cgroup's limit is reached.

    Raises NotImplementedError without psutil.
    """
    if psutil is None:
        raise NotImplementedError("install psutil to find out what fits into this machine's memory")
    free, limit = int(psutil.virtual_memory().available), cgroup_memory_limit()
    return free if limit is None else max(min(free, limit - process_memory(include_children=True).bytes), 0)
