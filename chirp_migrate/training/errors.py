"""Errors of running a training, each as one sentence for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chirp_migrate.console.text import visible
from chirp_migrate.errors import ChirpMigrateError
from chirp_migrate.exit_codes import ExitCode

__all__ = [
    "InvalidData",
    "InvalidTree",
    "NotFound",
    "NotMigrated",
    "NotUsable",
    "UserCodeError",
    "WorkloadFailed",
    "first_line",
    "user_code",
]


class InvalidTree(ChirpMigrateError):
    """The path is not a project that can be verified (exit code 2)."""


class InvalidData(ChirpMigrateError):
    """The user's own data cannot be used (exit code 2)."""


class NotMigrated(ChirpMigrateError):
    """There is no applied migration to compare with (exit code 2)."""


class NotUsable(Exception):
    """In a child: the task cannot be run. The message explains it without a traceback."""


class NotFound(NotUsable):
    """In a child: an object that the user named does not exist; the user's code has not failed."""


class UserCodeError(Exception):
    """In a child: the user's code raised ``__cause__``; the message names the place."""


@contextmanager
def user_code(doing: str) -> Iterator[None]:
    """Return a context for the user's code in a child; errors become :class:`UserCodeError`, "``doing`` raised …"."""
    try:
        yield
    except NotUsable:
        raise
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{doing} raised {type(error).__name__}: {first_line(error)}") from error


class WorkloadFailed(ChirpMigrateError):
    """The project's own code crashed, hung or returned no result (exit code 14).

    Attributes:
        log_tail: the last lines that the process printed.
        side: ``before`` or ``after``; empty if it is not known.
        ending: how the process ended: ``ended with signal SIGSEGV and gave no result``; empty if the process reported
            its failure itself.
        hung: whether it was ended because it took too long.
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
        """Return ``log_tail`` with escaped control characters, so that they have no effect on a terminal."""
        return "\n".join(map(visible, self.log_tail.split("\n")))


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of a message; empty if there is none."""
    return next(filter(None, map(str.strip, str(error).splitlines())), "")
