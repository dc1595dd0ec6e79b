"""Kill a run, examine its files, let the next command finish or undo the run, and roll back."""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import moments
from .checks import JOURNAL, TreeVersions, examine_tree
from .commands import kill_at, run
from .trees import snapshot

__all__ = ["Outcome", "Reference", "kill_apply", "kill_rollback", "make_reference"]

#: Share of the runs of ``apply`` that are killed at a random time of the whole run, and share of the recoveries that
#: are killed, too.
_WHOLE_RUN_SHARE = 0.2
_RECOVERY_SHARE = 0.4

#: Latest random time at which a run is killed, as a multiple of the seconds of a run without interruption.
_BEYOND = 1.1


@dataclass
class Outcome:
    """The outcome of a run that the check tried to interrupt.

    Attributes:
        kind: the command and the interruption, such as ``apply killed`` or ``rollback with the disk full``.
        options: options of ``apply``.
        interrupted: whether the run was interrupted; False if the run ended before.
        phase: the phase of the run at the interruption, one of :data:`~qa.interrupting.checks.PHASES`.
        migrated_files: number of files that were migrated at the interruption.
        recoveries_killed: number of recoveries of this run that the check also killed.
        next_command: the command that ran after the interruption.
        printed: the first line that the next command printed. If the command ran out of space, the last line that the
            command itself printed.
        problems: sentences on errors; empty for a correct run.
    """

    kind: str
    options: list[str]
    interrupted: bool = False
    phase: str = ""
    migrated_files: int = 0
    recoveries_killed: int = 0
    next_command: str = ""
    printed: str = ""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reference:
    """A run of ``apply`` without interruption, with which interrupted runs are compared.

    Attributes:
        options: options of ``apply``.
        original: folder with the tree before the migration.
        applied: folder with the migrated tree and its journal.
        versions: the files of both trees.
        apply_s: seconds of the run.
    """

    options: tuple[str, ...]
    original: Path
    applied: Path
    versions: TreeVersions
    apply_s: float


def make_reference(work: Path, original: Path, options: tuple[str, ...]) -> Reference:
    """Run ``apply`` and ``rollback`` once without interruption.

    Args:
        work: empty folder for the trees.
        original: folder with the tree before the migration.
        options: options of ``apply``.

    Raises:
        RuntimeError: ``apply`` fails, or ``rollback`` does not restore the original tree.
    """
    applied, undone = work / "applied", work / "undone"
    _copy(original, applied)
    begun = time.monotonic()
    ended = run("apply", *options, applied)
    apply_s = time.monotonic() - begun
    if ended.code != 0 or not (applied / JOURNAL / "0001").is_dir():
        raise RuntimeError(f"apply without interruption ended with code {ended.code}: {ended.printed[-500:]}")
    _copy(applied, undone)
    run("rollback", undone)
    versions = TreeVersions(snapshot(original), snapshot(applied, journal=False))
    if snapshot(undone) != versions.before:
        raise RuntimeError("rollback without interruption does not restore the original tree")
    shutil.rmtree(undone)
    return Reference(options, original, applied, versions, apply_s)


def kill_apply(work: Path, reference: Reference, rng: random.Random, compiled: set[str]) -> Outcome:
    """Kill a run of ``apply`` at a random time, or while it writes a random file.

    Args:
        work: empty folder for the tree.
        reference: the run without interruption.
        rng: the random generator that chooses the moment of the kill and the next command.
        compiled: SHA-256 of Python sources that are known to compile. The function adds further sources.
    """
    outcome = Outcome("apply killed", list(reference.options))
    root = work / "tree"
    _copy(reference.original, root)
    if rng.random() < _WHOLE_RUN_SHARE:
        moment = moments.after(rng.uniform(0, _BEYOND * reference.apply_s))
    else:
        moment = moments.during_apply(root, reference.applied, reference.versions, rng)
    outcome.interrupted = kill_at(moment, "apply", *reference.options, root)
    _recover_and_check(root, reference, rng, outcome, compiled, rollback=False)
    return outcome


def kill_rollback(work: Path, reference: Reference, rng: random.Random, compiled: set[str]) -> Outcome:
    """Kill a run of ``rollback`` while it writes a random file. The arguments are those of :func:`kill_apply`."""
    outcome = Outcome("rollback killed", list(reference.options))
    root = work / "tree"
    _copy(reference.applied, root)
    outcome.interrupted = kill_at(moments.during_rollback(root, reference.versions, rng), "rollback", root)
    _recover_and_check(root, reference, rng, outcome, compiled, rollback=True)
    return outcome


def _recover_and_check(
    root: Path, reference: Reference, rng: random.Random, outcome: Outcome, compiled: set[str], *, rollback: bool
) -> None:
    """Examine the tree after the kill. Kill some recoveries, too, and run the next command."""
    found = examine_tree(root, reference.versions, compiled, rollback=rollback)
    outcome.phase, outcome.migrated_files = found.phase, found.migrated_files
    outcome.problems += found.problems
    while found.needs_recovery and rng.random() < _RECOVERY_SHARE:
        outcome.recoveries_killed += kill_at(moments.during_recovery(root, reference.versions, rng), "rollback", root)
        found = examine_tree(root, reference.versions, compiled, rollback=rollback)
        outcome.problems += found.problems
    run_next_command(
        root, reference, rng, outcome, needs_recovery=found.needs_recovery, is_applied=found.phase == "applied"
    )


def run_next_command(
    root: Path, reference: Reference, rng: random.Random, outcome: Outcome, *, needs_recovery: bool, is_applied: bool
) -> None:
    """Run the command that follows an interruption, and then roll back the run if it is still applied.

    The command must report the interruption, and must finish or undo the interrupted run. At the end, the tree must be
    the original tree.

    Args:
        root: the tree.
        reference: the run without interruption.
        rng: the random generator that chooses the command.
        outcome: the outcome of the run, to which the function adds problems.
        needs_recovery: whether the interrupted run must be finished or undone.
        is_applied: whether a complete run of ``apply`` is applied.
    """
    command: list[str] = rng.choice([["rollback"]] * 6 + [["apply", *reference.options], ["apply", "--diff"]])
    outcome.next_command = " ".join(command)
    if command == ["apply", "--diff"]:
        left = snapshot(root)
        shown = run(*command, root)
        outcome.printed = _first_line(shown.printed)
        if shown.code not in (0, 3) or (shown.code == 3 and "interrupted" not in shown.printed):
            outcome.problems.append(f"apply --diff ended with code {shown.code}: {shown.printed[-300:]}")
        if snapshot(root) != left:
            outcome.problems.append("apply --diff changed files")
        command = ["rollback"]
    done = run(*command, root)
    outcome.printed = outcome.printed or _first_line(done.printed)
    if needs_recovery and "interrupted" not in done.printed:
        outcome.problems.append(f"{command[0]} did not report the interruption: {done.printed[-300:]}")
    if command[0] == "apply":
        if done.code != 0 or snapshot(root, journal=False) != reference.versions.after:
            outcome.problems.append(f"the next apply ended with code {done.code}: {done.printed[-300:]}")
        done = run("rollback", root)
        is_applied = True
    if done.code != (0 if is_applied or needs_recovery else 2):
        outcome.problems.append(f"rollback ended with code {done.code}: {done.printed[-300:]}")
    after = snapshot(root)
    if after != reference.versions.before:
        differing = sorted({*after.items()} ^ {*reference.versions.before.items()})
        outcome.problems.append(f"after the rollback, these files differ: {[path for path, _ in differing][:5]}")


def _first_line(printed: str) -> str:
    return printed.strip().splitlines()[0] if printed.strip() else ""


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)
