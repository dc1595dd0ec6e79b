"""Errors that occur while a training runs. The message of each error is one sentence, which the user sees."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chirp_migrate.console.text import escape_invisible
from chirp_migrate.errors import ChirpMigrateError
from chirp_migrate.exit_codes import ExitCode

_TAIL_LINES = 15


class NoTrainingFound(ChirpMigrateError):
    """Error: the command finds no training in the project (exit code 2).

    Commands also raise this error if ``--baseline`` is neither another folder nor a git revision with the project.
    """


class TaskNotPossible(Exception):
    """Error in a child process: the process cannot perform its task, for example because an option is wrong.

    The message contains the reason, so the process prints no traceback of this error.
    """


class NoSuchObject(TaskNotPossible):
    """Error in a child process: an object that the user named does not exist."""


class UserCodeError(Exception):
    """Error in a child process: the user's code raised an error, which is the ``__cause__`` of this error.

    The message names the code that failed.
    """


@contextmanager
def wrap_user_code_errors(activity: str) -> Iterator[None]:
    """Return a context that converts errors of the user's code to :class:`UserCodeError`.

    Args:
        activity: what the code in the context does, as the first words of the message. With ``reading a batch of
            MyDataset``, the message is, for example, ``reading a batch of MyDataset raised ValueError: empty file``.

    Raises:
        UserCodeError: the code in the context raised an error, or called ``sys.exit``.
    """
    try:
        yield
    except TaskNotPossible:
        raise
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{activity} raised {type(error).__name__}: {first_message_line(error)}") from error


def last_lines_of_traceback(error: BaseException, tree: Path) -> str:
    """Return the last lines of the traceback of an error in the user's code (at most 15).

    The traceback begins at the first frame in a file of the folder ``tree``. If no frame is in this folder, the
    traceback is complete. Paths are relative to the folder.
    """
    folders = {tree, tree.resolve()}
    frames = error.__traceback__
    while frames is not None and folders.isdisjoint(Path(frames.tb_frame.f_code.co_filename).parents):
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
    for folder in folders:
        text = text.replace(f"{folder}{os.sep}", "")
    return "\n".join(text.splitlines()[-_TAIL_LINES:])


class WorkloadFailed(ChirpMigrateError):
    """Error: the project's own code failed, crashed or hung (exit code 14).

    Attributes:
        log_tail: the last lines that the process printed.
        side: the version that failed, ``before`` or ``after`` the migration; an empty string if the command does not
            compare two versions.
        ending: how the process ended, such as ``ended with signal SIGSEGV and returned no result``; an empty string if
            the process itself sent the reason for its failure.
        hung: whether this program ended the process because the process took too long.
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
        """Return ``log_tail`` with escaped control characters, so that the text is safe to print on a terminal."""
        return "\n".join(map(escape_invisible, self.log_tail.split("\n")))


def describe_error(error: BaseException) -> str:
    """Return one line with the class of an error, and the first and the last line of its message.

    If a worker process of a loader raised the error, only the last line of the message contains the reason.
    """
    lines = f"{type(error).__name__}: {str(error).strip()}".strip().splitlines()
    return " … ".join(dict.fromkeys([lines[0], lines[-1].strip()])).rstrip(": ")


def first_message_line(error: BaseException) -> str:
    """Return the first non-empty line of an error message; an empty string if the message is empty."""
    return next(filter(None, map(str.strip, str(error).splitlines())), "")
