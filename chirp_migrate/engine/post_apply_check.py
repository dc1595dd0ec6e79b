"""Run a command of the user after a rewrite; the exit code of the command decides whether the rewrite stays."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_TAIL_LINES = 20
_TAIL_BYTES = 16_384


@dataclass(frozen=True)
class CommandResult:
    """The result of a command.

    Attributes:
        status: the exit status; a negative number is the number of the signal that ended the command.
        tail: the last lines that the command printed.
    """

    status: int
    tail: str


def run_check_command(command: str, folder: Path) -> CommandResult:
    """Run ``command`` with the shell in ``folder``, and wait until it ends.

    If the wait is interrupted, the processes of the command are killed.

    Raises:
        OSError: the shell cannot be started.
    """
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command,
            shell=True,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = child.wait()
        except BaseException:
            _kill_processes(child)
            raise
        return CommandResult(status, _last_lines(output))


def _kill_processes(child: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()
    child.wait()


def _last_lines(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TAIL_BYTES))
    lines = output.read().decode("utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])
