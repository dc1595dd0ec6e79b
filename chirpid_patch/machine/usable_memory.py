"""Functions that return how much memory this process may use: all memory of the machine, or the limit of a cgroup."""

from __future__ import annotations

import os
from pathlib import Path

from chirpid_patch.machine.cgroups import OF_PROCESS, ROOT, cgroup_folders, read_or_empty
from chirpid_patch.machine.process_memory import process_memory

try:
    import psutil
except ImportError:  # optional: POSIX systems report their memory without psutil
    psutil = None


def machine_memory() -> int:
    """Return how much memory this machine has, in bytes.

    Raises:
        NotImplementedError: this system is Windows, and psutil is not installed.
    """
    if psutil is not None:
        return int(psutil.virtual_memory().total)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):
        raise NotImplementedError("install psutil to read this machine's memory") from None


def cgroup_memory_limit(cgroup_root: Path = ROOT, process_file: Path = OF_PROCESS) -> int | None:
    """Return the lowest memory limit of the cgroups of this process, in bytes; None without a limit."""
    folders = cgroup_folders("memory", cgroup_root, process_file)
    texts = [read_or_empty(folder / ("memory.limit_in_bytes" if is_v1 else "memory.max")) for folder, is_v1 in folders]
    return min((int(text) for text in texts if text.isdecimal()), default=None)  # "max": no limit


def usable_memory(cgroup_root: Path = ROOT, process_file: Path = OF_PROCESS) -> int:
    """Return how many bytes this process and its child processes together may use.

    Raises:
        NotImplementedError: this system is Windows, and psutil is not installed.
    """
    limit, machine = cgroup_memory_limit(cgroup_root, process_file), machine_memory()
    return machine if limit is None else min(limit, machine)


def available_memory() -> int:
    """Return how many bytes this process can allocate before the machine swaps or the cgroup limit is reached.

    Raises:
        NotImplementedError: psutil is not installed.
    """
    if psutil is None:
        raise NotImplementedError("install psutil to read how much memory is free")
    free, limit = int(psutil.virtual_memory().available), cgroup_memory_limit()
    return free if limit is None else max(min(free, limit - process_memory(include_children=True).bytes), 0)
