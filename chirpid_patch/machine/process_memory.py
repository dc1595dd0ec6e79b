"""Functions that read how much memory a process and its workers use, in bytes.

If possible, the functions read PSS (proportional set size), in which shared memory counts only once. In RSS (resident
set size), shared memory counts again for every process. So in RSS, forked workers that share a dataset seem to use
several times their real memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chirpid_patch.machine.cgroups import read_or_empty

try:
    import psutil
except ImportError:  # optional: the runtime needs torch and numpy only
    psutil = None

#: File with the peak memory of this process on Linux.
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class MemoryReading:
    """The memory that one or several processes use.

    Attributes:
        bytes: memory of all these processes together, in bytes.
        kind: how the memory was measured. In "pss", shared memory counts once. In "uss" (on systems without PSS),
            shared memory does not count. In "rss", shared memory counts for every process. "peak-rss" (without psutil)
            is the largest RSS of the process so far.
        processes: number of processes.
    """

    bytes: int
    kind: str
    processes: int

    def __str__(self) -> str:
        many = f" in {self.processes} processes" if self.processes > 1 else ""
        return f"{self.bytes / 2**20:.0f} MiB {self.kind.upper()}{many}"


def process_memory(pid: int | None = None, *, include_children: bool = False) -> MemoryReading:
    """Return the memory that a process uses.

    Args:
        pid: id of the process; None: this process. Reading another process requires psutil.
        include_children: whether to add the memory of all child processes, such as workers, and of their child
            processes. A child process that has just ended counts as 0 bytes. True requires psutil.

    Raises:
        ProcessLookupError: the process does not exist, or this process is not allowed to read the memory of that
            process.
        NotImplementedError: the arguments require psutil, which is not installed.
    """
    if psutil is None:
        if pid is None and not include_children:
            return MemoryReading(peak_resident_memory(), "peak-rss", 1)
        raise NotImplementedError("install psutil to read the memory of workers and other processes")
    try:
        process = psutil.Process(pid)
        children = process.children(recursive=True) if include_children else []
    except psutil.NoSuchProcess:
        raise ProcessLookupError(f"process {pid} does not exist, or its memory cannot be read") from None
    for kind in ("pss", "uss", "rss") if include_children else ("pss", "rss"):
        own = _read(process, kind)
        if own is not None:
            others = [value for child in children if (value := _read(child, kind)) is not None]
            return MemoryReading(own + sum(others), kind, 1 + len(others))
    raise ProcessLookupError(f"process {process.pid} does not exist, or its memory cannot be read")


def _read(process: Any, kind: str) -> int | None:
    """Return the memory of ``process`` in bytes, measured as ``kind``; None if the memory cannot be read."""
    try:
        memory = process.memory_info() if kind == "rss" else process.memory_full_info()
    except psutil.Error:
        return None
    value = getattr(memory, kind, None)
    return None if value is None else int(value)


def resident_memory() -> int:
    """Return the resident memory (RSS) of this process in bytes.

    Raises:
        NotImplementedError: psutil is not installed.
    """
    if psutil is None:
        raise NotImplementedError("install psutil to read how much memory this process uses")
    return int(psutil.Process().memory_info().rss)


def peak_resident_memory() -> int:
    """Return the largest resident memory (RSS) of this process so far, in bytes.

    Raises:
        NotImplementedError: this system is Windows, and psutil is not installed.
    """
    if stated := re.search(r"^VmHWM:\s*(\d+) kB$", read_or_empty(_STATUS), re.MULTILINE):
        return int(stated[1]) * 1024
    try:
        import resource
    except ImportError:
        if psutil is None:
            raise NotImplementedError("install psutil to read memory on this system") from None
        return int(psutil.Process().memory_info().peak_wset)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS has no /proc, and ru_maxrss is in bytes on macOS
