"""Code of a child process that receives a task from the parent process, and sends the result back."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol, TypeVar

from chirp_migrate.console.json_document import convert_json, read_json, to_json_bytes
from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.training.errors import TaskNotPossible, UserCodeError, last_lines_of_traceback
from chirp_migrate.training.process.background_load import cpu_seconds_of_this_process
from chirp_migrate.training.process.imports import enter_project_copy
from chirp_migrate.training.process.protocol import ChildResult, FailureMessage, Message, ProgressLine, ReadyMessage


class _Request(Protocol):
    @property
    def tree(self) -> str:
        """Return the folder that is the working directory and first import path of the child."""


_R = TypeVar("_R", bound=_Request)


class ParentConnection:
    """The connection of a child process to its parent process, through a pipe.

    The pipe has no name, so other processes cannot open the pipe. Processes that the user's code starts do not inherit
    the pipe. Processes that the user's code forks inherit the pipe, but do not use it.
    """

    def __init__(self, end: int) -> None:
        """Open the connection. ``end`` is the inherited end of the pipe: a file descriptor, or a handle on Windows."""
        getattr(os, "set_handle_inheritable", os.set_inheritable)(end, False)
        self._connection = getattr(connection, "PipeConnection", connection.Connection)(end)
        self._process = os.getpid()

    def request(self, kind: type[_R]) -> _R:
        """Receive the task that the parent sends, and return the task as an object of the class ``kind``."""
        return convert_json(read_json(self._read_bytes()), kind)

    def wait_for_turn(self) -> None:
        """Report to the parent that this process is ready for its next turn, and wait until the parent starts the turn.

        Two child processes start and import at the same time. Then the processes take turns to train, so that each
        process can use all CPUs. The speed of a machine changes within seconds. So for a fair comparison, an epoch of
        one child process must run directly after an epoch of the other child process.

        A process that the user's code forked returns immediately.

        Raises:
            SystemExit: the parent has ended.
        """
        if os.getpid() != self._process:
            return
        self.send(ReadyMessage(cpu_seconds_of_this_process(), time.time()))
        self._read_bytes()

    def show(self, what: str | ProgressStep) -> None:
        """Send progress to the parent, which shows this progress to the user."""
        self.send(what if isinstance(what, ProgressStep) else ProgressLine(what))

    def send(self, message: Message) -> None:
        """Send a message to the parent; raise SystemExit if the parent has ended.

        In a process that the user's code forked, the training is over when this method is called, so the process ends.
        """
        if os.getpid() != self._process:
            os._exit(0)
        try:
            self._connection.send_bytes(to_json_bytes(message, indent=None))
        except OSError:
            raise SystemExit(_GONE) from None

    def _read_bytes(self) -> bytes:
        try:
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            raise SystemExit(_GONE) from None


_GONE = "the parent process has ended"


def run_child_task(task_type: type[_R], perform: Callable[[_R, ParentConnection], Any]) -> int:
    """Perform the task of this child process: receive the task from the parent, call ``perform``, and send the result.

    Args:
        task_type: type of the task, which is a dataclass with the attribute ``tree`` (the working directory of the
            child).
        perform: function that performs the task and returns a dataclass as the result. If the function raises
            ``TaskNotPossible`` or ``UserCodeError``, the child sends the message of this error to the parent.

    Returns:
        The exit code of the process: 0, or 1 after a failure.
    """
    parent = ParentConnection(int(sys.argv.pop(1)))  # the user's code may parse the remaining arguments
    request = parent.request(task_type)
    enter_project_copy(Path(request.tree))
    try:
        parent.send(ChildResult(perform(request, parent)))
    except TaskNotPossible as problem:
        parent.send(FailureMessage(str(problem), usage=True))
        return 1
    except UserCodeError as raised:
        if not isinstance(raised.__cause__, (TaskNotPossible, SystemExit)):
            print(last_lines_of_traceback(raised.__cause__ or raised, Path(request.tree)), file=sys.stderr)
        parent.send(FailureMessage(str(raised)))
        return 1
    return 0
