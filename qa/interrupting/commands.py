"""Run commands of ``chirp-migrate`` in separate processes, and kill these processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .moments import Moment, after

__all__ = ["CommandResult", "Limit", "kill_at", "run"]

#: Seconds after which a running command counts as hung.
_TIMEOUT_S = 120.0
#: Seconds between two checks whether the moment to kill the command has come.
_POLL_S = 0.0002


@dataclass(frozen=True)
class CommandResult:
    """The result of a command.

    Attributes:
        code: the exit code; -N if signal number N ended the command.
        printed: the text that the command printed to standard output, followed by the text on standard error.
    """

    code: int
    printed: str


@dataclass(frozen=True)
class Limit:
    """A limit on the size of the files that a command writes (``RLIMIT_FSIZE``).

    Attributes:
        size: the largest permitted size of a file in bytes.
    """

    size: int


def run(*arguments: str | Path, limit: Limit | None = None) -> CommandResult:
    """Run ``chirp-migrate`` to its end.

    Args:
        arguments: the arguments of the command line.
        limit: the limit on the size of written files; None for no limit.

    Raises:
        subprocess.TimeoutExpired: the command hangs.
    """
    command = _command(arguments, limit)
    done = subprocess.run(
        command, env=_environment(), capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
    )
    return CommandResult(done.returncode, done.stdout + done.stderr)


def kill_at(moment: Moment, *arguments: str | Path) -> bool:
    """Run ``chirp-migrate``, and send SIGKILL as soon as ``moment`` returns True.

    Returns:
        True if the signal killed the command; False if the command ended before.

    Raises:
        subprocess.TimeoutExpired: the command hangs.
    """
    process = subprocess.Popen(
        _command(arguments, None),
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    is_overdue = after(_TIMEOUT_S)
    try:
        while not moment() and process.poll() is None:
            if is_overdue():
                raise subprocess.TimeoutExpired(process.args, _TIMEOUT_S)
            time.sleep(_POLL_S)
        process.kill()
        return process.wait() == -signal.SIGKILL
    finally:
        # Also kill the planning processes of the command, because they would slow down the next run.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


_WITH_LIMIT = (
    "import os, resource, sys; size = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)); "
    "os.execv(sys.executable, [sys.executable, '-m', 'chirp_migrate', *sys.argv[2:]])"
)


def _command(arguments: Sequence[str | Path], limit: Limit | None) -> list[str]:
    given = [str(one) for one in arguments]
    if limit is None:
        return [sys.executable, "-m", "chirp_migrate", *given]
    return [sys.executable, "-c", _WITH_LIMIT, str(limit.size), *given]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
