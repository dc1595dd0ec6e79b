"""Change the files of a recorded run from one version to another.

:func:`write_file_changes` changes all files, or raises an error midway. After an error, :func:`finish_file_changes`
finishes the changes, or undoes the changes if the caller reverses them (:attr:`FileChange.reversed`). Both functions
need only data in the journal. So if a process is killed, another process can finish or undo the changes.

New bytes are first written to a temporary file next to the old file. Then the temporary file replaces the old file. The
journal does not record which files are already replaced. Instead, :func:`finish_file_changes` compares the bytes of
each file with both versions. An ``apply`` writes added files before the code that imports these files. A rollback
removes the added files last. So the project can be imported at every moment.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from chirp_migrate.console.progress import ProgressStep, ignore_progress
from chirp_migrate.plans.plan import sha256
from chirp_migrate.source.files import fsync_folder, read_file, remove_if_exists, write_new_file
from chirp_migrate.transaction.journal import JournalRun
from chirp_migrate.transaction.journal_schema import FileVersion, RunState

#: Value that :func:`file_hash` returns for a path that is not a regular file of the project.
NOT_A_FILE = "not a regular file"


@dataclass(frozen=True)
class FileChange:
    """The change of a file from one version to another.

    Attributes:
        path: posix path relative to the root.
        old: the version before the change; None if there is no file.
        new: the version after the change; None if the file is removed.
        temporary: path of the temporary file in the same folder, to which the new bytes are written first.
    """

    path: str
    old: FileVersion | None
    new: FileVersion | None
    temporary: str

    @property
    def reversed(self) -> FileChange:
        """Return the change from ``new`` back to ``old``."""
        return replace(self, old=self.new, new=self.old)


class FileChangedMeanwhile(Exception):
    """Raised if another program wrote to the file ``path`` just before this program could replace the file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def changes_of_run(run: JournalRun) -> tuple[FileChange, ...]:
    """Return the changes of files that a run makes.

    For a run in the state ``ROLLING_BACK``, return the changes that undo the run. These changes start from the versions
    at the start of the rollback, which may contain later edits of the user.
    """
    rolling_back = run.state is RunState.ROLLING_BACK
    versions = ((f.path, f.found, f.before) if rolling_back else (f.path, f.before, f.after) for f in run.files)
    changed = [(path, old, new) for path, old, new in versions if (old, new) != (None, None)]
    return tuple(
        FileChange(path, old, new, str(PurePosixPath(path).with_name(f".chirp-migrate-{run.name}-{number}.tmp")))
        for number, (path, old, new) in enumerate(changed)
    )


def file_hash(root: Path, path: str) -> str | None:
    """Return the SHA-256 of the file at ``path``, or None if the path does not exist.

    For a folder or link, the result is :data:`NOT_A_FILE`. The paths in a journal contain no links. So a link among the
    parent folders of ``path`` was created later, and the result is also :data:`NOT_A_FILE`.
    """
    place = root / path
    if not _has_no_linked_parent(root, path):
        return NOT_A_FILE
    try:
        if not stat.S_ISREG(place.lstat().st_mode):
            return NOT_A_FILE
        return sha256(read_file(place))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return NOT_A_FILE


def write_file_changes(run: JournalRun, changes: Sequence[FileChange], on_step: Callable[[ProgressStep], None]) -> None:
    """Change each file from the version ``change.old`` to the version ``change.new``.

    After an error, only some files may have the new version, so the caller must call :func:`finish_file_changes`.

    Raises:
        FileChangedMeanwhile: a file no longer has the version ``old``.
        OSError: a file cannot be written.
    """
    steps = 2 * len(changes)
    for done, change in enumerate(changes, start=1):
        if change.new is not None:
            _write_temporary(run, change, change.new)
            on_step(ProgressStep(f"prepared {change.path}", done, steps))
    for done, change in enumerate(_importable_order(changes), start=len(changes) + 1):
        if file_hash(run.root, change.path) != _hash_of_version(change.old):
            raise FileChangedMeanwhile(change.path)
        _replace_or_remove(run.root, change)
        on_step(ProgressStep(f"{'removed' if change.new is None else 'replaced'} {change.path}", done, steps))
    _fsync_folders(run.root, changes)


def finish_file_changes(
    run: JournalRun,
    changes: Iterable[FileChange],
    *,
    force: bool = False,
    on_step: Callable[[ProgressStep], None] = ignore_progress,
) -> None:
    """Bring all files to the version ``new``, from a state in which each file has the version ``old`` or ``new``.

    If a file has any other content, the user has edited the file. The function skips such files, and changes them only
    with ``force=True``. A second call of the function changes nothing.

    Raises:
        OSError: a file cannot be written.
    """
    ordered = _importable_order(changes)
    for done, change in enumerate(ordered, start=1):
        if _has_no_linked_parent(run.root, change.path):
            remove_if_exists(run.root / change.temporary)
        now = file_hash(run.root, change.path)
        if now != _hash_of_version(change.new) and (force or now == _hash_of_version(change.old)):
            if not _has_no_linked_parent(run.root, change.path):
                raise NotADirectoryError(errno.ENOTDIR, "a link has replaced the folder of the file", change.path)
            if change.new is not None:
                _write_temporary(run, change, change.new)
            _replace_or_remove(run.root, change)
            on_step(ProgressStep(f"finished {change.path}", done, len(ordered)))
    _fsync_folders(run.root, ordered)


def files_edited_by_user(run: JournalRun, changes: Iterable[FileChange]) -> list[str]:
    """Return the paths of files that the user has edited: files whose content is neither ``old`` nor ``new``."""
    known = {change.path: {_hash_of_version(change.old), _hash_of_version(change.new)} for change in changes}
    return [path for path, hashes in known.items() if file_hash(run.root, path) not in hashes]


def remove_folders(root: Path, folders: Sequence[str]) -> None:
    """Remove the empty folders in the list ``folders``. In the list, parents must come before their subfolders.

    Raises:
        OSError: an empty folder cannot be removed.
    """
    for path in reversed(folders):
        try:
            (root / path).rmdir()
        except OSError as error:
            # Keep the path: the folder is not empty, is already removed, or is no longer a folder.
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR}:
                raise
        else:
            fsync_folder((root / path).parent)


def remove_bytecode(root: Path, created: Iterable[str]) -> None:
    """Remove the bytecode of modules that a run created. Otherwise, the folders of these modules would not be empty.

    Args:
        root: the folder of the project.
        created: posix paths of the files that the run created, relative to ``root``.
    """
    for path in map(PurePosixPath, created):
        cache = root / path.parent / "__pycache__"
        if (
            path.suffix != ".py"
            or not _has_no_linked_parent(root, str(path))
            or cache.is_symlink()
            or not cache.is_dir()
        ):
            continue
        # Ignore errors, because Python creates missing bytecode again, and ignores bytecode without its source.
        with contextlib.suppress(OSError):
            for compiled in cache.glob(f"{glob.escape(path.stem)}.*.pyc"):
                compiled.unlink()
            cache.rmdir()


def _write_temporary(run: JournalRun, change: FileChange, version: FileVersion) -> None:
    place, temporary = run.root / change.path, run.root / change.temporary
    like = place if stat.S_ISREG(_mode_at(place)) else None
    temporary.parent.mkdir(parents=True, exist_ok=True)  # the user may have deleted the folder
    remove_if_exists(temporary)  # left by an interrupted run whose journal the user removed
    write_new_file(temporary, run.content(version.sha256), attributes_from=like, mode=version.mode)


def _replace_or_remove(root: Path, change: FileChange) -> None:
    if change.new is None:
        (root / change.path).unlink()
    else:
        (root / change.temporary).replace(root / change.path)


def _importable_order(changes: Iterable[FileChange]) -> list[FileChange]:
    """Return the changes in an order that keeps the project importable: created, then rewritten, then removed files."""
    return sorted(changes, key=lambda change: 2 if change.new is None else int(change.old is not None))


def _fsync_folders(root: Path, changes: Iterable[FileChange]) -> None:
    """Flush the folders of the changed files, and the parents of these folders, to disk."""
    for folder in sorted({parent for change in changes for parent in PurePosixPath(change.path).parents}):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the folder was removed with its files
            fsync_folder(root / folder)


def _has_no_linked_parent(root: Path, path: str) -> bool:
    """Return whether all parent folders of ``path`` are real folders, without a link."""
    folder = (root / path).parent
    return os.path.realpath(folder) == str(folder)


def _mode_at(place: Path) -> int:
    try:
        return place.lstat().st_mode
    except FileNotFoundError:
        return 0


def _hash_of_version(version: FileVersion | None) -> str | None:
    return None if version is None else version.sha256
