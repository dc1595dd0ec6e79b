"""Describe how a process ended."""

from __future__ import annotations

import signal


def describe_exit(status: int) -> str:
    """Describe an exit status: an exit code, or the negative number of the signal that ended the process."""
    if status >= 0:
        return f"exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = str(-status)
    killed = name == "SIGKILL"
    return f"signal {name}{' (the system sends it when memory runs out)' if killed else ''}"
