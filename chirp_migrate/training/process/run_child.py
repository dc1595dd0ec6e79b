"""Run a child process, and return its result; if the child returns no result, raise an error with the reason."""

from __future__ import annotations

import os
import secrets
import signal
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

from chirp_migrate.console.json_document import convert_json, read_json, to_json_bytes
from chirp_migrate.console.progress import Progress, ProgressStep, ignore_progress
from chirp_migrate.console.text import as_sentence
from chirp_migrate.errors import UsageProblem
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.descendants import (
    MARKER,
    kill_processes,
    resume_processes,
    run_on_one_cpu,
    suspend_with_descendants,
)
from chirp_migrate.training.process.guard import clean_up_if_killed
from chirp_migrate.training.process.imports import PACKAGE_ROOT, advice_on_missing_module
from chirp_migrate.training.process.protocol import (
    ChildResult,
    FailureMessage,
    Message,
    PartialResult,
    ProgressLine,
    ReadyMessage,
)

_KEPT_BYTES = 64 * 1024
_TAIL_LINES, _TAIL_BYTES = 15, 8192
_OUTPUT_ENDS_WITHIN_S = 5.0
_ENDS_WITHIN_S = 10.0
"""Seconds within which a child must end after it has sent its result.

The limit is necessary, because exit handlers of the user's code may wait for ever.
"""
_LONGEST_FOLDER = 50
"""Largest length of the path of a temporary folder. For longer paths, the paths of sockets in it would be too long."""
_LOOK_S = 0.1
"""Seconds between two checks of whether a child still runs.

The checks are necessary, because workers of the child may keep the pipe open after the child has ended.
"""
_LARGEST_MESSAGE = 2**30

_T = TypeVar("_T")


@dataclass(frozen=True)
class ChildLabels:
    """Words with which error messages describe a child process.

    Attributes:
        name: subject of the message, such as ``The version before the migration``.
        failed: text before the child's own message if the child reports an error, such as ``"The training failed: "``;
            an empty string for no text.
        less: advice for the user if the child takes too long, such as ``use a longer --time-budget``.
        side: the version that the child trains, ``before`` or ``after`` the migration; an empty string for other child
            processes.
    """

    name: str
    failed: str
    less: str
    side: str = ""


@dataclass
class Child(Generic[_T]):
    """A child process with a new Python interpreter. The object keeps the last 64 KiB of the child's output.

    Use the object as a context manager. At the end of the context, this object ends the child and all processes that
    the child started. If this process is killed, a small guard process ends the child and these processes
    (:mod:`.guard`).

    The work of a child may consist of turns. Before each turn, the child waits until this process calls
    :meth:`give_turn`.

    Attributes:
        module: import name of the module that the child runs. The module must call
            :func:`~.inside_child.run_child_task`.
        request: task of the child, which is a dataclass with the attribute ``tree`` (the working directory of the
            child).
        answer: dataclass of the child's result, to which the received result is converted.
        role: words with which error messages describe the child.
        timeout_s: seconds of work after which the child counts as hung. The time in which the child waits for a turn
            does not count.
        environment: environment variables for the child, in addition to the variables of this process.
        progress: function that is called with progress messages of the child.
        cpu_s: seconds of CPU time that the child and its processes had used when the child last became ready for a
            turn. After the end of the child, the value is 0, because the system then adds these CPU seconds to the CPU
            time of this process.
        found: partial results that the child has sent so far, in the order of arrival.
    """

    module: str
    request: Any
    answer: type[_T]
    role: ChildLabels
    timeout_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    progress: Progress = ignore_progress
    cpu_s: float = field(default=0.0, init=False)
    found: list[PartialResult] = field(default_factory=list, init=False)

    def __enter__(self) -> Child[_T]:
        self._mark = secrets.token_hex(16)
        self._left_s = self._limit_s = self.timeout_s
        self._waits = self._ended = False
        self._suspended: list[psutil.Process] = []
        self._killed_late = False
        self._last: Message | None = None
        with ExitStack() as stack:
            # The child creates all its temporary files in this folder, so they are removed together with the folder.
            temporary = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="cm-", dir=_short_folder(), ignore_cleanup_errors=True)
            )
            stack.enter_context(clean_up_if_killed(self._mark, Path(temporary)))
            ours, theirs = Pipe()
            self._connection = stack.enter_context(ours)
            self._began = time.time()  # time of the start of the child, and later of its turn
            with theirs:
                self._process = subprocess.Popen(
                    # Always five digits: the length of an argument affects memory addresses, which affect the speed.
                    [sys.executable, "-m", self.module, f"{theirs.fileno():05d}"],
                    cwd=PACKAGE_ROOT,
                    env={**_child_environment(temporary), **self.environment, MARKER: self._mark},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    bufsize=0,
                    start_new_session=True,
                    **_inheritance_options(theirs.fileno()),
                )
            assert self._process.stdout is not None, "the output of the child process is a pipe"
            self._output = stack.enter_context(_Output(self._process.stdout))
            stack.callback(_end_processes, self._process, self._mark)
            self._send(to_json_bytes(self.request, indent=None))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def is_waiting(self) -> bool:
        """Return whether the child waits until :meth:`give_turn` starts its next turn."""
        return self._waits

    @property
    def is_busy(self) -> bool:
        """Return whether the child is working: it has not ended, and does not wait for :meth:`give_turn`."""
        return not (self._waits or self._ended)

    @property
    def is_lost(self) -> bool:
        """Return whether the child has ended without a result, or with a failure."""
        return self._ended and not isinstance(self._last, ChildResult)

    @property
    def printed(self) -> str:
        """Return the last 64 KiB that the child has printed, with paths relative to its working directory."""
        # Users do not know the copy of the project, and the copy is removed afterwards.
        return self._output.text().replace(f"{self.request.tree}{os.sep}", "")

    def last_lines(self) -> str:
        """Return the last lines that the child has printed (at most 15), with paths relative to its folder."""
        return self._output.tail().replace(f"{self.request.tree}{os.sep}", "")

    def wait_until_ready(self) -> None:
        """Wait until the child waits for the next call of :meth:`give_turn`, or has ended.

        Raises:
            WorkloadFailed: the child took longer than its time limit.
        """
        while self.is_busy:
            self._process_message(self._next_message())

    def receive_message(self, within_s: float = _LOOK_S) -> None:
        """Process the next message of a busy child, if a message arrives within ``within_s`` seconds.

        Raises:
            WorkloadFailed: the child took longer than its time limit.
        """
        if self.is_busy and self._has_message_or_ended(within_s):
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
        """Start the next turn of the child. The turn ends when the child waits for the next call of this method.

        Args:
            within_s: new time limit for all remaining work of the child, in seconds; None to keep the present time
                limit.
            cpu: number of the CPU on which the child must start its turn; None for any CPU.

        Raises:
            WorkloadFailed: the child has already failed.
        """
        if self._ended:
            self.result()
        if within_s is not None:
            self._left_s = self._limit_s = within_s
        with run_on_one_cpu(self._process.pid, cpu):
            resume_processes(self._suspended)
            self._suspended = []
            self._began, self._waits = time.time(), False
            self._send(b"go")

    def suspend(self) -> None:
        """Suspend the child and all its processes until :meth:`give_turn`, so that these processes use no CPU time.

        If the child does not wait for a turn, the method does nothing.
        """
        if self._waits and not self._suspended:
            self._suspended = suspend_with_descendants(self._process.pid)

    def result(self) -> _T:
        """Let the child run its remaining turns, end all its processes, and return its result.

        Raises:
            UsageProblem: the task is not possible, for example because an option is wrong.
            WorkloadFailed: the user's code raised an error, crashed the interpreter, or took too long.
        """
        self.wait_until_ready()
        while not self._ended:
            self.give_turn()
            self.wait_until_ready()
        self._stack.close()
        match self._last:
            case ChildResult(value):
                with suppress(ValueError):
                    return msgspec.convert(value, self.answer)
            case FailureMessage(sentence, usage):
                if usage:
                    side = f"in the version {self.role.side} the migration, " if self.role.side else ""
                    raise UsageProblem(f"{side}{sentence}" + ("" if sentence.endswith((".", "?")) else "."))
                self._end_with_error(as_sentence(f"{self.role.failed}{sentence}"))
        self._end_lost_child(f"ended with {_describe_exit(self._process.returncode)} and returned no result")

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # the child has ended, which the next wait for a message detects
            self._connection.send_bytes(data)

    def _next_message(self) -> Message | None:
        """Wait for the next message of the child; return None if the child has ended, or if its message is invalid."""
        while not self._has_message_or_ended(_LOOK_S):
            pass
        if not self._connection.poll():
            if self._killed_late:
                self._end_hung_child()
            return None  # the child has ended, but its own children may keep the pipe open
        # If the child stops in the middle of a message, reading would wait for ever. The timer then kills the child.
        late = threading.Timer(max(0.0, self._remaining_s()), self._kill_late)
        late.start()
        try:
            message = read_json(self._connection.recv_bytes(_LARGEST_MESSAGE))
            return convert_json(message, Message)  # type: ignore[arg-type]
        except (EOFError, OSError, ValueError):
            if self._killed_late or self._remaining_s() < 0:
                self._end_hung_child()
            return None
        finally:
            late.cancel()

    def _kill_late(self) -> None:
        """Kill the child. A timer calls this method if the time limit ends while this process reads a message.

        If the message is incomplete, :meth:`_next_message` raises an error that names the time limit. If the message is
        complete, the next call of :meth:`_next_message` raises this error.
        """
        self._killed_late = True
        kill_processes(self._mark, self._process.pid, child_exists=True)

    def _has_message_or_ended(self, within_s: float) -> bool:
        """Wait up to ``within_s`` seconds for a message; return whether one has arrived or the process has ended."""
        if self._connection.poll(min(within_s, max(0.0, self._remaining_s()))):
            return True
        if self._process.poll() is not None:
            return True
        if self._remaining_s() < 0:
            self._end_hung_child()
        return False

    def _wait_for_end(self) -> None:
        """Wait until the process has ended, because a process that still runs would disturb the next timing.

        If the process has sent its last message and does not end within ten seconds, the method kills the process.
        """
        try:
            self._process.wait(max(0.0, self._remaining_s()) if self._last is None else _ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            if self._last is None:
                self._end_hung_child()
            _end_processes(self._process, self._mark)

    def _remaining_s(self) -> float:
        return self._left_s - (time.time() - self._began)

    def _end_hung_child(self) -> NoReturn:
        self._end_lost_child(f"did not end within {self._limit_s:.0f} s", f": {self.role.less}", hung=True)

    def _end_lost_child(self, how: str, more: str = "", hung: bool = False) -> NoReturn:
        self._end_with_error(f"{self.role.name} {how}{more}.", how, hung)

    def _end_with_error(self, problem: str, how: str = "", hung: bool = False) -> NoReturn:
        """End the process, and raise an error that contains the last lines that the process printed."""
        self._stack.close()
        failed = workload_failure(problem, self.last_lines(), self.role.side)
        failed.ending, failed.hung = how, hung
        raise failed from None


class _Output:
    """The output of a process, of which the object keeps the last 64 KiB.

    A thread reads the output at once, because the process would have to wait if the pipe were full. Use the object as a
    context manager, and leave the context after the process has ended.
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
        """Read the rest of the output, but stop after five seconds, because another process may keep the pipe open."""
        self._thread.join(_OUTPUT_ENDS_WITHIN_S)

    def tail(self) -> str:
        """Return the last lines of the output: at most 15 lines, from the last 8 KiB.

        If the whole output is larger than 64 KiB, a line with its size comes first.
        """
        shown = self.text(_TAIL_BYTES).splitlines()[-_TAIL_LINES:]
        if self._total > _KEPT_BYTES:
            shown.insert(0, f"[these are the last lines of {self._total / 1e6:.1f} MB of output]")
        return "\n".join(shown)

    def text(self, most: int = _KEPT_BYTES) -> str:
        """Return the last ``most`` bytes of the output as text."""
        return self._kept[-most:].decode("utf-8", errors="replace")

    def _drain(self) -> None:
        with self._pipe:
            while content := self._pipe.read(_KEPT_BYTES):
                self._total += len(content)
                self._kept = (self._kept + content)[-_KEPT_BYTES:]


def workload_failure(problem: str, output: str, version: str = "") -> WorkloadFailed:
    """Return an error with the message ``problem``, for the version ``before`` or ``after`` the migration.

    If ``output`` shows that a module is missing, the message also contains advice on how to install this module.
    """
    missing = advice_on_missing_module(output)
    return WorkloadFailed(problem if missing is None else f"{problem} {missing}.", output, version)


def _describe_exit(status: int) -> str:
    """Describe how a process ended, from its exit status.

    A negative status is the negative number of the signal that ended the process.
    """
    if status >= 0:
        return f"exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = str(-status)
    killed = name == "SIGKILL"
    return f"signal {name}{' (the system sends this signal when memory runs out)' if killed else ''}"


def _inheritance_options(end: int) -> dict[str, Any]:
    """Return the arguments of ``Popen`` with which a process inherits ``end``, a file descriptor or Windows handle."""
    if hasattr(os, "set_handle_inheritable"):
        os.set_handle_inheritable(end, True)
        return {"startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": [end]})}  # type: ignore[attr-defined,unused-ignore]
    return {"pass_fds": (end,)}


def _short_folder() -> str:
    """Return a folder with a short path, for temporary files.

    Worker processes send tensors through sockets in this folder. If the path of a socket were longer than 108 bytes,
    workers would wait for ever.
    """
    usual = tempfile.gettempdir()
    return "/tmp" if len(usual) > _LONGEST_FOLDER and os.access("/tmp", os.W_OK | os.X_OK) else usual


def _child_environment(temporary: str) -> dict[str, str]:
    """Return the environment of a child, with which Python writes no bytecode and matplotlib opens no windows."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), temporary))
    environment.update(PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1", MPLBACKEND="Agg")
    return environment


def _end_processes(child: subprocess.Popen[bytes], mark: str) -> None:
    """End the child and the processes that the child started, such as the workers of a crashed loader."""
    alive = child.poll() is None
    kill_processes(mark, child.pid, child_exists=alive)
    if alive:
        child.kill()
    child.wait()
