"""Descriptions of how a process ended."""

from __future__ import annotations

import signal

__all__ = ["describe_exit"]


def describe_exit(status: int) -> str:
    """Return a description of how a process ended, by its exit status (negative: the number of a signal)."""
    if status >= 0:
        return f"exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = str(-status)
    killed = name == "SIGKILL"
    return f"signal {name}{' (the system sends it when memory runs out)' if killed else ''}"
