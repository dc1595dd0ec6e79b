"""Errors for users, each as one sentence that names what to do, with its exit code."""

from __future__ import annotations

from typing import ClassVar

from chirp_migrate.exit_codes import ExitCode

__all__ = [
    "CheckFailed",
    "ChirpMigrateError",
    "CommitFailed",
    "InterruptedByUser",
    "JournalDamaged",
    "UsageProblem",
    "WriteRefused",
]


class ChirpMigrateError(Exception):
    """Base of all errors whose message is meant for the user; never shown as a traceback.

    Attributes:
        exit_code: exit code of the command.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class UsageProblem(ChirpMigrateError):
    """The path does not exist or is not usable, or an option is invalid (exit code 2)."""


class WriteRefused(ChirpMigrateError):
    """Continuing could lose work of the user, so nothing was written (exit code 3)."""

    exit_code = ExitCode.REFUSED


class JournalDamaged(WriteRefused):
    """A journal cannot be read, or names paths that it must not touch (exit code 3)."""


class CommitFailed(ChirpMigrateError):
    """Writing failed midway; the message describes the state of the tree (exit code 4)."""

    exit_code = ExitCode.UNDONE


class InterruptedByUser(ChirpMigrateError):
    """The user pressed Ctrl-C; the message describes the state of the tree (exit code 130)."""

    exit_code = ExitCode.INTERRUPTED


class CheckFailed(ChirpMigrateError):
    """The user's own command failed after the rewrite, which was rolled back (exit code 5)."""

    exit_code = ExitCode.CHECK_FAILED
