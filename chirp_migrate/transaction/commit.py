"""Write either all files of a plan to the project, or no file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from chirp_migrate.console.progress import ProgressStep, ignore_progress
from chirp_migrate.errors import CommitFailed, WriteRefused
from chirp_migrate.plans.plan import FilePlan, Plan, SkippedFile, sha256
from chirp_migrate.source.files import read_file
from chirp_migrate.transaction import journal
from chirp_migrate.transaction.change_files import (
    FileChangedMeanwhile,
    changes_of_run,
    finish_file_changes,
    remove_folders,
    write_file_changes,
)
from chirp_migrate.transaction.journal import JournalRun
from chirp_migrate.transaction.journal_schema import FileVersion, JournalFile, RunState, check_relative_path
from chirp_migrate.transaction.recovery import os_error_text, recover_and_lock


@dataclass(frozen=True)
class CommitResult:
    """The result of a commit.

    Attributes:
        applied: files that were written, in the order of the plan.
        run: number of the run, such as ``0001``; an empty string if no file had to be written.
        linked: paths of written files that had further hard links. The further hard links keep the old bytes, and are
            now separate files.
        found: a sentence on an earlier run that was interrupted, and was undone or finished before this commit; None if
            no run was interrupted.
    """

    applied: tuple[FilePlan, ...]
    run: str
    linked: tuple[str, ...] = ()
    found: str | None = None


def commit_plan(
    plan: Plan,
    *,
    on_step: Callable[[ProgressStep], None] = ignore_progress,
    documents: Mapping[str, bytes] | None = None,
) -> CommitResult:
    """Write either all files of ``plan``, or no file.

    The journal is on disk before the first file changes. Each file is replaced atomically. The replaced file keeps its
    mode, and keeps its owner if this user may set the owner. If a file is a symbolic link, the target of the link is
    replaced. This target must be below the root. If a file has further hard links, these links keep the old bytes.
    Added files are written first, so that the project can be imported at every moment. If the process is killed,
    :func:`.recovery.recover` restores all files.

    Args:
        plan: the plan to write; files that would not change are omitted.
        on_step: function that shows each finished step to the user. If the function raises an error, the commit stops
            and is undone.
        documents: dictionary, name of a further file in the journal, such as ``plan.json`` → its bytes; None for no
            further files.

    Raises:
        WriteRefused: a file changed after the plan was made, this user may not write a file, a path leads outside the
            root, or another process of chirp-migrate is running. Nothing is written.
        CommitFailed: a file cannot be written. The message reports whether all changes are undone.
    """
    root = plan.root.resolve()
    with recover_and_lock(root, on_step=on_step) as found:
        targets, linked = _find_targets(root, plan.files)
        if not targets:
            return CommitResult((), "", found=found)
        applied, files = tuple(file for file, _ in targets), tuple(record for _, record in targets)
        contents = (content for file in applied for content in (file.before, file.after))
        run = journal.record_new_run(
            root,
            files,
            _new_folders(root, files),
            {sha256(content): content for content in contents if content is not None},
            on_step,
            documents,
        )
        _apply_run(run, on_step)
        return CommitResult(applied, run.name, linked, found)


def unwritable_files(plan: Plan) -> tuple[SkippedFile, ...]:
    """Return the files of ``plan`` that this user may not write, with the reasons."""
    places = ((file.path, (plan.root / file.path).resolve()) for file in plan.files if file.before != file.after)
    return tuple(SkippedFile(path, why) for path, place in places if (why := _why_not_writable(place)) is not None)


def _find_targets(root: Path, files: Sequence[FilePlan]) -> tuple[list[tuple[FilePlan, JournalFile]], tuple[str, ...]]:
    """Return the files to write, and the paths with further hard links.

    Each file to write is a pair: the file in the plan, and its record for the journal. All symbolic links in the path
    of the record are resolved.
    """
    targets: list[tuple[FilePlan, JournalFile]] = []
    unwritable: list[str] = []
    linked: list[str] = []
    changed: list[str] = []
    for file in files:
        if file.before == file.after:
            continue
        path = _resolve_links(root, file.path)
        place = root / path
        if any(record.path == path for _, record in targets):
            raise WriteRefused(f"The plan contains {file.path} twice. Nothing was written.")
        version, links = None, 1
        if file.before is None:
            as_planned = not os.path.lexists(root / file.path) and _can_create_file(root, path)
        else:
            try:
                now = place.stat()
                as_planned = stat.S_ISREG(now.st_mode) and read_file(place) == file.before
                version, links = FileVersion(sha256(file.before), stat.S_IMODE(now.st_mode)), now.st_nlink
            except (FileNotFoundError, NotADirectoryError):
                as_planned = False
        if not as_planned:
            changed.append(file.path)
        elif (why := _why_not_writable(place)) is not None:
            unwritable.append(f"{file.path}: {why}")
        else:
            targets.append((file, JournalFile.of(path, version, sha256(file.after))))
            linked += [file.path] if links > 1 else []
    if changed:
        raise WriteRefused(
            f"these files changed after the plan was made: {', '.join(changed)}. Nothing was written. Run apply again."
        )
    if unwritable:
        raise WriteRefused(f"a part of the plan cannot be applied, so nothing was written: {'; '.join(unwritable)}.")
    return targets, tuple(linked)


def _new_folders(root: Path, files: Sequence[JournalFile]) -> tuple[str, ...]:
    """Return the folders that must be created for the files; parents come before their subfolders."""
    above = (parent for file in files for parent in reversed(PurePosixPath(file.path).parents))
    return tuple(str(folder) for folder in dict.fromkeys(above) if not (root / folder).exists())


def _resolve_links(root: Path, path: str) -> str:
    """Resolve all symbolic links in ``path``, and return the resolved path relative to ``root``."""
    try:
        real = Path(os.path.realpath(root / check_relative_path(path)))
        if not real.is_relative_to(root):
            raise ValueError(f"the path {path!r} leads outside the project")
        return check_relative_path(real.relative_to(root).as_posix())
    except ValueError as error:
        raise WriteRefused(f"{error}, so nothing was written: exclude the file with --exclude.") from None


def _can_create_file(root: Path, path: str) -> bool:
    """Return whether a file can be created at ``path``: the path does not exist, and every parent is a folder."""
    above = [root / parent for parent in PurePosixPath(path).parents]
    return not os.path.lexists(root / path) and all(p.is_dir() for p in above if os.path.lexists(p))


def _why_not_writable(place: Path) -> str | None:
    """Return the reason why this user should not write to ``place``; None if this user can write to ``place``.

    A file with a read-only mode counts as not writable for all users, even for root.
    """
    if place.exists() and not (place.stat().st_mode & stat.S_IWUSR and os.access(place, os.W_OK)):
        return "the file is read-only; make the file writable and run apply again"
    folder = next(parent for parent in place.parents if parent.exists())
    if not (folder.stat().st_mode & stat.S_IWUSR and os.access(folder, os.W_OK | os.X_OK)):
        return f"the folder {folder} is read-only; make the folder writable and run apply again"
    return None


def _apply_run(run: JournalRun, on_step: Callable[[ProgressStep], None]) -> None:
    changes = changes_of_run(run)
    try:
        for folder in run.folders:
            (run.root / folder).mkdir()
            on_step(ProgressStep(f"made {folder}"))
        write_file_changes(run, changes, on_step)
        journal.record_run_state(run, RunState.APPLIED)
    except BaseException as error:
        _undo_commit(run, error)
        if isinstance(error, FileChangedMeanwhile):
            raise WriteRefused(
                f"{error.path} changed while the migration was applied, so all changes were undone: run apply again."
            ) from None
        if isinstance(error, OSError):
            raise CommitFailed(
                f"{os_error_text(error)}. All changes were undone, so all files are as before."
            ) from error
        raise


def _undo_commit(run: JournalRun, cause: BaseException) -> None:
    try:
        if journal.read_run(run.root, run.name).state is not RunState.PENDING:
            # The journal may already record the run as applied. Record first that the run must be undone. So if this
            # process is killed now, the next command undoes the run.
            journal.record_run_state(run, RunState.PENDING)
        finish_file_changes(run, [change.reversed for change in changes_of_run(run)])
        remove_folders(run.root, run.folders)
        journal.remove_record(run)
    except OSError as error:
        why = os_error_text(cause) if isinstance(cause, OSError) else "the command was stopped"
        raise CommitFailed(
            f"applying failed ({why}), and the changes cannot be undone now ({os_error_text(error)}). The journal is "
            "kept, and the next chirp-migrate command undoes the changes."
        ) from cause
