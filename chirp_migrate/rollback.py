"""The last applied run taken back: every byte, every mode, and what it added."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from chirp_migrate import journal
from chirp_migrate.commit import finish_interrupted, reason
from chirp_migrate.errors import CommitFailed, Refused, UsageProblem
from chirp_migrate.journal import JournalRun, journal_folder
from chirp_migrate.lock import hold
from chirp_migrate.plan import sha256
from chirp_migrate.record import JournalFile, State, Version
from chirp_migrate.transition import (
    NOT_A_FILE,
    ChangedMeanwhile,
    changes_of,
    fingerprint,
    perform,
    remove_folders,
    settle,
)

__all__ = ["RollbackResult", "rollback"]


@dataclass(frozen=True)
class RollbackResult:
    """What a rollback did, as posix paths relative to the root in the order of the run.

    Attributes:
        restored: files that have their earlier bytes and mode again.
        removed: files that the run had added.
    """

    restored: tuple[str, ...]
    removed: tuple[str, ...]


def rollback(root: Path, *, force: bool = False, on_step: Callable[[str], None] | None = None) -> RollbackResult:
    """Undo the last applied run in ``root``, wholly or not at all.

    Folders that the run made go too if nothing else is in them, and the journal once no run is left. Where an earlier
    run was interrupted, bringing that to an end comes first; the run undone here is the last one that stands.

    Args:
        root: the tree.
        force: also restore files that were edited since; those edits are lost.
        on_step: told of every step once it is done. What it raises stops the rollback, which is then undone.

    Raises:
        UsageProblem: nothing is applied in ``root``.
        Refused: files were edited since (named), or another run is at work; nothing is changed.
        CommitFailed: the system did not let us write; the message says how the tree stands.
    """
    root = root.resolve()
    step = on_step or (lambda _: None)
    nothing = UsageProblem(f"nothing was applied in {root}: there is nothing to roll back.")
    if not os.path.lexists(journal_folder(root)):
        raise nothing
    try:
        with hold(journal_folder(root)):
            finish_interrupted(root, force=force, on_step=step)
            run = journal.latest_applied(root)
            if run is None:
                raise nothing
            return _roll_back(run, force, step)
    except OSError as error:
        raise CommitFailed(f"{reason(error)}: nothing was changed.") from error


def _roll_back(run: JournalRun, force: bool, step: Callable[[str], None]) -> RollbackResult:
    for file in run.files:  # what cannot be restored must be known before anything changes
        if file.before is not None:
            run.content(file.before.sha256)
    files, kept, edited = _look(run)
    if edited and not force:
        raise Refused(
            f"edited since the migration was applied: {', '.join(edited)}; nothing was changed. Undo these edits, or "
            "run rollback with --force to lose them."
        )
    rolling = journal.change_state(run, State.ROLLING_BACK, files=files, contents=kept)
    try:
        step("recorded the rollback")
        perform(rolling, changes_of(rolling), step)
        _remove_bytecode(run.root, [file.path for file in files if file.before is None])
        remove_folders(run.root, run.folders)
    except BaseException as error:
        _undo(rolling, run, error)
        if isinstance(error, ChangedMeanwhile):
            raise Refused(f"{error.path} changed during the rollback: nothing was rolled back, run it again.") from None
        if isinstance(error, OSError):
            raise CommitFailed(f"{reason(error)}: nothing was rolled back, the migration still stands.") from error
        raise
    try:
        journal.retire(rolling)
    except OSError as error:
        raise CommitFailed(
            f"all files are as before the migration, but its journal cannot be removed ({reason(error)}): "
            f"make {journal_folder(run.root)} writable and run the command again."
        ) from error
    restored = tuple(file.path for file in files if file.before is not None)
    return RollbackResult(restored, tuple(f.path for f in files if f.before is None and f.found is not None))


def _look(run: JournalRun) -> tuple[tuple[JournalFile, ...], dict[str, bytes], list[str]]:
    """The run's files with what is found in their places, the bytes of edited ones to keep, and those ones' paths."""
    files: list[JournalFile] = []
    kept: dict[str, bytes] = {}
    edited: list[str] = []
    for file in run.files:
        place = run.root / file.path
        now = fingerprint(run.root, file.path)
        if now == NOT_A_FILE:
            raise Refused(
                f"{place} is no longer a file of its own (a link or a folder took its place): nothing was changed, "
                "move that away first."
            )
        if now is None:
            files.append(replace(file, found=None))
            if file.before is not None:
                edited.append(f"{file.path} (deleted)")
            continue
        if now != file.after.sha256:
            edited.append(file.path)
            content = place.read_bytes()
            now = sha256(content)
            kept[now] = content
        files.append(replace(file, found=Version(now, place.stat().st_mode & 0o7777)))
    return tuple(files), kept, edited


def _undo(rolling: JournalRun, applied: JournalRun, cause: BaseException) -> None:
    try:
        settle(rolling, changes_of(rolling), forward=False)
        journal.change_state(applied, State.APPLIED)
    except OSError as error:
        why = reason(cause) if isinstance(cause, OSError) else "it was stopped"
        raise CommitFailed(
            f"rolling back failed ({why}) and so did undoing that ({reason(error)}): the journal is kept, the next "
            "chirp-migrate command finishes the rollback."
        ) from cause


def _remove_bytecode(root: Path, created: Sequence[str]) -> None:
    """Remove what Python compiled from added modules: it keeps folders alive that hold nothing else."""
    for path in map(PurePosixPath, created):
        cache = root / path.parent / "__pycache__"
        if path.suffix != ".py" or cache.is_symlink() or not cache.is_dir():
            continue
        # It is made anew whenever it is missing and ignored without its source, so a failure costs nothing.
        with contextlib.suppress(OSError):
            for compiled in cache.glob(f"{path.stem}.*.pyc"):
                compiled.unlink()
            cache.rmdir()
