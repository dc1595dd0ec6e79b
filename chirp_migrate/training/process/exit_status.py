"""Describe how a process ended."""

from __future__ import annotations

import signal

__all__ = ["describe_exit"]


def describe_exit(status: int) -> str:
    """Describe the exit status of a process: an exit code or, if negative, the number of the signal that ended it."""
    if status >= 0:
        return f"exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = str(-status)
    killed = name == "SIGKILL"
    return f"signal {name}{' (the system sends it when memory runs out)' if killed else ''}"
