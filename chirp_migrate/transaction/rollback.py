"""Undo an applied run: restore the bytes and permission bits of all files, and remove the files that the run added."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from chirp_migrate.console.progress import ProgressStep, ignore_progress
from chirp_migrate.console.text import shorten_list
from chirp_migrate.errors import CommitFailed, UsageProblem, WriteRefused
from chirp_migrate.plans.plan import sha256
from chirp_migrate.source.files import read_file
from chirp_migrate.transaction import journal
from chirp_migrate.transaction.change_files import (
    NOT_A_FILE,
    FileChangedMeanwhile,
    changes_of_run,
    file_hash,
    finish_file_changes,
    remove_bytecode,
    remove_folders,
    write_file_changes,
)
from chirp_migrate.transaction.journal import JournalRun, journal_folder
from chirp_migrate.transaction.journal_schema import FileVersion, JournalFile, RunState
from chirp_migrate.transaction.merging import MergeConflict, three_way_merge
from chirp_migrate.transaction.recovery import os_error_text, recover_and_lock


@dataclass(frozen=True)
class RollbackResult:
    """The result of a rollback. Each list of files contains posix paths relative to the root, in the order of the plan.

    Attributes:
        restored: files that have their earlier bytes and permission bits again.
        removed: files that the run had added.
        run: number of the run that was undone, such as ``0001``.
        merged: files in which the changes of the run are undone and later edits are kept.
    """

    restored: tuple[str, ...]
    removed: tuple[str, ...]
    run: str
    merged: tuple[str, ...]


def rollback(
    root: Path,
    *,
    run: int | None = None,
    force: bool = False,
    merge: bool = False,
    on_step: Callable[[ProgressStep], None] = ignore_progress,
) -> RollbackResult:
    """Undo the last applied run in ``root``, or another run.

    The run is undone completely or not at all. Empty folders that the run created are removed. If no run is applied any
    more, the journal is removed, too. If a run was interrupted, the function first calls :func:`.recovery.recover`.

    Args:
        root: the folder of the project.
        run: number of the run to undo; None for the last run. The function refuses to undo a run if a later run wrote
            to the same files, even if ``force`` is True. After the rollback, later runs are still applied, and can be
            undone, too.
        force: whether to also restore files that were edited after the run. If True, these edits are lost.
        merge: whether to keep edits that were made after the run, with git's three-way merge.
        on_step: function that shows each finished step to the user. If the function raises an error, the rollback stops
            and is undone.

    Raises:
        UsageProblem: no run is applied in ``root``, or no applied run has this number.
        WriteRefused: files were edited after the run or cannot be merged, or a later run wrote to the same files. The
            message names these files (at most 3 for each later run). Other reasons are that git is not installed, which
            ``merge`` needs, that a file is now a link or a folder, or that another process of chirp-migrate is running.
            Nothing is changed.
        CommitFailed: a file cannot be written; the message describes the state of the project.
    """
    root = root.resolve()
    if not os.path.lexists(journal_folder(root)):
        raise nothing_applied_error(root)
    with recover_and_lock(root, force=force, on_step=on_step):
        runs = journal.applied_runs(root)
        if not runs:
            raise nothing_applied_error(root)
        index = len(runs) - 1 if run is None else _index_of_run(runs, run)
        chosen, later = runs[index], runs[index + 1 :]
        overlapping = later_runs_on_same_files(chosen, later)
        if overlapping:
            named = "; ".join(f"run {name} to {shorten_list(paths, 3)}" for name, paths in overlapping.items())
            raise WriteRefused(
                f"run {chosen.name} cannot be undone, because later runs wrote to the same files ({named}): nothing "
                "was changed. Undo the later runs first: `chirp-migrate rollback PATH` undoes the last run."
            )
        undoing = _plan_undoing(chosen, force=force, merge=merge)
        _transfer_folder_ownership(chosen, later)
        return _roll_back_run(undoing, on_step)


def nothing_applied_error(root: Path) -> UsageProblem:
    """Return the error that a rollback raises if no run is applied in ``root``."""
    return UsageProblem(f"nothing was applied in {root}: there is nothing to roll back.")


def later_runs_on_same_files(run: JournalRun, runs: Iterable[JournalRun]) -> dict[str, list[str]]:
    """Return a dictionary: name of a later run → paths of the files that both this later run and ``run`` wrote."""
    own = {file.path for file in run.files}
    later = {one.name: [file.path for file in one.files if file.path in own] for one in runs if one.number > run.number}
    return {name: paths for name, paths in later.items() if paths}


def _index_of_run(runs: Sequence[JournalRun], number: int) -> int:
    for index, run in enumerate(runs):
        if run.number == number:
            return index
    still_applied = ", ".join(run.name for run in runs)
    raise UsageProblem(
        f"no run {number:04d} is applied in {runs[0].root}: the applied runs are {still_applied} (see rollback --list)."
    )


def _transfer_folder_ownership(run: JournalRun, later: Iterable[JournalRun]) -> None:
    """Record the folders that ``run`` created as folders of each later run that has files in these folders.

    The rollback of ``run`` cannot remove these folders, because they contain files of later runs. The rollback of a
    later run then removes each of its folders that is empty.
    """
    for heir in later:
        above = {str(parent) for file in heir.files for parent in PurePosixPath(file.path).parents}
        inherited = above.intersection(run.folders).difference(heir.folders)
        if inherited:
            folders = sorted((*heir.folders, *inherited), key=lambda path: (path.count("/"), path))
            journal.record_run_state(heir, heir.state, folders=tuple(folders))


@dataclass
class _UndoPlan:
    """The plan for undoing a run.

    Attributes:
        run: the run to undo.
        files: the files of the run, each with its current version and the version to restore.
        contents: the bytes of edited and merged files, by SHA-256. The journal does not contain these bytes yet.
        merged: paths of the files in which later edits are kept.
    """

    run: JournalRun
    files: list[JournalFile] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)
    merged: list[str] = field(default_factory=list)


def _plan_undoing(run: JournalRun, *, force: bool, merge: bool) -> _UndoPlan:
    """Return the plan for undoing ``run``, without changing files.

    Raises:
        WriteRefused: files were edited, and ``force`` and ``merge`` are both False; or edits cannot be merged; or git
            is not installed.
        JournalDamaged: bytes that the run had stored are missing.
    """
    undoing = _UndoPlan(run)
    edited: list[str] = []
    conflicts: list[str] = []
    keeps_edits = merge and not force
    for file in run.files:
        (found, content), goal = _current_version(run.root, file.path), file.before
        if goal is not None:
            run.content(goal.sha256)  # before any file changes, check that the bytes to restore exist
        if found is None and goal is not None:
            edited.append(f"{file.path} (deleted)")
            conflicts += edited[-1:] if keeps_edits else ()
        elif found is not None and found.sha256 != file.sha256_after:
            edited.append(file.path)
            undoing.contents[found.sha256] = content
            if keeps_edits:
                try:
                    merged = _undo_in_edited_file(run, file, content)
                except MergeConflict as conflict:
                    conflicts.append(f"{file.path} ({conflict})")
                    continue
                goal = FileVersion(sha256(merged), found.mode)
                undoing.contents[goal.sha256] = merged
                undoing.merged.append(file.path)
        undoing.files.append(JournalFile.of(file.path, goal, file.sha256_after, found))
    if edited and not (force or merge):
        raise WriteRefused(
            f"these files were edited since the migration: {', '.join(edited)}. Nothing was changed. Run rollback with "
            "--merge to keep the edits, or with --force to lose the edits."
        )
    if conflicts:
        raise WriteRefused(
            f"some edits made since the migration cannot be kept: {'; '.join(conflicts)}. Nothing was changed. Undo "
            "these edits, or run rollback with --force to lose the edits."
        )
    return undoing


def _undo_in_edited_file(run: JournalRun, file: JournalFile, edited: bytes) -> bytes:
    """Return the ``edited`` bytes of a file without the changes of ``run``.

    Raises:
        MergeConflict: the edits cannot be kept.
        WriteRefused: git is not installed.
    """
    if file.before is None:
        raise MergeConflict(
            "the migration added the file, and the file was edited since: delete it, or move it to another place"
        )
    return three_way_merge(file.path, edited, run.content(file.sha256_after), run.content(file.before.sha256))


def _current_version(root: Path, path: str) -> tuple[FileVersion | None, bytes]:
    """Return the current version and the bytes of the file at ``path``; ``(None, b"")`` if there is no file.

    Raises:
        WriteRefused: the path is not a regular file.
    """
    now = file_hash(root, path)
    if now == NOT_A_FILE:
        raise WriteRefused(
            f"{root / path} is no longer a regular file, but a link or a folder. Nothing was changed. Move the link or "
            "folder to another place first."
        )
    if now is None:
        return None, b""
    content = read_file(root / path)
    return FileVersion(sha256(content), stat.S_IMODE((root / path).stat().st_mode)), content


def _roll_back_run(undoing: _UndoPlan, on_step: Callable[[ProgressStep], None]) -> RollbackResult:
    run, files = undoing.run, tuple(undoing.files)
    rolling = journal.record_run_state(run, RunState.ROLLING_BACK, files=files, contents=undoing.contents)
    try:
        on_step(ProgressStep("recorded the rollback"))
        write_file_changes(rolling, changes_of_run(rolling), on_step)
        remove_bytecode(run.root, (file.path for file in files if file.before is None))
        remove_folders(run.root, run.folders)
    except BaseException as error:
        _undo_rollback(rolling, run, error)
        if isinstance(error, FileChangedMeanwhile):
            raise WriteRefused(
                f"{error.path} changed during the rollback, so nothing was rolled back: run rollback again."
            ) from None
        if isinstance(error, OSError):
            raise CommitFailed(
                f"{os_error_text(error)}. Nothing was rolled back, so the migration is still applied."
            ) from error
        raise
    try:
        journal.remove_record(rolling)
    except OSError as error:
        raise CommitFailed(
            f"all files are as before the migration, but the journal cannot be removed ({os_error_text(error)}): "
            f"make {journal_folder(run.root)} writable and run the command again."
        ) from error
    restored = tuple(file.path for file in files if file.before is not None and file.path not in undoing.merged)
    removed = tuple(file.path for file in files if file.before is None and file.found is not None)
    return RollbackResult(restored, removed, run.name, tuple(undoing.merged))


def _undo_rollback(rolling: JournalRun, applied: JournalRun, cause: BaseException) -> None:
    try:
        finish_file_changes(rolling, [change.reversed for change in changes_of_run(rolling)])
        journal.record_run_state(applied, RunState.APPLIED)
    except OSError as error:
        why = os_error_text(cause) if isinstance(cause, OSError) else "the command was stopped"
        raise CommitFailed(
            f"the rollback failed ({why}), and its changes cannot be undone now ({os_error_text(error)}). The journal "
            "is kept, and the next chirp-migrate command finishes the rollback."
        ) from cause
