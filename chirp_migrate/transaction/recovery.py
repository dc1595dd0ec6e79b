"""Recover from interrupted runs: undo an interrupted apply, and finish an interrupted rollback."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from chirp_migrate.console.progress import ProgressStep, ignore_progress
from chirp_migrate.errors import CommitFailed, JournalDamaged, WriteRefused
from chirp_migrate.transaction import journal
from chirp_migrate.transaction.change_files import (
    changes_of_run,
    files_edited_by_user,
    finish_file_changes,
    remove_bytecode,
    remove_folders,
)
from chirp_migrate.transaction.journal import journal_folder
from chirp_migrate.transaction.journal_schema import RunState
from chirp_migrate.transaction.lock import hold_lock


def recover(
    root: Path, *, force: bool = False, on_step: Callable[[ProgressStep], None] = ignore_progress
) -> str | None:
    """Recover from an interrupted run in ``root``: undo an interrupted apply, or finish an interrupted rollback.

    Args:
        root: the folder of the project.
        force: whether to also restore files that were edited after the interruption. If True, these edits are lost.
        on_step: function that shows each restored file to the user.

    Returns:
        A sentence that describes the interruption and the recovery; None if no run was interrupted.

    Raises:
        WriteRefused: a file was edited after the interruption, or another process of chirp-migrate is running. Nothing
            is changed.
        CommitFailed: a file cannot be written. The journal stays, so that the next command can try the recovery again.
    """
    root = root.resolve()
    if not _needs_recovery(root):
        return None
    with _explain_interruption(), hold_lock(journal_folder(root)):
        return _finish_interrupted(root, force, on_step)


@contextlib.contextmanager
def recover_and_lock(
    root: Path, *, force: bool = False, on_step: Callable[[ProgressStep], None]
) -> Iterator[str | None]:
    """Recover from an interrupted run, and hold the lock of ``root`` during a ``with`` block.

    In ``with recover_and_lock(…) as found``, ``found`` is the result of :func:`recover`.

    Args:
        root: the folder of the project, with links resolved.
        force: see :func:`recover`.
        on_step: see :func:`recover`.

    Raises:
        WriteRefused: see :func:`recover`.
        CommitFailed: a file or the lock cannot be written (see :func:`recover`).
    """
    try:
        with hold_lock(journal_folder(root)):
            with _explain_interruption():
                found = _finish_interrupted(root, force, on_step)
            yield found
    except OSError as error:
        raise CommitFailed(f"{os_error_text(error)}: nothing was changed.") from error


def _finish_interrupted(root: Path, force: bool, on_step: Callable[[ProgressStep], None]) -> str | None:
    sentence = _finish_leftovers(root)
    for run in journal.read_runs(root):
        if run.state is RunState.APPLIED:
            continue
        was_rollback = run.state is RunState.ROLLING_BACK
        changes = [change if was_rollback else change.reversed for change in changes_of_run(run)]
        edited = [] if force else files_edited_by_user(run, changes)
        if edited:
            raise WriteRefused(
                f"run {run.name} was interrupted, and files were edited since then: {', '.join(edited)}. Nothing was "
                "changed. Copy these files to another place, then restore the originals with `chirp-migrate rollback "
                f"--force {root}`."
            )
        for change in changes:  # before any file changes, check that the bytes to restore exist
            if change.new is not None:
                run.content(change.new.sha256)
        finish_file_changes(run, changes, force=force, on_step=on_step)
        remove_bytecode(root, (file.path for file in run.files if file.before is None))
        remove_folders(root, run.folders)
        journal.remove_record(run)
        what = "A rollback" if was_rollback else "An apply"
        outcome = "has now been finished" if was_rollback else "has now been undone, so all its files are as before"
        sentence = f"{what} (run {run.name} of {run.created}) was interrupted, and {outcome}."
    return sentence


@contextlib.contextmanager
def _explain_interruption() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommitFailed(
            f"an earlier run was interrupted and cannot be finished ({os_error_text(error)}). Nothing is lost. Make "
            "the path writable and run the command again."
        ) from error


def _finish_leftovers(root: Path) -> str | None:
    found = journal.incomplete_record_folders(root)
    journal.remove_leftovers(root)
    if any(name.startswith("old-") for name in found):
        return (
            "A run was interrupted after all its files had been restored. The rest of its journal has now been removed."
        )
    if found:
        return "An apply was interrupted before it changed any file. The rest of its journal has now been removed."
    return None


def _needs_recovery(root: Path) -> bool:
    """Return whether the journal may contain an interrupted run, so that recovery may be necessary.

    Another process may change the journal at the same time, so the caller must take the lock and then check again.
    """
    if not os.path.lexists(journal_folder(root)):
        return False
    try:
        runs = journal.read_runs(root)
        return (
            not runs
            or bool(journal.incomplete_record_folders(root))
            or any(run.state is not RunState.APPLIED for run in runs)
        )
    except JournalDamaged:
        return True


def os_error_text(error: OSError) -> str:
    """Return a message for an error of the operating system, with the path of the file."""
    where = f"{error.filename} " if error.filename else ""
    return f"{where}cannot be written: {error.strerror or error}"
