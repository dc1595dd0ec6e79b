"""Moving the files of a recorded run from one version to another.

:func:`perform_changes` changes all of them, or raises an error midway. :func:`complete_changes` then brings all files
to one version, from any state. Both keep no state in memory that the journal lacks, so that another process can
continue after a kill: new contents are first written next to their places and then only renamed, and the bytes of each
file show whether that has happened. Files are added before the code that needs them, and removed after it, so that the
tree can be imported at every moment.
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

from chirp_migrate.console.progress import ProgressStep, no_progress
from chirp_migrate.plans.plan import sha256
from chirp_migrate.source.files import discard, read_file, sync_folder, write_new
from chirp_migrate.transaction.journal import JournalRun
from chirp_migrate.transaction.journal_schema import State, Version

__all__ = [
    "NOT_A_FILE",
    "Change",
    "ChangedMeanwhile",
    "changed_by_others",
    "changes_of",
    "complete_changes",
    "fingerprint",
    "perform_changes",
    "remove_bytecode",
    "remove_folders",
]

#: Instead of a hash: the path is not a regular file of the backend.
NOT_A_FILE = "not a regular file"


@dataclass(frozen=True)
class Change:
    """The change of a file from the version ``old`` to ``new``; None is no file.

    Attributes:
        path: posix path relative to the root.
        temporary: path of a file next to it, to which new bytes are written first.
    """

    path: str
    old: Version | None
    new: Version | None
    temporary: str

    @property
    def reversed(self) -> Change:
        """Return the opposite change."""
        return replace(self, old=self.new, new=self.old)


class ChangedMeanwhile(Exception):
    """Another program wrote to the file ``path`` just before its replacement."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def changes_of(run: JournalRun) -> tuple[Change, ...]:
    """Return the changes of applying a run, or of rolling it back (from the found version to the version before)."""
    rolling_back = run.state is State.ROLLING_BACK
    versions = ((f.path, f.found, f.before) if rolling_back else (f.path, f.before, f.after) for f in run.files)
    changed = [(path, old, new) for path, old, new in versions if (old, new) != (None, None)]
    return tuple(
        Change(path, old, new, str(PurePosixPath(path).with_name(f".chirp-migrate-{run.name}-{number}.tmp")))
        for number, (path, old, new) in enumerate(changed)
    )


def fingerprint(root: Path, path: str) -> str | None:
    """Return the SHA-256 of the file at ``path``, None if nothing is there, :data:`NOT_A_FILE` for anything else.

    A path through a link to a folder counts as no file, because journals contain no such paths.
    """
    place = root / path
    if not _in_place(root, path):
        return NOT_A_FILE
    try:
        if not stat.S_ISREG(place.lstat().st_mode):
            return NOT_A_FILE
        return sha256(read_file(place))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return NOT_A_FILE


def perform_changes(run: JournalRun, changes: Sequence[Change], on_step: Callable[[ProgressStep], None]) -> None:
    """Bring all files from ``old`` to ``new``.

    Raises:
        ChangedMeanwhile: a file is no longer ``old``.
        OSError: a file cannot be written. In both cases some files may be changed: :func:`complete_changes` them.
    """
    steps = 2 * len(changes)
    for done, change in enumerate(changes, start=1):
        if change.new is not None:
            _stage(run, change, change.new)
            on_step(ProgressStep(f"prepared {change.path}", done, steps))
    for done, change in enumerate(_importable_order(changes), start=len(changes) + 1):
        if fingerprint(run.root, change.path) != _hash(change.old):
            raise ChangedMeanwhile(change.path)
        _move(run.root, change)
        on_step(ProgressStep(f"{'removed' if change.new is None else 'replaced'} {change.path}", done, steps))
    _sync_folders(run.root, changes)


def complete_changes(
    run: JournalRun,
    changes: Iterable[Change],
    *,
    force: bool = False,
    on_step: Callable[[ProgressStep], None] = no_progress,
) -> None:
    """Bring files that may be ``old`` or ``new`` to ``new``; harmless when repeated.

    A file that is neither has edits of the user, and is only changed with ``force``.

    Raises:
        OSError: a file cannot be written.
    """
    ordered = _importable_order(changes)
    for done, change in enumerate(ordered, start=1):
        if _in_place(run.root, change.path):
            discard(run.root / change.temporary)
        now = fingerprint(run.root, change.path)
        if now != _hash(change.new) and (force or now == _hash(change.old)):
            if not _in_place(run.root, change.path):
                raise NotADirectoryError(errno.ENOTDIR, "a link took the place of its folder", change.path)
            if change.new is not None:
                _stage(run, change, change.new)
            _move(run.root, change)
            on_step(ProgressStep(f"finished {change.path}", done, len(ordered)))
    _sync_folders(run.root, ordered)


def changed_by_others(run: JournalRun, changes: Iterable[Change]) -> list[str]:
    """Return the files that are neither ``old`` nor ``new``, because another program has changed them."""
    known = {change.path: {_hash(change.old), _hash(change.new)} for change in changes}
    return [path for path, hashes in known.items() if fingerprint(run.root, path) not in hashes]


def remove_folders(root: Path, folders: Sequence[str]) -> None:
    """Remove those of ``folders`` (parents first) that are empty.

    Raises:
        OSError: an empty folder cannot be removed.
    """
    for path in reversed(folders):
        try:
            (root / path).rmdir()
        except OSError as error:
            # Not empty, already removed, or replaced: then it must not be removed.
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR}:
                raise
        else:
            sync_folder((root / path).parent)


def remove_bytecode(root: Path, created: Iterable[str]) -> None:
    """Remove the bytecode of modules that a run had added, so that their folders become empty."""
    for path in map(PurePosixPath, created):
        cache = root / path.parent / "__pycache__"
        if path.suffix != ".py" or not _in_place(root, str(path)) or cache.is_symlink() or not cache.is_dir():
            continue
        # Python creates it again if it is missing, and ignores it without its source, so a failure does no harm.
        with contextlib.suppress(OSError):
            for compiled in cache.glob(f"{glob.escape(path.stem)}.*.pyc"):
                compiled.unlink()
            cache.rmdir()


def _stage(run: JournalRun, change: Change, version: Version) -> None:
    place, temporary = run.root / change.path, run.root / change.temporary
    like = place if stat.S_ISREG(_mode_at(place)) else None
    temporary.parent.mkdir(parents=True, exist_ok=True)  # removed with files that the user deleted
    discard(temporary)  # of a run whose journal the user removed by hand
    write_new(temporary, run.content(version.sha256), like=like, mode=version.mode)


def _move(root: Path, change: Change) -> None:
    if change.new is None:
        (root / change.path).unlink()
    else:
        (root / change.temporary).replace(root / change.path)


def _importable_order(changes: Iterable[Change]) -> list[Change]:
    """Return the changes in order: created files, then rewritten files, then removed files."""
    return sorted(changes, key=lambda change: 2 if change.new is None else int(change.old is not None))


def _sync_folders(root: Path, changes: Iterable[Change]) -> None:
    """Flush the folders of the changes and those above them, which may be new."""
    for folder in sorted({parent for change in changes for parent in PurePosixPath(change.path).parents}):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # its files were removed with it
            sync_folder(root / folder)


def _in_place(root: Path, path: str) -> bool:
    """Return whether no parent folder of ``path`` is a link."""
    folder = (root / path).parent
    return os.path.realpath(folder) == str(folder)


def _mode_at(place: Path) -> int:
    try:
        return place.lstat().st_mode
    except FileNotFoundError:
        return 0


def _hash(version: Version | None) -> str | None:
    return None if version is None else version.sha256
