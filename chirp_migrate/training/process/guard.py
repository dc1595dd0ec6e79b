"""Ending of the processes of a run whose parent process has ended, which a suspended process cannot notice.

The guard is a small process that is never suspended. It waits until its standard input ends, which happens at the
latest when the parent process ends, for any reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from chirp_migrate.training.process.descendants import end_all
from chirp_migrate.training.process.imports import PACKAGE_ROOT

__all__ = ["guarded"]

_NOTHING_LEFT = b"."


@contextmanager
def guarded(mark: str) -> Iterator[None]:
    """Start a guard for processes with ``mark``; the caller ends these processes before it leaves this context."""
    guard = subprocess.Popen(
        [sys.executable, "-m", __name__, mark],
        cwd=PACKAGE_ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the parent process
    )
    try:
        yield
    finally:
        guard.communicate(_NOTHING_LEFT)


if __name__ == "__main__" and sys.stdin.buffer.read() != _NOTHING_LEFT:
    end_all(sys.argv[1])
