"""The memory of a process and its workers, in bytes.

The functions prefer PSS (proportional set size), which counts pages that a process shares with its workers once. RSS
counts them for every process, so forked workers over one dataset seem to need many times their memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chirpid_patch.machine.cgroups import read

try:
    import psutil
except ImportError:  # optional: the runtime needs torch and numpy only
    psutil = None

#: File with the peak memory of a process on Linux, with its unit.
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class MemoryReading:
    """Memory of `processes` processes together, in bytes.

    `kind` is the kind of measurement: "pss", "rss", "uss" (if a system has no PSS: the pages of one process alone) or
    "peak-rss" (the largest memory of the process so far: all that is available without psutil).
    """

    bytes: int
    kind: str
    processes: int

    def __str__(self) -> str:
        many = f" in {self.processes} processes" if self.processes > 1 else ""
        return f"{self.bytes / 2**20:.0f} MiB {self.kind.upper()}{many}"


def process_memory(pid: int | None = None, *, include_children: bool = False) -> MemoryReading:
    """Return the memory of a process (by default this one), in bytes.

    Args:
        pid: the process; another process than this one needs psutil.
        include_children: add all processes that it started, directly or indirectly, such as workers. A process that
            ends meanwhile counts as 0 bytes. Needs psutil.

    Raises:
        ProcessLookupError: there is no such process, or its memory may not be read.
        NotImplementedError: the reading needs the psutil package, which is not installed.
    """
    if psutil is None:
        if pid is None and not include_children:
            return MemoryReading(most_resident(), "peak-rss", 1)
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
    """Return the memory of ``process`` in one measure; None if it has ended, or this measure cannot be read."""
    try:
        memory = process.memory_info() if kind == "rss" else process.memory_full_info()
    except psutil.Error:
        return None
    value = getattr(memory, kind, None)
    return None if value is None else int(value)


def resident_memory() -> int:
    """Return the resident bytes of this process; raise NotImplementedError without psutil."""
    if psutil is None:
        raise NotImplementedError("install psutil to find out what fits into this machine's memory")
    return int(psutil.Process().memory_info().rss)


def most_resident() -> int:
    """Return the largest resident bytes of this process so far; raise NotImplementedError on Windows without psutil."""
    if stated := re.search(r"^VmHWM:\s*(\d+) kB$", read(_STATUS), re.MULTILINE):
        return int(stated[1]) * 1024
    try:
        import resource
    except ImportError:
        if psutil is None:
            raise NotImplementedError("install psutil to read memory on this system") from None
        return int(psutil.Process().memory_info().peak_wset)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS, the one such system without /proc
