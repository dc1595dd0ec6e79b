"""One run killed, examined, brought to an end by the next command, and rolled back."""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import aims
from .checks import JOURNAL, Sides, look
from .commands import kill_at, run
from .trees import snapshot

__all__ = ["Outcome", "Reference", "kill_apply", "kill_rollback", "reference"]

#: Shares of the kills of ``apply`` that come at any instant of the whole run, and of recoveries that are killed, too.
_ANYWHERE = 0.2
_RECOVERY_TOO = 0.4

#: Instants reach a little beyond the time that a run took when nobody disturbed it.
_BEYOND = 1.1


@dataclass
class Outcome:
    """One interrupted run.

    Attributes:
        kind: ``apply killed``, ``rollback killed``, ``apply with the disk full`` and so on.
        options: options of ``apply``.
        interrupted: whether the run was: it may have ended before.
        phase: where it was, one of :data:`~qa.interrupting.checks.PHASES`.
        new: number of files that were as after the migration.
        recoveries_killed: how often the recovery was killed as well.
        next_command: what was run next.
        said: what it said, its first line.
        problems: what is not as it must be, as sentences; the aim is none.
    """

    kind: str
    options: list[str]
    interrupted: bool = False
    phase: str = ""
    new: int = 0
    recoveries_killed: int = 0
    next_command: str = ""
    said: str = ""
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """All attributes by their names."""
        return asdict(self)


@dataclass(frozen=True)
class Reference:
    """Undisturbed runs with the same options, to compare with.

    Attributes:
        options: options of ``apply``.
        original: folder with the tree before.
        applied: folder with the tree after, its journal included.
        sides: both trees.
        apply_s: seconds of a whole ``apply``.
    """

    options: tuple[str, ...]
    original: Path
    applied: Path
    sides: Sides
    apply_s: float


def reference(work: Path, original: Path, options: tuple[str, ...]) -> Reference:
    """Apply and roll back once undisturbed.

    Args:
        work: empty folder to work in.
        original: the tree before.
        options: options of ``apply``.

    Raises:
        RuntimeError: that alone goes wrong.
    """
    applied, undone = work / "applied", work / "undone"
    _copy(original, applied)
    begun = time.monotonic()
    ended = run("apply", *options, applied)
    apply_s = time.monotonic() - begun
    if ended.code != 0 or not (applied / JOURNAL / "0001").is_dir():
        raise RuntimeError(f"an undisturbed apply ended with {ended.code}: {ended.said[-500:]}")
    _copy(applied, undone)
    run("rollback", undone)
    sides = Sides(snapshot(original), snapshot(applied, journal=False))
    if snapshot(undone) != sides.before:
        raise RuntimeError("an undisturbed rollback does not give the original tree")
    shutil.rmtree(undone)
    return Reference(options, original, applied, sides, apply_s)


def kill_apply(work: Path, like: Reference, draw: random.Random, compiled: set[str]) -> Outcome:
    """Kill one ``apply`` at a random instant or point of its writing.

    Args:
        work: empty folder to work in.
        like: the undisturbed run.
        draw: where the instants come from.
        compiled: SHA-256 of sources known to compile; more are added.
    """
    outcome = Outcome("apply killed", list(like.options))
    root = work / "tree"
    _copy(like.original, root)
    if draw.random() < _ANYWHERE:
        aim = aims.after(draw.uniform(0, _BEYOND * like.apply_s))
    else:
        aim = aims.of_apply(root, like.applied, like.sides, draw)
    outcome.interrupted = kill_at(aim, "apply", *like.options, root)
    _bring_to_an_end(root, like, draw, outcome, compiled, rollback=False)
    return outcome


def kill_rollback(work: Path, like: Reference, draw: random.Random, compiled: set[str]) -> Outcome:
    """Kill one ``rollback`` at a random point of its writing; arguments as for :func:`kill_apply`."""
    outcome = Outcome("rollback killed", list(like.options))
    root = work / "tree"
    _copy(like.applied, root)
    outcome.interrupted = kill_at(aims.of_rollback(root, like.sides, draw), "rollback", root)
    _bring_to_an_end(root, like, draw, outcome, compiled, rollback=True)
    return outcome


def _bring_to_an_end(
    root: Path, like: Reference, draw: random.Random, outcome: Outcome, compiled: set[str], *, rollback: bool
) -> None:
    found = look(root, like.sides, compiled, rollback=rollback)
    outcome.phase, outcome.new = found.phase, found.new
    outcome.problems += found.problems
    while found.to_recover and draw.random() < _RECOVERY_TOO:
        outcome.recoveries_killed += kill_at(aims.of_recovery(root, like.sides, draw), "rollback", root)
        found = look(root, like.sides, compiled, rollback=rollback)
        outcome.problems += found.problems
    finish(root, like, draw, outcome, to_recover=found.to_recover, standing=found.phase == "applied")


def finish(
    root: Path, like: Reference, draw: random.Random, outcome: Outcome, *, to_recover: bool, standing: bool
) -> None:
    """Run the next command, which must say what it found and bring it to an end, and roll back what stands then.

    Args:
        root: the tree.
        like: the undisturbed run.
        draw: which command is the next one.
        outcome: gets what is not as it must be.
        to_recover: whether there is something to bring to an end.
        standing: whether an apply is complete.
    """
    command: list[str] = draw.choice([["rollback"]] * 6 + [["apply", *like.options], ["apply", "--diff"]])
    outcome.next_command = " ".join(command)
    if command == ["apply", "--diff"]:
        left = snapshot(root)
        shown = run(*command, root)
        outcome.said = _first_line(shown.said)
        if shown.code not in (0, 3) or (shown.code == 3 and "interrupted" not in shown.said):
            outcome.problems.append(f"apply --diff ended with {shown.code}: {shown.said[-300:]}")
        if snapshot(root) != left:
            outcome.problems.append("apply --diff changed something")
        command = ["rollback"]
    done = run(*command, root)
    outcome.said = outcome.said or _first_line(done.said)
    if to_recover and "interrupted" not in done.said:
        outcome.problems.append(f"{command[0]} did not say what it found: {done.said[-300:]}")
    if command[0] == "apply":
        if done.code != 0 or snapshot(root, journal=False) != like.sides.after:
            outcome.problems.append(f"the next apply ended with {done.code}: {done.said[-300:]}")
        done = run("rollback", root)
        standing = True
    if done.code != (0 if standing or to_recover else 2):
        outcome.problems.append(f"rollback ended with {done.code}: {done.said[-300:]}")
    after = snapshot(root)
    if after != like.sides.before:
        differing = sorted({*after.items()} ^ {*like.sides.before.items()})
        outcome.problems.append(f"not the original tree: {[path for path, _ in differing][:5]}")


def _first_line(said: str) -> str:
    return said.strip().splitlines()[0] if said.strip() else ""


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)
