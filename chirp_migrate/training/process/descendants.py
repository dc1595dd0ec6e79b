"""Ends what a child process started, also what left its process group by starting a session of its own.

Every process of a run inherits a variable with a word that exists nowhere else; on Linux ``/proc`` tells which
processes have it. Those that cleared their environment are found as long as their parents live. Elsewhere only the
process group is ended.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["MARKER", "end_all", "new_mark"]

MARKER = "CHIRP_MIGRATE_RUN"
"""Environment variable that marks the processes of a run."""

_PROC = Path("/proc")
_ROUNDS = 50


def new_mark() -> str:
    """A value for :data:`MARKER` that no other run has."""
    return secrets.token_hex(16)


def end_all(pid: int, mark: str, *, alive: bool) -> None:
    """Kill the process group ``pid``, every process that carries ``mark``, and what descends from ``pid``.

    What they start while they are being killed is looked for again.

    Args:
        pid: process and group, a child of this one.
        mark: what :data:`MARKER` is in its environment.
        alive: whether it has not been waited for, so that its number is still its own.
    """
    for _ in range(_ROUNDS):
        left = _marked(mark) | (_descendants(pid) if alive else set())
        if hasattr(os, "killpg"):
            # Nothing may be left of the group; macOS reports zombies as not permitted.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for other in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(other, signal.SIGKILL)
        if not left:
            return
        time.sleep(0.01)


def _marked(mark: str) -> set[int]:
    wanted = f"{MARKER}={mark}".encode()
    found: set[int] = set()
    for pid in _processes():
        with suppress(OSError):  # it ended, or is somebody else's
            if wanted in (_PROC / str(pid) / "environ").read_bytes().split(b"\0") and not _is_zombie(pid):
                found.add(pid)
    return found


def _descendants(pid: int) -> set[int]:
    parents = {other: parent for other in _processes() if (parent := _parent(other)) is not None}
    found: set[int] = set()
    wave = {pid}
    while wave:
        wave = {other for other, parent in parents.items() if parent in wave} - found
        found |= wave
    return {other for other in found if not _is_zombie(other)}


def _processes() -> list[int]:
    if not (_PROC / "self" / "stat").exists():
        return []
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()]


def _status(pid: int) -> list[str]:
    """State, parent, … of a process: the fields of ``/proc/PID/stat`` behind its name; none if it is gone."""
    with suppress(OSError):
        return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def _parent(pid: int) -> int | None:
    status = _status(pid)
    return int(status[1]) if status else None


def _is_zombie(pid: int) -> bool:
    status = _status(pid)
    return not status or status[0] in "ZX"
