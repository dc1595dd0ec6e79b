"""Applied runs taken back: every byte, every mode, and what they added."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import TypeVar

from chirp_migrate.errors import ChirpMigrateError, CommitFailed, Refused, UsageProblem
from chirp_migrate.plans.plan import sha256
from chirp_migrate.source.files import read_file
from chirp_migrate.transaction import journal
from chirp_migrate.transaction.journal import JournalRun, journal_folder
from chirp_migrate.transaction.lock import hold
from chirp_migrate.transaction.merging import Conflict, three_way_merge
from chirp_migrate.transaction.record import JournalFile, State, Version
from chirp_migrate.transaction.recovery import finish_interrupted, reason
from chirp_migrate.transaction.transition import (
    NOT_A_FILE,
    ChangedMeanwhile,
    changes_of,
    fingerprint,
    perform,
    remove_bytecode,
    remove_folders,
    settle,
)

__all__ = ["RollbackResult", "later_runs", "nothing_applied", "rollback", "rollback_to"]

_Result = TypeVar("_Result")


class _Edits(Enum):
    """What becomes of edits that were made to migrated files since."""

    REFUSED = "nothing is undone"
    KEPT = "they are merged"
    LOST = "they are lost"

    @classmethod
    def of(cls, force: bool, merge: bool) -> _Edits:
        """What the caller asks for; ``force`` goes before ``merge``."""
        return cls.LOST if force else cls.KEPT if merge else cls.REFUSED


@dataclass(frozen=True)
class RollbackResult:
    """What a rollback did, as posix paths relative to the root in the order of the run.

    Attributes:
        restored: files that have their earlier bytes and mode again.
        removed: files that the run had added.
        run: number of the run that was undone, such as ``0001``.
        merged: files that have what the run did to them undone, and later edits kept.
    """

    restored: tuple[str, ...]
    removed: tuple[str, ...]
    run: str = ""
    merged: tuple[str, ...] = ()


def rollback(
    root: Path,
    *,
    force: bool = False,
    merge: bool = False,
    run: int | None = None,
    wait_s: float = 0.0,
    on_step: Callable[[str], None] | None = None,
) -> RollbackResult:
    """Undo one applied run in ``root``, wholly or not at all.

    Folders that the run made go too if nothing else is in them, and the journal once no run is left. Where an earlier
    run was interrupted, bringing that to an end comes first.

    Args:
        root: the tree.
        force: also restore files that were edited since; those edits are lost.
        merge: keep those edits, by git's three-way merge.
        run: number of the run; by default the last one that stands. Another one can be undone while no later run has
            written to one of its files; the later runs can still be undone.
        wait_s: seconds to wait for another run that is at work.
        on_step: told of every step once it is done. What it raises stops the rollback, which is then undone.

    Raises:
        UsageProblem: nothing is applied in ``root``, or no such run.
        Refused: files were edited since (named), or cannot be merged (named), a later run wrote to the same files
            (named), or another run is at work; nothing is changed.
        CommitFailed: the system did not let us write; the message says how the tree stands.
    """
    root = root.resolve()
    step = on_step or (lambda _: None)
    edits = _Edits.of(force, merge)
    return _locked(root, force, wait_s, step, lambda runs: _undo_one(runs, _wanted(runs, run), edits, step))


def rollback_to(
    root: Path,
    first: int,
    *,
    force: bool = False,
    merge: bool = False,
    wait_s: float = 0.0,
    on_step: Callable[[str], None] | None = None,
) -> tuple[RollbackResult, ...]:
    """Undo run number ``first`` and all later ones, newest first; each of them wholly or not at all.

    It is refused before anything changes where one of them would be. Other arguments as for :func:`rollback`.

    Returns:
        What was done, by run, newest first.

    Raises:
        UsageProblem: nothing is applied in ``root``, or no such run.
        Refused: files were edited since (named), or cannot be merged (named), or another run is at work; nothing is
            changed.
        CommitFailed: the system did not let us write; the message says how the tree stands.
    """
    root = root.resolve()
    step = on_step or (lambda _: None)
    edits = _Edits.of(force, merge)

    def undo(runs: Sequence[JournalRun]) -> tuple[RollbackResult, ...]:
        wanted = runs[runs.index(_wanted(runs, first)) :]
        if edits is _Edits.REFUSED:
            _refuse_edited(_edited_in_any(wanted))
        elif edits is _Edits.KEPT:
            _refuse_conflicts(_conflicts_in_any(wanted))
        done: list[RollbackResult] = []
        for run in reversed(wanted):
            try:
                done.append(_roll_back(run, edits, step))
            except (ChirpMigrateError, OSError) as error:
                if not done:
                    raise
                names = ", ".join(one.run for one in done)
                said = reason(error) if isinstance(error, OSError) else str(error)
                raise CommitFailed(f"undone: {names}; not run {run.name}: {said}") from error
        return tuple(done)

    return _locked(root, force, wait_s, step, undo)


def nothing_applied(root: Path) -> UsageProblem:
    """What whoever wants to undo something in ``root`` is told where nothing was applied."""
    return UsageProblem(f"nothing was applied in {root}: there is nothing to roll back.")


def later_runs(run: JournalRun, runs: Iterable[JournalRun]) -> dict[str, list[str]]:
    """Those of ``runs`` that came after ``run`` and wrote to its files: their names, and which files."""
    own = {file.path for file in run.files}
    later = {one.name: [file.path for file in one.files if file.path in own] for one in runs if one.number > run.number}
    return {name: paths for name, paths in later.items() if paths}


def _locked(
    root: Path,
    force: bool,
    wait_s: float,
    step: Callable[[str], None],
    undo: Callable[[Sequence[JournalRun]], _Result],
) -> _Result:
    """What ``undo`` makes of the runs that stand, as the only one at work."""
    if not os.path.lexists(journal_folder(root)):
        raise nothing_applied(root)
    try:
        with hold(journal_folder(root), wait_s=wait_s):
            finish_interrupted(root, force=force, on_step=step)
            runs = journal.applied_runs(root)
            if not runs:
                raise nothing_applied(root)
            return undo(runs)
    except OSError as error:
        raise CommitFailed(f"{reason(error)}: nothing was changed.") from error


def _wanted(runs: Sequence[JournalRun], number: int | None) -> JournalRun:
    if number is None:
        return runs[-1]
    for run in runs:
        if run.number == number:
            return run
    standing = ", ".join(run.name for run in runs)
    raise UsageProblem(
        f"no run {number:04d} is applied in {runs[0].root}: these are: {standing} (see rollback --list)."
    )


def _undo_one(
    runs: Sequence[JournalRun], run: JournalRun, edits: _Edits, step: Callable[[str], None]
) -> RollbackResult:
    overlapping = later_runs(run, runs)
    if overlapping:
        named = "; ".join(f"run {name} to {_some(paths)}" for name, paths in overlapping.items())
        raise Refused(
            f"run {run.name} cannot be undone alone, because later runs wrote to the same files ({named}): nothing was "
            f"changed. Undo these first, or all of them with `chirp-migrate rollback --back-to {run.number} PATH`."
        )
    _bequeath_folders(run, [one for one in runs if one.number > run.number])
    return _roll_back(run, edits, step)


def _bequeath_folders(run: JournalRun, later: Iterable[JournalRun]) -> None:
    """Folders that ``run`` made are to go with the last run that has files in them."""
    for heir in later:
        above = {str(parent) for file in heir.files for parent in PurePosixPath(file.path).parents}
        inherited = above.intersection(run.folders).difference(heir.folders)
        if inherited:
            folders = sorted((*heir.folders, *inherited), key=lambda path: (path.count("/"), path))
            journal.change_state(heir, heir.state, folders=tuple(folders))


def _roll_back(run: JournalRun, edits: _Edits, step: Callable[[str], None]) -> RollbackResult:
    for file in run.files:  # what cannot be restored must be known before anything changes
        if file.before is not None:
            run.content(file.before.sha256)
    files, kept, edited = _look(run)
    if edits is _Edits.REFUSED:
        _refuse_edited(edited)
    merged: dict[str, bytes] = {}
    if edits is _Edits.KEPT:
        merged = _merged(run, files, kept)
        files = tuple(_to_become(file, merged[file.path]) if file.path in merged else file for file in files)
        kept |= {sha256(content): content for content in merged.values()}
    rolling = journal.change_state(run, State.ROLLING_BACK, files=files, contents=kept)
    try:
        step("recorded the rollback")
        perform(rolling, changes_of(rolling), step)
        remove_bytecode(run.root, (file.path for file in files if file.before is None))
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
    restored = tuple(file.path for file in files if file.before is not None and file.path not in merged)
    removed = tuple(file.path for file in files if file.before is None and file.found is not None)
    return RollbackResult(restored, removed, run.name, tuple(merged))


def _look(run: JournalRun) -> tuple[tuple[JournalFile, ...], dict[str, bytes], list[str]]:
    """The run's files with what is found in their places, the bytes of edited ones to keep, and those ones' paths."""
    files: list[JournalFile] = []
    kept: dict[str, bytes] = {}
    edited: list[str] = []
    for file in run.files:
        place = run.root / file.path
        now = _found(run.root, file.path)
        if now is None:
            files.append(file.with_found(None))
            if file.before is not None:
                edited.append(f"{file.path} (deleted)")
            continue
        if now != file.after.sha256:
            edited.append(file.path)
            content = read_file(place)
            now = sha256(content)
            kept[now] = content
        files.append(file.with_found(Version(now, place.stat().st_mode & 0o7777)))
    return tuple(files), kept, edited


def _merged(run: JournalRun, files: Sequence[JournalFile], kept: Mapping[str, bytes]) -> dict[str, bytes]:
    """What becomes of the edited ones of ``files``, the bytes of which are in ``kept``.

    Raises:
        Refused: some cannot be merged, or there is no git.
    """
    merged: dict[str, bytes] = {}
    conflicts: list[str] = []
    for file in files:
        if file.found is not None and file.found.sha256 == file.after.sha256:
            continue
        try:
            content = _without(run, file, None if file.found is None else kept[file.found.sha256])
        except Conflict as conflict:
            conflicts.append(f"{file.path} ({conflict})")
        else:
            if content is not None:
                merged[file.path] = content
    _refuse_conflicts(conflicts)
    return merged


def _without(run: JournalRun, file: JournalFile, now: bytes | None) -> bytes | None:
    """What ``now``, the bytes of a file of ``run`` (None: there is none), is without the run.

    Raises:
        Conflict: later edits cannot be kept.
        Refused: there is no git.
    """
    if file.before is None:
        if now is None or sha256(now) == file.after.sha256:
            return None
        raise Conflict("added by the migration and edited since: delete it, or move it away")
    if now is None:
        raise Conflict("deleted")
    return three_way_merge(file.path, now, run.content(file.after.sha256), run.content(file.before.sha256))


def _to_become(file: JournalFile, content: bytes) -> JournalFile:
    """A file that a rollback is to give ``content``, and the mode that it has."""
    assert file.found is not None
    before = Version(sha256(content), file.found.mode)
    return JournalFile.of(file.path, before, file.sha256_after, file.found)


def _conflicts_in_any(runs: Sequence[JournalRun]) -> list[str]:
    """Files in which later edits could not be kept while undoing ``runs``, newest first, and why."""
    contents: dict[str, bytes | None] = {}
    conflicts: dict[str, str] = {}
    for run in reversed(runs):
        for file in run.files:
            if file.path not in contents:
                contents[file.path] = read_file(run.root / file.path) if _found(run.root, file.path) else None
            try:
                contents[file.path] = _without(run, file, contents[file.path])
            except Conflict as conflict:
                conflicts.setdefault(file.path, f"{file.path} ({conflict})")
    return list(conflicts.values())


def _edited_in_any(runs: Sequence[JournalRun]) -> list[str]:
    """Files that undoing ``runs``, newest first, would meet in a state that no run left them in."""
    expected: dict[str, str | None] = {}
    edited: dict[str, None] = {}
    for run in reversed(runs):
        for file in run.files:
            now = expected[file.path] if file.path in expected else _found(run.root, file.path)
            if now != file.after.sha256 and not (now is None and file.before is None):
                edited[f"{file.path} (deleted)" if now is None else file.path] = None
            expected[file.path] = file.sha256_before
    return list(edited)


def _found(root: Path, path: str) -> str | None:
    """The hash of a file of a run as it is now; None where there is none.

    Raises:
        Refused: something else is in its place.
    """
    now = fingerprint(root, path)
    if now == NOT_A_FILE:
        raise Refused(
            f"{root / path} is no longer a file of its own (a link or a folder took its place): nothing was changed, "
            "move that away first."
        )
    return now


def _refuse_edited(edited: Sequence[str]) -> None:
    if edited:
        raise Refused(
            f"edited since the migration was applied: {', '.join(edited)}; nothing was changed. Run rollback with "
            "--merge to keep these edits, or with --force to lose them."
        )


def _refuse_conflicts(conflicts: Sequence[str]) -> None:
    if conflicts:
        raise Refused(
            f"what was edited since the migration cannot be kept without it: {'; '.join(conflicts)}; nothing was "
            "changed. Undo these edits, or run rollback with --force to lose them."
        )


def _some(paths: Sequence[str]) -> str:
    """The first few of many paths."""
    few = ", ".join(paths[:3])
    return few if len(paths) <= 3 else f"{few} and {len(paths) - 3} more"


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
