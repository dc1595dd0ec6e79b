"""How much memory a process and its workers use, in bytes.

PSS (proportional set size) is preferred: pages shared between a process and its workers count once in all.
RSS counts them once for each process, so that forked workers over one dataset seem to need many times what
they do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

try:
    import psutil
except ImportError:  # optional: Linux is read from /proc without it
    psutil = None


@dataclass(frozen=True)
class MemoryReading:
    """Memory of `processes` processes together, in bytes.

    `kind` says what was measured: "pss", "rss", "uss" (a PSS is not to be had on this system, the pages that
    belong to a process alone are) or "peak-rss" (the most the process ever held: all that is known without
    psutil on a system without /proc).
    """

    bytes: int
    kind: str
    processes: int

    def __str__(self) -> str:
        many = f" in {self.processes} processes" if self.processes > 1 else ""
        return f"{self.bytes / 2**20:.0f} MiB {self.kind.upper()}{many}"


def process_memory(pid: int | None = None, *, include_children: bool = False) -> MemoryReading:
    """Memory of a process (by default this one), in bytes.

    Args:
        pid: the process; reading another than this one needs Linux or psutil.
        include_children: add the processes it started, workers included, and theirs. One that ends while it
            is read counts as nothing. Needs Linux or psutil.

    Raises:
        ProcessLookupError: there is no such process, or it may not be read.
        NotImplementedError: this system needs the psutil package for what was asked.
    """
    root = os.getpid() if pid is None else pid
    if _proc_available():
        return _total(root, _proc_children(root) if include_children else [], _proc_readers())
    if psutil is not None:
        return _from_psutil(psutil, root, include_children)
    if root == os.getpid() and not include_children:
        return _peak_of_this_process()
    raise NotImplementedError("install psutil to read the memory of other processes on this system")


Reader = Callable[[int], "int | None"]


def _total(root: int, children: list[int], readers: tuple[tuple[str, Reader], ...]) -> MemoryReading:
    """The first kind of measure that the process itself gives, summed over it and its children."""
    for kind, read in readers:
        own = read(root)
        if own is None:
            continue
        others = [value for value in map(read, children) if value is not None]
        return MemoryReading(own + sum(others), kind, 1 + len(others))
    raise ProcessLookupError(f"no process {root}, or its memory may not be read")


# --- Linux: /proc -------------------------------------------------------------------------------------------


def _proc_available() -> bool:
    return Path("/proc/self/statm").exists()


def _proc_readers() -> tuple[tuple[str, Reader], ...]:
    return (("pss", _proc_pss), ("rss", _proc_rss))


def _proc_pss(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:  # Linux before 4.14, a process of another user, or one that has ended
        return None
    for line in lines:
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return None


def _proc_rss(pid: int) -> int | None:
    try:
        words = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:  # the process has ended
        return None
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE")


def _parent(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # the process has ended
        return None
    # "pid (name) state ppid …": the name may hold spaces and brackets, so count from its last bracket.
    return int(text.rpartition(")")[2].split()[1])


def _proc_children(root: int) -> list[int]:
    by_parent: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            parent = _parent(int(entry.name))
            if parent is not None:
                by_parent.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        children = by_parent.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


# --- elsewhere: psutil, or the peak of this process ---------------------------------------------------------


def _from_psutil(psutil: ModuleType, root: int, include_children: bool) -> MemoryReading:
    def uss(pid: int) -> int | None:
        try:
            return int(psutil.Process(pid).memory_full_info().uss)
        except (psutil.Error, AttributeError):  # gone, not ours, or a system that has no such figure
            return None

    def rss(pid: int) -> int | None:
        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:  # gone, or not ours
            return None

    children: list[int] = []
    if include_children:
        try:
            children = [child.pid for child in psutil.Process(root).children(recursive=True)]
        except psutil.NoSuchProcess:
            raise ProcessLookupError(f"no process {root}, or its memory may not be read") from None
    # Summed over processes, RSS would count shared pages several times; the unique part counts none twice.
    readers = (("uss", uss), ("rss", rss)) if include_children else (("rss", rss),)
    return _total(root, children, readers)


def _peak_of_this_process() -> MemoryReading:
    try:
        import resource
    except ImportError:
        raise NotImplementedError("install psutil to read memory on this system") from None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, the others KiB.
    return MemoryReading(peak if sys.platform == "darwin" else peak * 1024, "peak-rss", 1)
