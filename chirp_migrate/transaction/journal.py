"""The record of runs in a tree: ``.chirp-migrate/NNNN/journal.json`` and the bytes from before and after.

One folder per applied run, numbered in order; ``journal_schema`` says what ``journal.json`` holds. The bytes
are in files beside it, named by their SHA-256. A run's folder appears complete under its number (``new-NNNN`` until
then) and goes as ``old-NNNN``, so that a number always stands for a readable journal. Beside them are documents that
only reports read: ``plan.json``, the plan as it was applied, and ``verify.json`` and ``doctor.json``, what the last
``verify`` and the last ``doctor`` found.
"""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from msgspec import structs

from chirp_migrate import __version__
from chirp_migrate.console.progress import Step
from chirp_migrate.errors import JournalDamaged
from chirp_migrate.plans.plan import sha256
from chirp_migrate.source.files import discard, read_file, replace_file, sync_folder, write_new
from chirp_migrate.transaction.journal_schema import (
    JOURNAL_FOLDER,
    JournalFile,
    NewerRecord,
    Record,
    State,
    read_record,
    write_record,
)

__all__ = [
    "APPLIED_PLAN",
    "DOCTOR",
    "VERDICT",
    "JournalRun",
    "applied_runs",
    "begin",
    "change_state",
    "is_unfinished",
    "journal_folder",
    "keep_document",
    "leftovers",
    "read_run",
    "read_runs",
    "remove_leftovers",
    "retire",
]

#: Document of a run: the plan that was applied (see :func:`chirp_migrate.review.plan_file.plan_document`).
APPLIED_PLAN = "plan.json"

#: Document of a run: the JSON of the last verification while it was the last run that stood.
VERDICT = "verify.json"

#: Document of a run: the JSON of the last ``doctor`` while it was the last run that stood.
DOCTOR = "doctor.json"

_JOURNAL = "journal.json"
_RUN = re.compile(r"[0-9]{4,}")
_LEFTOVER = re.compile(r"(?:new|old)-[0-9]{4,}")
_IGNORE_ALL = b"*\n"


@dataclass(frozen=True)
class JournalRun:
    """One run in its journal: ``name`` is its number, such as ``0001``; ``root`` has its links resolved."""

    root: Path
    name: str
    record: Record

    @property
    def state(self) -> State:
        """Return the state of the run."""
        return self.record.state

    @property
    def number(self) -> int:
        """Return its number, as users name it."""
        return int(self.name)

    @property
    def created(self) -> str:
        """When it was begun, ISO 8601 in UTC."""
        return self.record.created

    @property
    def files(self) -> tuple[JournalFile, ...]:
        """Return its files, in the order in which they are written."""
        return self.record.files

    @property
    def folders(self) -> tuple[str, ...]:
        """Posix paths of folders it made, parents first."""
        return self.record.folders

    @property
    def folder(self) -> Path:
        """Return the folder of the journal and the bytes of the run."""
        return journal_folder(self.root) / self.name

    def original(self, path: str) -> bytes:
        """Bytes of a file of the run as they were before it.

        Raises:
            KeyError: the run did not rewrite such a file.
            JournalDamaged: the bytes are gone or are not what they were.
        """
        for file in self.files:
            if file.path == path and file.before is not None:
                return self.content(file.before.sha256)
        raise KeyError(path)

    def document(self, name: str) -> bytes | None:
        """Return a document that was kept with the run, such as ``APPLIED_PLAN``; None where it has none.

        Raises:
            JournalDamaged: it cannot be read.
        """
        try:
            return read_file(self.folder / name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _damage_error(self.folder, f"{name} cannot be read: {error.strerror}") from error

    def content(self, digest: str) -> bytes:
        """Return the kept bytes with this SHA-256.

        Raises:
            JournalDamaged: they are gone or are not what they were.
        """
        try:
            content = read_file(self.folder / digest)
        except OSError as error:
            raise _damage_error(self.folder, f"{digest} cannot be read: {error.strerror}") from error
        if sha256(content) != digest:
            raise _damage_error(self.folder, f"the bytes kept in {digest} have changed")
        return content


def journal_folder(root: Path) -> Path:
    """Return the folder that records the runs on ``root``."""
    return root / JOURNAL_FOLDER


def read_runs(root: Path) -> tuple[JournalRun, ...]:
    """Return all runs recorded in ``root``, in their order.

    Raises:
        JournalDamaged: a journal cannot be read or trusted.
    """
    runs: list[JournalRun] = []
    for name in _names(root, _RUN):
        try:
            runs.append(read_run(root, name))
        except JournalDamaged:
            if (journal_folder(root) / name).exists():
                raise
            # Another run has just retired it.
    return tuple(runs)


def read_run(root: Path, name: str) -> JournalRun:
    """Return the run with this number.

    Raises:
        JournalDamaged: its journal cannot be read or trusted.
    """
    folder = journal_folder(root) / name
    try:
        return JournalRun(root, name, read_record(read_file(folder / _JOURNAL)))
    except OSError as error:
        raise _damage_error(folder, f"it cannot be read: {error.strerror}") from error
    except NewerRecord as error:
        raise JournalDamaged(
            f"the journal {folder / _JOURNAL} was written by a newer chirp-migrate ({error.tool}; {error}): "
            "nothing was changed, run the command again with that version or a later one."
        ) from error
    except ValueError as error:
        raise _damage_error(folder, str(error)) from error


def is_unfinished(root: Path) -> bool:
    """Return whether a run on ``root`` was interrupted, or is still at work.

    Raises:
        JournalDamaged: a journal cannot be read or trusted.
    """
    return any(run.state is not State.APPLIED for run in read_runs(root))


def applied_runs(root: Path) -> tuple[JournalRun, ...]:
    """Return the runs that stand, in their order.

    Raises:
        JournalDamaged: a journal cannot be read or trusted.
    """
    return tuple(run for run in read_runs(root) if run.state is State.APPLIED)


def leftovers(root: Path) -> list[str]:
    """Folders of runs that were interrupted while they were being recorded (``new-…``) or removed (``old-…``)."""
    return _names(root, _LEFTOVER)


def begin(
    root: Path,
    files: tuple[JournalFile, ...],
    folders: tuple[str, ...],
    contents: Mapping[str, bytes],
    on_step: Callable[[Step], None],
    documents: Mapping[str, bytes] | None = None,
) -> JournalRun:
    """Record a run that is about to be applied; when this returns, all of it is on disk.

    Args:
        root: the tree, with links resolved.
        files: what will be written.
        folders: what will be made for it, parents first.
        contents: the bytes from before and after by their SHA-256.
        on_step: called after every step.
        documents: what else is kept with the run, by name (see :meth:`JournalRun.document`).

    Raises:
        OSError: it cannot be written; nothing is recorded then.
    """
    home = journal_folder(root)
    number = max((int(name) for name in _names(root, _RUN)), default=0) + 1
    created = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    record = Record(tool=__version__, state=State.PENDING, created=created, folders=folders, files=files)
    run = JournalRun(root, f"{number:04d}", record)
    ignore, staging = home / ".gitignore", home / f"new-{run.name}"
    try:
        if not ignore.exists():
            write_new(ignore, _IGNORE_ALL)
            on_step(Step("hid the journal from git"))
        staging.mkdir()
        on_step(Step("began the journal"))
        kept = {**contents, **(documents or {})}
        for done, (name, content) in enumerate(kept.items(), start=1):
            write_new(staging / name, content)
            on_step(Step(f"kept {name}", done, len(kept)))
        write_new(staging / _JOURNAL, write_record(record))
        sync_folder(staging)
        on_step(Step("wrote the journal"))
        staging.rename(run.folder)
        sync_folder(home)
        sync_folder(root)  # the journal folder may be new
        on_step(Step("recorded the run"))
    except BaseException:
        remove_leftovers(root)
        if run.folder.exists():
            retire(run)
        raise
    return run


def change_state(
    run: JournalRun,
    state: State,
    *,
    files: tuple[JournalFile, ...] | None = None,
    folders: tuple[str, ...] | None = None,
    contents: Mapping[str, bytes] | None = None,
) -> JournalRun:
    """Record that a run now stands elsewhere, in one step.

    Args:
        run: the run as recorded.
        state: where it stands now.
        files: its files, where more is known about them now.
        folders: its folders, where they are others now.
        contents: bytes to keep with it before that, by their SHA-256.

    Raises:
        OSError: it cannot be written; the run is then recorded as before.
    """
    for digest, content in (contents or {}).items():
        if not (run.folder / digest).exists():
            replace_file(run.folder / digest, content, run.folder / f"{digest}.tmp")
    record = structs.replace(
        run.record,
        state=state,
        files=run.files if files is None else files,
        folders=run.folders if folders is None else folders,
    )
    replace_file(run.folder / _JOURNAL, write_record(record), run.folder / f"{_JOURNAL}.tmp")
    return replace(run, record=record)


def keep_document(run: JournalRun, name: str, content: bytes) -> None:
    """Keep a document with a run, in the place of an earlier one of that name, in one step.

    Raises:
        OSError: it cannot be written, or the run has been rolled back meanwhile.
    """
    replace_file(run.folder / name, content, run.folder / f"{name}.tmp")


def retire(run: JournalRun) -> None:
    """Forget a run whose files are as they were before it.

    Raises:
        OSError: it cannot be removed.
    """
    home = journal_folder(run.root)
    run.folder.rename(home / f"old-{run.name}")
    sync_folder(home)
    remove_leftovers(run.root)


def remove_leftovers(root: Path) -> None:
    """Remove what interrupted runs left in the journal folder, and all that is ours in it when no run is recorded.

    Raises:
        OSError: something cannot be removed.
    """
    home = journal_folder(root)
    for name in leftovers(root):
        shutil.rmtree(home / name)
    ignore = home / ".gitignore"
    # Killed while it was written, it may be empty.
    if not _names(root, _RUN) and ignore.is_file() and ignore.read_bytes() in (_IGNORE_ALL, b""):
        discard(ignore)


def _names(root: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return names of real folders in the journal folder that match ``pattern``; numbers in order."""
    home = journal_folder(root)
    try:
        if not stat.S_ISDIR(home.lstat().st_mode):
            raise JournalDamaged(f"{home} is not a folder: move it away, chirp-migrate keeps its journal there.")
        found = [p.name for p in home.iterdir() if pattern.fullmatch(p.name) and not p.is_symlink() and p.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalDamaged(f"{home} cannot be read ({error.strerror}): make it readable.") from error
    return sorted(found, key=lambda name: (len(name), name))


def _damage_error(folder: Path, why: str) -> JournalDamaged:
    return JournalDamaged(
        f"the journal {folder / _JOURNAL} is damaged ({why}): put it back from a backup, or remove {folder} to go on "
        "without a way back to before that run."
    )
