"""End all processes that a child process started, including processes that left its process group.

All processes of a run inherit an environment variable whose value is unique for the run. If a process has cleared its
environment, this module finds the process as a child of its parent process, as long as the parent process runs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

MARKER = "CHIRP_MIGRATE_RUN"
"""Name of an environment variable that all processes of a run inherit. Each run sets a unique value."""

_ROUNDS = 50


def kill_processes(environment_mark: str, child_pid: int | None = None, *, child_exists: bool = False) -> None:
    """Kill all processes with a mark in their environment, all their descendants, and the process group of a child.

    The function also kills processes that start while it runs.

    Args:
        environment_mark: value that the environment variable :data:`MARKER` has in the processes to kill.
        child_pid: process ID of a child process, which is also the ID of its process group; None without a child
            process.
        child_exists: whether ``child_pid`` is still the ID of the child process. If False, the system may have given
            the ID to another process.
    """
    for _ in range(_ROUNDS):
        left = {one.pid: one for one in psutil.process_iter() if _is_running_with_mark(one, environment_mark)}
        for root in [*left, *([child_pid] if child_pid is not None and child_exists else [])]:
            with suppress(psutil.Error):  # the process has ended
                left |= {one.pid: one for one in psutil.Process(root).children(recursive=True) if _is_running(one)}
        if child_pid is not None and hasattr(os, "killpg"):
            # ProcessLookupError: the group is empty. PermissionError: on macOS, the group contains only zombies.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child_pid, signal.SIGKILL)
        for process in left.values():
            with suppress(psutil.Error):
                process.kill()
        if not left:
            return
        time.sleep(0.01)


def suspend_with_descendants(pid: int) -> list[psutil.Process]:
    """Suspend a process and all its descendants, and return the suspended processes.

    The function also suspends processes that start while it runs.
    """
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


def resume_processes(processes: Sequence[psutil.Process]) -> None:
    """Resume the processes that :func:`suspend_with_descendants` returned, each process after its descendants."""
    for one in reversed(processes):
        with suppress(psutil.Error):
            one.resume()


def cpus_of_this_process() -> list[int]:
    """Return the numbers of the CPUs on which this process may run.

    The list is empty if the operating system cannot restrict a process to some CPUs.
    """
    with suppress(AttributeError, psutil.Error):
        return list(psutil.Process().cpu_affinity())
    return []


@contextmanager
def run_on_one_cpu(pid: int, cpu: int | None) -> Iterator[None]:
    """Return a context in which the process ``pid`` runs only on ``cpu``; with None, the context does nothing.

    If two processes take turns, both must begin their turns on the same CPU, so that their times can be compared.
    Without this context, each process would begin its turn on the CPU where it last ran, which may be a busier CPU.
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


def _is_running_with_mark(process: psutil.Process, mark: str) -> bool:
    with suppress(psutil.Error, OSError):  # the process has ended, or belongs to another user
        return process.environ().get(MARKER) == mark and _is_running(process)
    return False


def _is_running(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    return False
