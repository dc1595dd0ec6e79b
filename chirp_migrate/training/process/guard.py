"""Clean up after a killed process: end its children, and remove its temporary folders.

A small process, the guard, waits for the end of its standard input. The standard input of the guard ends when the
parent process ends, for any reason. Then the guard cleans up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chirp_migrate.training.process.descendants import kill_processes
from chirp_migrate.training.process.imports import PACKAGE_ROOT

_NOTHING_LEFT = b"."
#: Seconds for which the guard repeats the removal of a folder, because other processes may still write to it.
_REMOVAL_S = 30.0


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Create a temporary folder for a context, and remove it afterwards, even if this process is killed."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        with guard_processes("", folder):
            yield folder


@contextmanager
def guard_processes(mark: str, folder: Path) -> Iterator[None]:
    """Return a context in which a guard process ends processes and removes a folder if this process is killed.

    If this process is not killed, the guard does nothing. The caller must end the processes inside the context, and
    remove the folder after the context.

    Args:
        mark: value of the environment variable ``MARKER`` of the processes; an empty string without processes.
        folder: folder to remove.
    """
    guard = subprocess.Popen(
        [sys.executable, "-m", __name__, mark, str(folder)],
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


def _clean_up(mark: str, folder: str) -> None:
    if mark:
        kill_processes(mark)
    deadline = time.monotonic() + _REMOVAL_S
    while os.path.lexists(folder) and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1)


if __name__ == "__main__" and sys.stdin.buffer.read() != _NOTHING_LEFT:
    _clean_up(*sys.argv[1:])
