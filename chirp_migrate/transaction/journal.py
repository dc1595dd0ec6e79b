"""Read and write the journal of a project, which records each run of ``apply`` so that users can undo the run.

Each applied run has a folder, such as ``.chirp-migrate/0001`` for run 1. The file ``journal.json`` in the folder has
the format that ``journal_schema`` defines. The folder also contains the bytes of each file before and after the run.
These bytes are in files whose name is the SHA-256 of the bytes. The name of the folder is ``new-0001`` until the folder
is complete, and ``old-0001`` while the folder is being removed. So a folder whose name is only a number always contains
a complete record. The folder also contains documents that only the command ``report`` reads, which are ``plan.json``
(the applied plan), ``verify.json`` (the last result of ``verify``) and ``doctor.json`` (the last result of ``doctor``).
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
from chirp_migrate.console.json_document import SchemaTooNew, read_document, to_json_bytes
from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.errors import JournalDamaged
from chirp_migrate.plans.plan import sha256
from chirp_migrate.source.files import fsync_folder, read_file, remove_if_exists, replace_file, write_new_file
from chirp_migrate.transaction.journal_schema import (
    JOURNAL_FOLDER,
    JournalFile,
    RunRecord,
    RunState,
)

#: Name of the file with the plan that a run applied (see :func:`chirp_migrate.review.plan_file.plan_document`).
APPLIED_PLAN = "plan.json"

#: Name of the file with the result of ``verify``, as JSON. ``verify`` stores its result with the last applied run.
VERDICT = "verify.json"

#: Name of the file with the result of ``doctor``, as JSON. ``doctor`` stores its result with the last applied run.
DOCTOR = "doctor.json"

_JOURNAL = "journal.json"
_RUN = re.compile(r"[0-9]{4,}")
_LEFTOVER = re.compile(r"(?:new|old)-[0-9]{4,}")
_IGNORE_ALL = b"*\n"


@dataclass(frozen=True)
class JournalRun:
    """A run that the journal of a project records.

    Attributes:
        root: the folder of the project, with links resolved.
        name: the number of the run as text, such as ``0001``.
        record: the contents of ``journal.json``.
    """

    root: Path
    name: str
    record: RunRecord

    @property
    def state(self) -> RunState:
        """Return whether the run is being applied, is applied, or is being rolled back."""
        return self.record.state

    @property
    def number(self) -> int:
        """Return the number of the run as an integer, such as 1."""
        return int(self.name)

    @property
    def created(self) -> str:
        """Return the time at which the run began, as ISO 8601 in UTC."""
        return self.record.created

    @property
    def files(self) -> tuple[JournalFile, ...]:
        """Return the files of the run, in the order of the plan."""
        return self.record.files

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the posix paths of the folders that the run created; parents come before their subfolders."""
        return self.record.folders

    @property
    def folder(self) -> Path:
        """Return the folder that contains the record of the run and the stored bytes."""
        return journal_folder(self.root) / self.name

    def original(self, path: str) -> bytes:
        """Return the bytes that a file had before the run.

        Raises:
            KeyError: the run did not rewrite a file with this path.
            JournalDamaged: the bytes are missing or were changed.
        """
        for file in self.files:
            if file.path == path and file.before is not None:
                return self.content(file.before.sha256)
        raise KeyError(path)

    def document(self, name: str) -> bytes | None:
        """Return the bytes of a document of the run, such as ``APPLIED_PLAN``; None if the document is not stored.

        Raises:
            JournalDamaged: the document cannot be read.
        """
        try:
            return read_file(self.folder / name)
        except FileNotFoundError:
            return None
        except OSError as error:
            # Rollback needs no document, so the run must not be removed.
            raise JournalDamaged(
                f"{self.folder / name} cannot be read ({error.strerror}): make it readable, or remove it."
            ) from error

    def content(self, digest: str) -> bytes:
        """Return the stored bytes whose SHA-256 is ``digest``.

        Raises:
            JournalDamaged: the bytes are missing or were changed.
        """
        try:
            content = read_file(self.folder / digest)
        except OSError as error:
            raise _damage_error(self.folder, f"{digest} cannot be read: {error.strerror}") from error
        if sha256(content) != digest:
            raise _damage_error(self.folder, f"the bytes stored in {digest} have changed")
        return content


def journal_folder(root: Path) -> Path:
    """Return the path of the folder with the records of all runs on ``root``."""
    return root / JOURNAL_FOLDER


def read_runs(root: Path) -> tuple[JournalRun, ...]:
    """Return all runs that are recorded in ``root``, the oldest first.

    Raises:
        JournalDamaged: the record of a run cannot be read or is invalid.
    """
    runs: list[JournalRun] = []
    for name in _folder_names(root, _RUN):
        try:
            runs.append(read_run(root, name))
        except JournalDamaged:
            if (journal_folder(root) / name).exists():
                raise
            # Another process has just removed this record.
    return tuple(runs)


def read_run(root: Path, name: str) -> JournalRun:
    """Return the run with the number ``name``, such as ``0001``.

    Raises:
        JournalDamaged: the record of the run cannot be read or is invalid.
    """
    folder = journal_folder(root) / name
    try:
        return JournalRun(root, name, read_document(read_file(folder / _JOURNAL), RunRecord))
    except OSError as error:
        raise _damage_error(folder, f"journal.json cannot be read: {error.strerror}") from error
    except SchemaTooNew as error:
        raise JournalDamaged(
            f"the journal {folder / _JOURNAL} was written by a newer chirp-migrate ({error.tool}; {error}): "
            "nothing was changed. Run the command again with that version or a later version."
        ) from error
    except ValueError as error:
        raise _damage_error(folder, str(error)) from error


def has_unfinished_run(root: Path) -> bool:
    """Return whether a run on ``root`` was interrupted, or is still running.

    Raises:
        JournalDamaged: the record of a run cannot be read or is invalid.
    """
    return any(run.state is not RunState.APPLIED for run in read_runs(root))


def applied_runs(root: Path) -> tuple[JournalRun, ...]:
    """Return the runs that are still applied, the oldest first.

    Raises:
        JournalDamaged: the record of a run cannot be read or is invalid.
    """
    return tuple(run for run in read_runs(root) if run.state is RunState.APPLIED)


def incomplete_record_folders(root: Path) -> list[str]:
    """Return the names of journal folders whose creation (``new-…``) or removal (``old-…``) was interrupted."""
    return _folder_names(root, _LEFTOVER)


def record_new_run(
    root: Path,
    files: tuple[JournalFile, ...],
    folders: tuple[str, ...],
    contents: Mapping[str, bytes],
    on_step: Callable[[ProgressStep], None],
    documents: Mapping[str, bytes] | None = None,
) -> JournalRun:
    """Record a new run, and wait until the whole record is on disk.

    Callers must call this function before they change any file of the project.

    Args:
        root: the folder of the project, with links resolved.
        files: the files that the run writes.
        folders: the folders to create for these files; parents come before their subfolders.
        contents: the bytes of all files before and after the run. Each key is the SHA-256 of its bytes.
        on_step: function that shows each finished step to the user.
        documents: dictionary, name of a further file of the run, such as ``plan.json`` → its bytes; None for no further
            files.

    Raises:
        OSError: the record cannot be written. In this case, nothing is recorded.
    """
    home = journal_folder(root)
    number = max((int(name) for name in _folder_names(root, _RUN)), default=0) + 1
    created = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    record = RunRecord(tool=__version__, state=RunState.PENDING, created=created, folders=folders, files=files)
    run = JournalRun(root, f"{number:04d}", record)
    ignore, staging = home / ".gitignore", home / f"new-{run.name}"
    try:
        if not ignore.exists():
            write_new_file(ignore, _IGNORE_ALL)
            on_step(ProgressStep("excluded the journal from git"))
        staging.mkdir()
        on_step(ProgressStep("began the journal"))
        kept = {**contents, **(documents or {})}
        for done, (name, content) in enumerate(kept.items(), start=1):
            write_new_file(staging / name, content)
            on_step(ProgressStep(f"kept {name}", done, len(kept)))
        write_new_file(staging / _JOURNAL, to_json_bytes(record))
        fsync_folder(staging)
        on_step(ProgressStep("wrote the journal"))
        staging.rename(run.folder)
        fsync_folder(home)
        fsync_folder(root)  # because the journal folder may be new
        on_step(ProgressStep("recorded the run"))
    except BaseException:
        remove_leftovers(root)
        if run.folder.exists():
            remove_record(run)
        raise
    return run


def record_run_state(
    run: JournalRun,
    state: RunState,
    *,
    files: tuple[JournalFile, ...] | None = None,
    folders: tuple[str, ...] | None = None,
    contents: Mapping[str, bytes] | None = None,
) -> JournalRun:
    """Record a new state of a run, atomically.

    Args:
        run: the run as recorded.
        state: the new state.
        files: new records of all files; None keeps the present records.
        folders: the new list of folders that the run created; None keeps the recorded list.
        contents: further bytes to store with the run; None for no further bytes. The function stores these bytes first,
            and then changes the state. Each key is the SHA-256 of its bytes.

    Raises:
        OSError: the record cannot be written. The recorded state stays unchanged.
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
    replace_file(run.folder / _JOURNAL, to_json_bytes(record), run.folder / f"{_JOURNAL}.tmp")
    return replace(run, record=record)


def store_document(run: JournalRun, name: str, content: bytes) -> None:
    """Store a document with a run, atomically; an earlier document with the same name is replaced.

    Raises:
        OSError: the document cannot be written, or the run has been rolled back meanwhile.
    """
    replace_file(run.folder / name, content, run.folder / f"{name}.tmp")


def remove_record(run: JournalRun) -> None:
    """Remove the record of a run after its files have been restored.

    Raises:
        OSError: the record cannot be removed.
    """
    home = journal_folder(run.root)
    run.folder.rename(home / f"old-{run.name}")
    fsync_folder(home)
    remove_leftovers(run.root)


def remove_leftovers(root: Path) -> None:
    """Remove all folders that :func:`incomplete_record_folders` returns.

    If no run is recorded, also remove the journal's ``.gitignore``.

    Raises:
        OSError: a file or folder cannot be removed.
    """
    home = journal_folder(root)
    for name in incomplete_record_folders(root):
        shutil.rmtree(home / name)
    ignore = home / ".gitignore"
    # The file is empty if the process was killed while it wrote the file.
    if not _folder_names(root, _RUN) and ignore.is_file() and ignore.read_bytes() in (_IGNORE_ALL, b""):
        remove_if_exists(ignore)


def _folder_names(root: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return the names of folders (not of links) in the journal that match ``pattern``, in numerical order."""
    home = journal_folder(root)
    try:
        if not stat.S_ISDIR(home.lstat().st_mode):
            raise JournalDamaged(
                f"{home} is not a folder, but chirp-migrate stores its journal there: move it to another place."
            )
        found = [p.name for p in home.iterdir() if pattern.fullmatch(p.name) and not p.is_symlink() and p.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalDamaged(
            f"the journal folder {home} cannot be read ({error.strerror}): make the folder readable."
        ) from error
    return sorted(found, key=lambda name: (len(name), name))


def _damage_error(folder: Path, why: str) -> JournalDamaged:
    return JournalDamaged(
        f"the journal {folder / _JOURNAL} is damaged ({why}): restore it from a backup, or remove {folder} to "
        "continue without the possibility to undo earlier runs."
    )
