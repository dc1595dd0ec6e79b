"""Ending of all processes that a child process started, including those that left its process group.

Every process of a run inherits an environment variable with a unique value. Processes that cleared their environment
are found as long as their parents live.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

__all__ = ["MARKER", "end_all", "own_cpus", "resume_all", "suspend_all", "woken_on"]

MARKER = "CHIRP_MIGRATE_RUN"
"""Environment variable that marks the processes of a run, by a value that no other run has."""

_ROUNDS = 50


def end_all(mark: str, child: int | None = None, *, alive: bool = False) -> None:
    """Kill every process with ``mark`` and its descendants, and the process group of a child.

    Processes that they start meanwhile are killed as well.

    Args:
        mark: value of :data:`MARKER` in the environment of the processes.
        child: process and group of a child of this process; None if there is none.
        alive: whether the child has not been waited for, so that its process number still belongs to it.
    """
    for _ in range(_ROUNDS):
        left = {one.pid: one for one in psutil.process_iter() if _is_left(one, mark)}
        for root in [*left, *([child] if child is not None and alive else [])]:
            with suppress(psutil.Error):  # it ended
                left |= {one.pid: one for one in psutil.Process(root).children(recursive=True) if _is_running(one)}
        if child is not None and hasattr(os, "killpg"):
            # Nothing may be left of the group; macOS reports zombies as not permitted.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
        for process in left.values():
            with suppress(psutil.Error):
                process.kill()
        if not left:
            return
        time.sleep(0.01)


def suspend_all(pid: int) -> list[psutil.Process]:
    """Stop a process and all its descendants, even new ones; return the stopped processes."""
    stopped: dict[int, psutil.Process] = {}
    with suppress(psutil.Error):
        first = psutil.Process(pid)
        for _ in range(_ROUNDS):
            new = [
                one for one in (first, *first.children(recursive=True)) if one.pid not in stopped and _is_running(one)
            ]
            if not new:
                break
            for one in new:
                with suppress(psutil.Error):
                    one.suspend()
                stopped[one.pid] = one
    return list(stopped.values())


def resume_all(stopped: Sequence[psutil.Process]) -> None:
    """Continue processes that :func:`suspend_all` stopped, descendants first."""
    for one in reversed(stopped):
        with suppress(psutil.Error):
            one.resume()


def own_cpus() -> list[int]:
    """Return the CPUs on which this process may run; empty if the system cannot restrict a process to some CPUs."""
    with suppress(AttributeError, psutil.Error):
        return list(psutil.Process().cpu_affinity())
    return []


@contextmanager
def woken_on(pid: int, cpu: int | None) -> Iterator[None]:
    """Return a context in which a process wakes on this CPU; after it, the system schedules the process as usual.

    A process wakes on the CPU where it ran last, and some CPUs are busier than others. Two processes that take turns
    must therefore begin on the same CPU.
    """
    process, usual = psutil.Process(), None
    if cpu is not None:
        with suppress(AttributeError, psutil.Error, OSError, ValueError):
            process = psutil.Process(pid)
            usual = process.cpu_affinity()
            process.cpu_affinity([cpu])
    try:
        yield
    finally:
        if usual:
            with suppress(psutil.Error, OSError, ValueError):
                process.cpu_affinity(usual)


def _is_left(process: psutil.Process, mark: str) -> bool:
    with suppress(psutil.Error, OSError):  # it ended, or belongs to another user
        return process.environ().get(MARKER) == mark and _is_running(process)
    return False


def _is_running(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    return False
