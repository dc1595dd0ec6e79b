"""Errors that commands show to users. Each error has an exit code, and a message with the problem and what to do."""

from __future__ import annotations

from typing import ClassVar

from chirp_migrate.exit_codes import ExitCode


class ChirpMigrateError(Exception):
    """Base class of the errors for which a command prints only the message, without a traceback.

    Attributes:
        exit_code: the code with which the command exits.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class UsageProblem(ChirpMigrateError):
    """A path, an option, a setting or a plan is invalid (exit code 2)."""


class WriteRefused(ChirpMigrateError):
    """The command changed nothing, for example because the user could lose changes (exit code 3)."""

    exit_code = ExitCode.REFUSED


class JournalDamaged(WriteRefused):
    """The journal (the record of earlier runs) cannot be read, or is invalid (exit code 3).

    For example, the journal lists a path that leads outside of the project.
    """


class CommitFailed(ChirpMigrateError):
    """Writing the files failed midway (exit code 4). The message describes the resulting state of the files."""

    exit_code = ExitCode.UNDONE


class InterruptedByUser(ChirpMigrateError):
    """The user pressed Ctrl-C (exit code 130). The message describes the resulting state of the files."""

    exit_code = ExitCode.INTERRUPTED


class CheckFailed(ChirpMigrateError):
    """The command that the user passed to ``--check-with`` failed (exit code 5).

    The message describes whether the run of ``apply`` was rolled back.
    """

    exit_code = ExitCode.CHECK_FAILED
