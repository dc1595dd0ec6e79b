"""Runs one child process and brings back its result, or says in one sentence why there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from chirp_migrate.verify.descendants import MARKER, end_all, new_mark
from chirp_migrate.verify.errors import WorkloadFailed
from chirp_migrate.verify.imports import missing_module
from chirp_migrate.verify.output import Output
from chirp_migrate.verify.snapshot import freshen
from chirp_migrate.verify.spec import RunResult, RunSpec

__all__ = ["run_child"]

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_TAIL_LINES = 15
_LONGEST_FOLDER = 50
"""Characters that leave room for the names that multiprocessing and PyTorch add."""

_TAIL_BYTES = 8192


def run_child(spec: RunSpec, side: str, folder: Path, timeout_s: float) -> RunResult:
    """Run ``spec`` in a fresh interpreter and a fresh copy of the tree; of what it prints the end is kept in memory.

    The child and everything it started are gone when this returns or raises, however it ends.

    Args:
        side: ``before`` or ``after``, for messages.
        folder: new folder for the specification.
        timeout_s: seconds after which the child counts as hung.

    Raises:
        WorkloadFailed: the backend's code raised, crashed the interpreter, or did not end in time.
    """
    folder.mkdir(parents=True)
    spec_file = folder / "spec.json"
    spec.write(spec_file)
    freshen(Path(spec.tree))
    mark = new_mark()
    # What the child leaves there goes with it.
    temporary = tempfile.TemporaryDirectory(prefix="cm-", dir=_short_folder(), ignore_cleanup_errors=True)
    with temporary, Output() as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "chirp_migrate.verify.runner", str(spec_file)],
            cwd=_PACKAGE_ROOT,
            env={**_environment(spec.threads, temporary.name), MARKER: mark},
            stdin=subprocess.DEVNULL,
            stdout=output.descriptor,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        output.started()
        problem = None
        try:
            status = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            problem = (
                f"The {side} side did not end within {timeout_s:.0f} s: give it longer with --timeout, "
                "or less to do with --samples and --epochs."
            )
        finally:
            _end(child, mark)
    if problem is None:
        try:
            result = RunResult.read(Path(spec.output))
        except (OSError, ValueError):
            problem = f"The {side} side ended with {_ending(status)}."
        else:
            if result.failure is None:
                return result
            problem = f"The {side} side failed: {result.failure}."
    # The paths of the copy mean nothing to anybody once it is gone.
    printed = output.tail(_TAIL_LINES, _TAIL_BYTES).replace(f"{spec.tree}{os.sep}", "")
    missing = missing_module(printed)
    raise WorkloadFailed(problem if missing is None else f"{problem} {missing}.", printed, side)


def _short_folder() -> str:
    """Folder for temporary files.

    Workers pass tensors through sockets in it, and wait for ever for one whose path does not fit its 108 bytes.
    """
    usual = tempfile.gettempdir()
    return "/tmp" if len(usual) > _LONGEST_FOLDER and os.access("/tmp", os.W_OK | os.X_OK) else usual


def _environment(threads: int, temporary: str) -> dict[str, str]:
    """The user's environment with everything pinned that could differ between the sides."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment.update(dict.fromkeys(_THREAD_SETTINGS, str(threads)))
    environment.update(
        PYTHONHASHSEED="0",
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONUNBUFFERED="1",
        MPLBACKEND="Agg",
        TMPDIR=temporary,
        TEMP=temporary,
        TMP=temporary,
    )
    return environment


def _end(child: subprocess.Popen[bytes], mark: str) -> None:
    """End the child and what is left of what it started (workers of a crashed loader, for example)."""
    alive = child.poll() is None
    end_all(child.pid, mark, alive=alive)
    if alive:
        child.kill()
    child.wait()


def _ending(status: int) -> str:
    if status < 0:
        return f"signal {signal.Signals(-status).name} and gave no result"
    return f"exit code {status} and gave no result"
