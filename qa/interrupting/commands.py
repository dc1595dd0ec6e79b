"""The command line in processes of its own, and how it is killed."""

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

from .aims import Aim, after

__all__ = ["Ended", "Limit", "kill_at", "run"]

#: A command that takes longer hangs.
_TIMEOUT_S = 120.0
_POLL_S = 0.0002


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code (negative for a signal), and what it printed on both streams."""

    code: int
    said: str


@dataclass(frozen=True)
class Limit:
    """The largest file, in bytes, that a command may write (``RLIMIT_FSIZE``)."""

    size: int


def run(*arguments: str | Path, limit: Limit | None = None) -> Ended:
    """Run ``chirp-migrate`` to its end.

    Raises:
        subprocess.TimeoutExpired: it hangs.
    """
    command = _command(arguments, limit)
    done = subprocess.run(
        command, env=_environment(), capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
    )
    return Ended(done.returncode, done.stdout + done.stderr)


def kill_at(aim: Aim, *arguments: str | Path) -> bool:
    """Run ``chirp-migrate`` and send SIGKILL when ``aim`` says so; whether it died of it, or had ended before.

    Raises:
        subprocess.TimeoutExpired: it hangs.
    """
    process = subprocess.Popen(
        _command(arguments, None),
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    hanging = after(_TIMEOUT_S)
    try:
        while not aim() and process.poll() is None:
            if hanging():
                raise subprocess.TimeoutExpired(process.args, _TIMEOUT_S)
            time.sleep(_POLL_S)
        process.kill()
        return process.wait() == -signal.SIGKILL
    finally:
        # Processes that planned for it; they write nothing, and must not slow down the next run.
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
