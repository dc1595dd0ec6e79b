"""Errors that occur while a training runs. The message of each error is one sentence for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chirp_migrate.console.text import escape_invisible
from chirp_migrate.errors import ChirpMigrateError
from chirp_migrate.exit_codes import ExitCode


class NoTrainingFound(ChirpMigrateError):
    """The path is not a project in which ``verify`` finds a training (exit code 2)."""


class TaskNotPossible(Exception):
    """Error in a child process: its task cannot be run. The message explains why, so no traceback is printed."""


class NoSuchObject(TaskNotPossible):
    """Error in a child process: an object that the user named does not exist."""


class UserCodeError(Exception):
    """Error in a child process: the user's code raised ``__cause__``. The message names the code that failed."""


@contextmanager
def wrap_user_code_errors(activity: str) -> Iterator[None]:
    """Return a context that converts errors of user code to :class:`UserCodeError` with ``activity`` in the message."""
    try:
        yield
    except TaskNotPossible:
        raise
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{activity} raised {type(error).__name__}: {first_message_line(error)}") from error


class WorkloadFailed(ChirpMigrateError):
    """The project's own code crashed, hung or returned no result (exit code 14).

    Attributes:
        log_tail: the last lines that the process printed.
        side: the version that failed, ``before`` or ``after``; empty if it is not known.
        ending: how the process ended, such as ``ended with signal SIGSEGV and returned no result``; empty if the
            process reported its failure itself.
        hung: whether the process was ended because it took too long.
    """

    exit_code = ExitCode.WORKLOAD_FAILED

    def __init__(
        self, message: str, log_tail: str = "", side: str = "", *, ending: str = "", hung: bool = False
    ) -> None:
        super().__init__(message)
        self.log_tail = log_tail
        self.side = side
        self.ending = ending
        self.hung = hung

    @property
    def shown_tail(self) -> str:
        """Return ``log_tail`` with escaped control characters, so that it can be printed on a terminal."""
        return "\n".join(map(escape_invisible, self.log_tail.split("\n")))


def describe_error(error: BaseException) -> str:
    """Return the class of an error, and the first and last line of its message, in one line.

    If a worker process raised the error, only the last line of the message has the reason.
    """
    lines = f"{type(error).__name__}: {str(error).strip()}".strip().splitlines()
    return " … ".join(dict.fromkeys([lines[0], lines[-1].strip()])).rstrip(": ")


def first_message_line(error: BaseException) -> str:
    """Return the first non-empty line of an error message; an empty string if the message is empty."""
    return next(filter(None, map(str.strip, str(error).splitlines())), "")
