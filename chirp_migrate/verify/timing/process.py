"""Runs child processes and brings back their results, or says in one sentence why there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.descendants import MARKER, end_all, new_mark
from chirp_migrate.training.process.handshake import Turns
from chirp_migrate.training.process.imports import missing_module
from chirp_migrate.training.process.output import Output
from chirp_migrate.training.process.snapshot import freshen
from chirp_migrate.verify.spec import RunResult, RunSpec

__all__ = ["Child", "run_child", "workload_failed"]

_PACKAGE_ROOT = Path(__file__).resolve().parents[3]
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_TAIL_LINES = 15
_LONGEST_FOLDER = 50
"""Characters that leave room for the names that multiprocessing and PyTorch add."""

_TAIL_BYTES = 8192
_POLL_S = 0.01


class Child:
    """One child process: a fresh interpreter in a fresh copy of the tree; of what it prints the end is kept in memory.

    Use as a context manager: the child and everything it started are gone when it is left, however that comes.

    Args:
        spec: what it does. The folder of its turns is set here.
        side: ``before`` or ``after``, for messages.
        folder: new folder for the specification.
        timeout_s: seconds after which the child counts as hung, without those in which it waits for a turn.
    """

    def __init__(self, spec: RunSpec, side: str, folder: Path, timeout_s: float) -> None:
        self._spec = replace(spec, turns=str(folder))
        self._side = side
        self._turns = Turns(folder)
        self._timeout_s = self._left_s = timeout_s
        self._folder = folder
        self._stack = ExitStack()
        self.cpu_s = 0.0
        """CPU seconds it had used when it was last ready, with those of what it started; 0 once they count as ours."""

    def __enter__(self) -> Child:
        self._folder.mkdir(parents=True)
        spec_file = self._folder / "spec.json"
        self._spec.write(spec_file)
        freshen(Path(self._spec.tree))
        mark = new_mark()
        with ExitStack() as stack:
            # What the child leaves there goes with it.
            temporary = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="cm-", dir=_short_folder(), ignore_cleanup_errors=True)
            )
            self._output = stack.enter_context(Output())
            self._began = time.time()  # of its start, or of its turn
            self._process = subprocess.Popen(
                [sys.executable, "-m", "chirp_migrate.verify.runner", str(spec_file)],
                cwd=_PACKAGE_ROOT,
                env={**_environment(self._spec.threads, temporary, self._spec.hash_seed), MARKER: mark},
                stdin=subprocess.DEVNULL,
                stdout=self._output.descriptor,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_end, self._process, mark)
            self._output.started()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def wait_until_ready(self) -> None:
        """Wait until the child is ready for its next turn (the first: has imported what it trains), or has ended.

        Raises:
            WorkloadFailed: neither within its time.
        """
        while self._process.poll() is None:
            cpu_s = self._turns.ready()
            if cpu_s is not None:
                self.cpu_s = cpu_s
                self._left_s -= self._turns.ready_since() - self._began
                return
            if time.time() - self._began > self._left_s:
                self._fail(self._too_long())
            time.sleep(_POLL_S)
        self.cpu_s = 0.0

    def take_turn(self) -> None:
        """Let the child do what it waits to do, and wait until it is ready for the next turn, or has ended.

        Raises:
            WorkloadFailed: neither within its time; or it had ended before, and failed.
        """
        if self._process.poll() is not None:
            self.result()
        self._began = time.time()
        self._turns.give()
        self.wait_until_ready()

    def result(self) -> RunResult:
        """Let the child take all turns it has left, and bring back what it found; nothing it started is left.

        Raises:
            WorkloadFailed: the backend's code raised, crashed the interpreter, or did not end in time.
        """
        while self._process.poll() is None:
            self.take_turn()
        status = self._process.wait()
        self._stack.close()
        try:
            result = RunResult.read(Path(self._spec.output))
        except (OSError, ValueError):
            self._fail(f"The {self._side} side ended with {_ending(status)}.")
        if result.failure is not None:
            self._fail(f"The {self._side} side failed: {result.failure}.")
        return result

    def _too_long(self) -> str:
        return (
            f"The {self._side} side did not end within {self._timeout_s:.0f} s: give it longer with --timeout, "
            "or less to do with --samples and --epochs."
        )

    def _fail(self, problem: str) -> NoReturn:
        """End it, and raise with what it printed last."""
        self._stack.close()
        # The paths of the copy mean nothing to anybody once it is gone.
        printed = self._output.tail(_TAIL_LINES, _TAIL_BYTES).replace(f"{self._spec.tree}{os.sep}", "")
        raise workload_failed(problem, printed, self._side) from None


def workload_failed(problem: str, printed: str, side: str) -> WorkloadFailed:
    """The error for this problem of a side; a missing module is told of with what to do about it."""
    missing = missing_module(printed)
    return WorkloadFailed(problem if missing is None else f"{problem} {missing}.", printed, side)


def run_child(spec: RunSpec, side: str, folder: Path, timeout_s: float) -> RunResult:
    """Run one child from its start to its end; see :class:`Child`.

    Raises:
        WorkloadFailed: the backend's code raised, crashed the interpreter, or did not end in time.
    """
    with Child(spec, side, folder, timeout_s) as child:
        return child.result()


def _short_folder() -> str:
    """Folder for temporary files.

    Workers pass tensors through sockets in it, and wait for ever for one whose path does not fit its 108 bytes.
    """
    usual = tempfile.gettempdir()
    return "/tmp" if len(usual) > _LONGEST_FOLDER and os.access("/tmp", os.W_OK | os.X_OK) else usual


def _environment(threads: int, temporary: str, hash_seed: int) -> dict[str, str]:
    """The user's environment with everything pinned that could differ between the sides."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment.update(dict.fromkeys(_THREAD_SETTINGS, str(threads)))
    environment.update(
        PYTHONHASHSEED=str(hash_seed),
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
