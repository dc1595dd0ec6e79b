"""Errors for users. Each error has a message of one sentence that names what to do, and an exit code."""

from __future__ import annotations

from typing import ClassVar

from chirp_migrate.exit_codes import ExitCode


class ChirpMigrateError(Exception):
    """Base of all errors for users: the command prints the message, without a traceback.

    Attributes:
        exit_code: exit code of the command.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class UsageProblem(ChirpMigrateError):
    """A path is missing or unusable, or an option is invalid (exit code 2)."""


class WriteRefused(ChirpMigrateError):
    """Continuing could lose work of the user, so nothing was written (exit code 3)."""

    exit_code = ExitCode.REFUSED


class JournalDamaged(WriteRefused):
    """A journal cannot be read, or lists paths that a run must not change (exit code 3)."""


class CommitFailed(ChirpMigrateError):
    """Writing failed midway; the message describes the state of the project (exit code 4)."""

    exit_code = ExitCode.UNDONE


class InterruptedByUser(ChirpMigrateError):
    """The user pressed Ctrl-C; the message describes the state of the project (exit code 130)."""

    exit_code = ExitCode.INTERRUPTED


class CheckFailed(ChirpMigrateError):
    """The user's own command failed after the rewrite, which was rolled back (exit code 5)."""

    exit_code = ExitCode.CHECK_FAILED
