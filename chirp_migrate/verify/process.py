"""Runs one child process and brings back its result, or says in one sentence why there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from chirp_migrate.verify.errors import WorkloadFailed
from chirp_migrate.verify.spec import RunResult, RunSpec

__all__ = ["run_child"]

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_TAIL_LINES = 15
_TAIL_BYTES = 8192


def run_child(spec: RunSpec, side: str, folder: Path, timeout_s: float) -> RunResult:
    """Run ``spec`` in a fresh interpreter, with what it prints in a log under ``folder``.

    The child and everything it started are gone when this returns or raises, however it ends.

    Args:
        side: ``before`` or ``after``, for messages.
        folder: empty folder for the specification and the log.
        timeout_s: seconds after which the child counts as hung.

    Raises:
        WorkloadFailed: the backend's code raised, crashed the interpreter, or did not end in time.
    """
    folder.mkdir(parents=True)
    spec_file, log_file = folder / "spec.json", folder / "log.txt"
    spec.write(spec_file)
    # Workers pass tensors through sockets in the temporary folder, and a socket's path may have 108 bytes: keep it
    # short. What the child leaves there goes with it.
    temporary = tempfile.TemporaryDirectory(prefix="cm-", ignore_cleanup_errors=True)
    with temporary, log_file.open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "chirp_migrate.verify.runner", str(spec_file)],
            cwd=_PACKAGE_ROOT,
            env=_environment(spec.threads, temporary.name),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise WorkloadFailed(
                f"The {side} side did not end within {timeout_s:.0f} s: give it longer with --timeout, "
                "or less to do with --samples and --epochs.",
                _tail(log_file),
            ) from None
        finally:
            _end(child)
    try:
        result = RunResult.read(Path(spec.output))
    except (OSError, ValueError):
        raise WorkloadFailed(f"The {side} side ended with {_ending(status)}.", _tail(log_file)) from None
    if result.failure is not None:
        raise WorkloadFailed(f"The {side} side failed: {result.failure}.", _tail(log_file))
    return result


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


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and what is left of its process group (workers of a crashed loader, for example)."""
    if hasattr(os, "killpg"):
        # Nothing may be left of the group; macOS reports zombies as not permitted.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    elif child.poll() is None:
        child.kill()
    child.wait()


def _ending(status: int) -> str:
    if status < 0:
        return f"signal {signal.Signals(-status).name} and gave no result"
    return f"exit code {status} and gave no result"


def _tail(log_file: Path) -> str:
    """The last lines of the log; a log of any length is read from its end."""
    with log_file.open("rb") as log:
        log.seek(max(0, log_file.stat().st_size - _TAIL_BYTES))
        text = log.read().decode("utf-8", errors="replace")
    return "\n".join(text.splitlines()[-_TAIL_LINES:])
