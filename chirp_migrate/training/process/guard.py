"""Clean up after a killed process: end its children, and remove its temporary folders.

A command starts a second, small process, the guard, which waits for the end of its standard input. The input ends when
the process of the command ends, even if this process is killed. Then the guard cleans up.
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
#: Seconds during which the guard tries to remove a folder, because other processes may still write files to it.
_REMOVAL_S = 30.0


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Return a context with a new temporary folder, which is removed afterwards even if this process is killed."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        with clean_up_if_killed("", folder):
            yield folder


@contextmanager
def clean_up_if_killed(environment_mark: str, folder: Path) -> Iterator[None]:
    """Return a context in which a guard process ends processes and removes a folder if this process is killed.

    If this process reaches the end of the context, the guard does nothing. So the caller must end the processes before
    the end of the context, and remove the folder afterwards.

    Args:
        environment_mark: value of the environment variable :data:`.MARKER` in the processes to end; an empty string for
            no processes.
        folder: folder to remove if this process is killed.
    """
    guard = subprocess.Popen(
        [sys.executable, "-m", __name__, environment_mark, str(folder)],
        cwd=PACKAGE_ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C must not reach the guard
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
