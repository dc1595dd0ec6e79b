"""Runs the child process, shows its progress, and brings back what it found or says in one sentence why it did not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from chirp_migrate.errors import ChirpMigrateError, UsageProblem
from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.training.process.descendants import MARKER, end_all, new_mark
from chirp_migrate.training.process.imports import missing_module
from chirp_migrate.training.process.output import Output
from chirp_migrate.tune.request import Findings, Request

__all__ = ["TuneFailed", "run_child"]

_RUNNER = "chirp_migrate.tune.runner"
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.05
_TAIL_LINES, _TAIL_BYTES = 15, 8192


class TuneFailed(ChirpMigrateError):
    """The user's own code raised, crashed the interpreter, or took too long (exit code 14).

    Attributes:
        log_tail: the last lines that the process printed.
    """

    exit_code = ExitCode.WORKLOAD_FAILED

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail


def run_child(request: Request, folder: Path, timeout_s: float, progress: Callable[[str], None]) -> Findings:
    """Run ``request`` in a fresh interpreter; it and all it started are gone when this returns or raises.

    Args:
        request: what it does; its ``output`` and ``progress`` are set here.
        folder: an existing folder for its files.
        timeout_s: seconds after which it counts as hung.
        progress: given each line of progress as it comes.

    Raises:
        UsageProblem: what was asked for cannot be measured.
        TuneFailed: the user's code raised, crashed the interpreter, or took too long.
    """
    output, lines, spec = folder / "findings.json", folder / "progress.txt", folder / "request.json"
    lines.touch()
    replace(request, output=str(output), progress=str(lines)).write(spec)
    mark = new_mark()
    deadline = time.monotonic() + timeout_s
    with _terminated_as_interrupted(), Output() as printed:
        child = subprocess.Popen(
            [sys.executable, "-m", _RUNNER, str(spec)],
            cwd=_PACKAGE_ROOT,
            env={**_environment(), MARKER: mark},
            stdin=subprocess.DEVNULL,
            stdout=printed.descriptor,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            printed.started()
            with lines.open(encoding="utf-8") as read:
                while True:
                    ended = child.poll() is not None
                    for line in read:
                        progress(line.rstrip("\n"))
                    if ended:
                        break
                    if time.monotonic() > deadline:
                        raise TuneFailed(
                            f"The user's code did not come to an end within {timeout_s:.0f} s: give it longer with "
                            "--timeout, or less to do with --seconds and fewer --num-workers."
                        )
                    time.sleep(_POLL_S)
        finally:
            alive = child.poll() is None
            end_all(child.pid, mark, alive=alive)
            if alive:
                child.kill()
            child.wait()
    log = printed.tail(_TAIL_LINES, _TAIL_BYTES).replace(f"{request.tree}{os.sep}", "")
    try:
        findings = Findings.read(output)
    except (OSError, ValueError):
        raise TuneFailed(f"The process that measured ended with {_ending(child.returncode)}.", log) from None
    if findings.failure is not None:
        sentence = findings.failure[:1].upper() + findings.failure[1:].rstrip(".") + "."
        if findings.usage:
            raise UsageProblem(sentence)
        missing = missing_module(log)
        raise TuneFailed(sentence if missing is None else f"{sentence} {missing}.", log)
    return findings


def _environment() -> dict[str, str]:
    """The user's environment, thread settings included; nothing is written beside the code, no window is opened."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment.update(PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1", MPLBACKEND="Agg")
    return environment


def _ending(status: int) -> str:
    if status < 0:
        return f"signal {signal.Signals(-status).name} and gave no result"
    return f"exit code {status} and gave no result"


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM cleans up as Ctrl-C does, where handlers can be set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)
