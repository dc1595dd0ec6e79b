"""Running of a child process, with its result or one sentence that explains why there is none."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import IO, Any, Generic, NoReturn, TypeVar

import msgspec
import psutil

from chirp_migrate.console.json_document import as_bytes, read_as, read_json
from chirp_migrate.console.progress import Progress, ProgressStep, no_progress
from chirp_migrate.console.text import sentence as as_sentence
from chirp_migrate.errors import UsageProblem
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.descendants import MARKER, end_all, resume_all, suspend_all, woken_on
from chirp_migrate.training.process.exit_status import describe_exit
from chirp_migrate.training.process.guard import guard_processes
from chirp_migrate.training.process.imports import PACKAGE_ROOT, missing_module
from chirp_migrate.training.process.protocol import (
    ChildResult,
    FailureMessage,
    Message,
    PartialResult,
    ProgressLine,
    ReadyMessage,
)

__all__ = ["Child", "Role", "workload_failed"]

_KEPT_BYTES = 64 * 1024
_TAIL_LINES, _TAIL_BYTES = 15, 8192
_OUTPUT_ENDS_WITHIN_S = 5.0
_LONGEST_FOLDER = 50
"""Longest path that leaves room for the names that multiprocessing and PyTorch add."""
_LOOK_S = 0.1
"""Seconds between two checks of whether a silent child still lives: its workers may keep its end of the pipe open."""
_LARGEST_MESSAGE = 2**30

_T = TypeVar("_T")


@dataclass(frozen=True)
class Role:
    """The words for a child in messages.

    Attributes:
        name: the subject of messages, such as ``The version before``.
        failed: the text before the child's own sentence if it fails.
        less: options that reduce its work.
        side: ``before`` or ``after``; empty for other children.
    """

    name: str
    failed: str
    less: str
    side: str = ""


@dataclass
class Child(Generic[_T]):
    """One child process: a new interpreter, the end of whose output is kept in memory.

    Use it as a context manager: the child and all its processes are ended at the end of the context, and when this
    process ends for any reason (:mod:`.guard`).

    Attributes:
        module: module of its program, which calls :func:`~.inside_child.serve`.
        request: its task, a dataclass with ``tree``.
        answer: type of its result.
        role: its words in messages.
        timeout_s: seconds, without waits for a turn, after which it counts as hung.
        environment: environment variables in addition to those of the user.
        progress: called with the progress messages of the child.
        cpu_s: CPU seconds of it and its processes when it was last ready; 0 after its end, when they count as those of
            this process.
        found: its partial results, in the order of arrival.
    """

    module: str
    request: Any
    answer: type[_T]
    role: Role
    timeout_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    progress: Progress = no_progress
    cpu_s: float = field(default=0.0, init=False)
    found: list[PartialResult] = field(default_factory=list, init=False)

    def __enter__(self) -> Child[_T]:
        self._mark = secrets.token_hex(16)
        self._left_s = self._limit_s = self.timeout_s
        self._waits = self._ended = False
        self._suspended: list[psutil.Process] = []
        self._last: Message | None = None
        with ExitStack() as stack:
            # The folder is removed with the files of the child.
            temporary = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="cm-", dir=_short_folder(), ignore_cleanup_errors=True)
            )
            stack.enter_context(guard_processes(self._mark, Path(temporary)))
            ours, theirs = Pipe()
            self._connection = stack.enter_context(ours)
            self._began = time.time()  # for its start, or for its turn
            with theirs:
                self._process = subprocess.Popen(
                    # The same length for each path, so that data after it in memory does not move.
                    [sys.executable, "-m", self.module, f"{theirs.fileno():05d}"],
                    cwd=PACKAGE_ROOT,
                    env={**_child_environment(temporary), **self.environment, MARKER: self._mark},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    bufsize=0,
                    start_new_session=True,
                    **_handing_over(theirs.fileno()),
                )
            assert self._process.stdout is not None, "it is a pipe"
            self._output = stack.enter_context(_Output(self._process.stdout))
            stack.callback(_end_processes, self._process, self._mark)
            self._send(as_bytes(self.request, indent=None))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def waits(self) -> bool:
        """Return whether the child waits for its next turn."""
        return self._waits

    @property
    def is_busy(self) -> bool:
        """Return whether the child neither waits for its next turn nor has ended."""
        return not (self._waits or self._ended)

    @property
    def is_lost(self) -> bool:
        """Return whether the child has ended without a result, or with a failure."""
        return self._ended and not isinstance(self._last, ChildResult)

    @property
    def printed(self) -> str:
        """Return the end of the output so far, without the path of its folder."""
        return self._output.text().replace(f"{self.request.tree}{os.sep}", "")

    def wait_until_ready(self) -> None:
        """Wait until the child is ready for its next turn (the first: after its imports), or has ended.

        Raises:
            WorkloadFailed: the child neither became ready nor ended in time.
        """
        while self.is_busy:
            self._process_message(self._next_message())

    def receive_message(self, within_s: float = _LOOK_S) -> None:
        """Process the next message of a busy child, if one arrives in time.

        Raises:
            WorkloadFailed: the child has used up its time.
        """
        if self.is_busy and self._has_news(within_s):
            self._process_message(self._next_message())

    def _process_message(self, message: Message | None) -> None:
        match message:
            case ProgressLine(text):
                self.progress(text)
            case ProgressStep() as step:
                self.progress(step)
            case PartialResult():
                self.found.append(message)
            case ReadyMessage(cpu_s, at):
                self._waits, self.cpu_s = True, cpu_s
                self._left_s -= min(max(at, self._began), time.time()) - self._began
            case last:
                self._last, self._ended = last, True
                self._wait_for_end()
                self.cpu_s = 0.0

    def give_turn(self, within_s: float | None = None, cpu: int | None = None) -> None:
        """Let the child run its next turn.

        Args:
            within_s: seconds for all remaining work; None for the rest of its time.
            cpu: the CPU on which it starts, see :func:`.descendants.woken_on`; None for any.

        Raises:
            WorkloadFailed: the child had failed before.
        """
        if self._ended:
            self.result()
        if within_s is not None:
            self._left_s = self._limit_s = within_s
        with woken_on(self._process.pid, cpu):
            self._resume()
            self._began, self._waits = time.time(), False
            self._send(b"go")

    def take_turn(self) -> None:
        """Let the child run its next turn, and wait until it is ready for another one, or has ended.

        Raises:
            WorkloadFailed: the child neither became ready nor ended in time, or had failed before.
        """
        self.give_turn()
        self.wait_until_ready()

    def suspend(self) -> None:
        """Suspend a waiting child and all its processes until its next turn, so that they use no CPU."""
        if self._waits and not self._suspended:
            self._suspended = suspend_all(self._process.pid)

    def _resume(self) -> None:
        resume_all(self._suspended)
        self._suspended = []

    def result(self) -> _T:
        """Let the child run its remaining turns, return its result, and end everything it started.

        Raises:
            UsageProblem: the task cannot be run.
            WorkloadFailed: the user's code raised, crashed the interpreter, or did not end in time.
        """
        self.wait_until_ready()
        while not self._ended:
            self.take_turn()
        self._stack.close()
        match self._last:
            case ChildResult(value):
                with suppress(ValueError):
                    return msgspec.convert(value, self.answer)
            case FailureMessage(sentence, usage):
                if usage:
                    side = f"in the version {self.role.side}, " if self.role.side else ""
                    raise UsageProblem(f"{side}{sentence}" + ("" if sentence.endswith((".", "?")) else "."))
                self._end_with_error(as_sentence(f"{self.role.failed}{sentence}"))
        self._end_lost_child(f"ended with {describe_exit(self._process.returncode)} and returned no result")

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # it has ended, which the wait for its answer detects
            self._connection.send_bytes(data)

    def _next_message(self) -> Message | None:
        """Return the next message; None at the end, or after an invalid message."""
        while not self._has_news(_LOOK_S):
            pass
        if not self._connection.poll():
            return None  # it has ended, and its own children may keep its end of the pipe open
        # The wait for a child that stops in the middle of a message would never end.
        late = threading.Timer(max(0.0, self._remaining_s()), end_all, (self._mark, self._process.pid), {"alive": True})
        late.start()
        try:
            message = read_json(self._connection.recv_bytes(_LARGEST_MESSAGE))
            return read_as(message, Message)  # type: ignore[arg-type]
        except (EOFError, OSError, ValueError):
            if self._remaining_s() < 0:
                self._take_too_long()
            return None
        finally:
            late.cancel()

    def _has_news(self, within_s: float) -> bool:
        """Return whether a message has arrived or the process has ended, within the given seconds."""
        if self._connection.poll(min(within_s, max(0.0, self._remaining_s()))):
            return True
        if self._process.poll() is not None:
            return True
        if self._remaining_s() < 0:
            self._take_too_long()
        return False

    def _wait_for_end(self) -> None:
        """Wait until the process has ended, so that it does not disturb the next timing."""
        try:
            self._process.wait(max(0.0, self._remaining_s()))
        except subprocess.TimeoutExpired:
            self._take_too_long()

    def _remaining_s(self) -> float:
        return self._left_s - (time.time() - self._began)

    def _take_too_long(self) -> NoReturn:
        within = f"did not end within {self._limit_s:.0f} s"
        more = f": raise --timeout, or reduce the work with {self.role.less}"
        self._end_lost_child(within, more, hung=True)

    def _end_lost_child(self, how: str, more: str = "", hung: bool = False) -> NoReturn:
        """End a process that reported no failure itself."""
        self._end_with_error(f"{self.role.name} {how}{more}.", how, hung)

    def _end_with_error(self, problem: str, how: str = "", hung: bool = False) -> NoReturn:
        """End the process, and raise an error with its last output."""
        self._stack.close()
        # The paths of the copy are useless after its removal.
        printed = self._output.tail().replace(f"{self.request.tree}{os.sep}", "")
        failed = workload_failed(problem, printed, self.role.side)
        failed.ending, failed.hung = how, hung
        raise failed from None


class _Output:
    """The output of a process, read in a thread, so that the process never waits; memory keeps only its end.

    Use it as a context manager, and leave the context after the process has ended.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe  # unbuffered
        self._kept = b""
        self._total = 0
        self._thread = threading.Thread(target=self._drain, name="verify-output", daemon=True)

    def __enter__(self) -> _Output:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Read the rest of the output; do not wait for an escaped process with the other end of the pipe."""
        self._thread.join(_OUTPUT_ENDS_WITHIN_S)

    def tail(self) -> str:
        """Return the last lines, and the number of omitted lines before them, if any."""
        shown = self.text(_TAIL_BYTES).splitlines()[-_TAIL_LINES:]
        if self._total > _KEPT_BYTES:
            shown.insert(0, f"[the end of {self._total / 1e6:.1f} MB]")
        return "\n".join(shown)

    def text(self, most: int = _KEPT_BYTES) -> str:
        """Return the end of the output, at most ``most`` bytes."""
        return self._kept[-most:].decode("utf-8", errors="replace")

    def _drain(self) -> None:
        with self._pipe:
            while content := self._pipe.read(_KEPT_BYTES):
                self._total += len(content)
                self._kept = (self._kept + content)[-_KEPT_BYTES:]


def workload_failed(problem: str, printed: str, side: str = "") -> WorkloadFailed:
    """Return the error for a problem; for a missing module, with the command that installs it."""
    missing = missing_module(printed)
    return WorkloadFailed(problem if missing is None else f"{problem} {missing}.", printed, side)


def _handing_over(end: int) -> dict[str, Any]:
    """Return the options of ``Popen`` with which a process inherits a pipe's descriptor or Windows handle."""
    if hasattr(os, "set_handle_inheritable"):
        os.set_handle_inheritable(end, True)
        return {"startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": [end]})}  # type: ignore[attr-defined,unused-ignore]
    return {"pass_fds": (end,)}


def _short_folder() -> str:
    """Return a folder for temporary files.

    Workers pass tensors through sockets in this folder, and would wait for ever for a socket whose path is longer than
    108 bytes.
    """
    usual = tempfile.gettempdir()
    return "/tmp" if len(usual) > _LONGEST_FOLDER and os.access("/tmp", os.W_OK | os.X_OK) else usual


def _child_environment(temporary: str) -> dict[str, str]:
    """Return the user's environment, changed such that no bytecode is written and no window is opened."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), temporary))
    environment.update(PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1", MPLBACKEND="Agg")
    return environment


def _end_processes(child: subprocess.Popen[bytes], mark: str) -> None:
    """End the child and its remaining processes (for example, workers of a crashed loader)."""
    alive = child.poll() is None
    end_all(mark, child.pid, alive=alive)
    if alive:
        child.kill()
    child.wait()
