"""The outcomes counted, as tables and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .checks import PHASES
from .kills import Outcome

__all__ = ["Goal", "as_data", "as_markdown", "goals", "summary"]


@dataclass(frozen=True)
class Goal:
    """Something that was to be shown, with the number wanted and the number reached."""

    what: str
    wanted: int
    reached: int

    @property
    def holds(self) -> bool:
        """Whether it was shown; of problems there must be none."""
        return self.reached >= self.wanted if self.wanted else self.reached == 0


def goals(outcomes: Sequence[Outcome], kills: int, full: int) -> list[Goal]:
    """What was to be shown, of which ``kills`` and ``full`` were asked for."""
    interrupted = [one for one in outcomes if one.interrupted]
    return [
        Goal("runs of apply killed", kills, sum(one.kind == "apply killed" for one in interrupted)),
        Goal("runs with the disk full or writes failing", full, sum("killed" not in one.kind for one in interrupted)),
        Goal("runs after which something was not as it must be", 0, sum(bool(one.problems) for one in outcomes)),
    ]


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """One line per kind of run."""
    lines = []
    for kind in sorted({one.kind for one in outcomes}):
        some = [one for one in outcomes if one.kind == kind]
        stopped = sum(one.interrupted for one in some)
        again = sum(one.recoveries_killed for one in some)
        wrong = sum(bool(one.problems) for one in some)
        more = f", {again} of their recoveries killed as well" if again else ""
        lines.append(f"{kind}: {stopped} interrupted, {len(some) - stopped} ended before{more}; {wrong} with problems")
    return lines


def as_markdown(outcomes: Sequence[Outcome], reached: Sequence[Goal], settings: dict[str, Any]) -> str:
    """All tables."""
    kinds = sorted({one.kind for one in outcomes})
    lines = [
        "# Runs interrupted at random",
        "",
        f"`{settings['command']}` on {settings['machine']}, trees in {settings['folder']}; seed {settings['seed']}; "
        f"{settings['seconds']:.0f} s.",
        "",
        f"A backend of {settings['python_files']} Python files, all but {settings['not_rewritten']} of them rewritten. "
        "Every run is a process of its own. A fifth of the kills of `apply` came at instants drawn from the whole run; "
        "all others when a file, drawn from those that the command writes or removes, was seen to change. After each "
        "interruption every file was compared with the old and the new tree and with the journal, and every Python "
        "file compiled; then the next command (`rollback`, `apply` or `apply --diff`, at random) had to say what it "
        "found, and after a rollback the tree had to be the original one: names, permission bits and bytes, SHA-256 "
        f"`{settings['tree'][:16]}…`, with no journal left.",
        "",
        "| goal | wanted | counted | |",
        "| --- | --: | --: | --- |",
        *(f"| {g.what} | {g.wanted} | {g.reached} | {'holds' if g.holds else 'does not hold'} |" for g in reached),
        "",
        "## Where the interruptions came",
        "",
        f"| found by the next command | {' | '.join(kinds)} |",
        f"| --- |{' --: |' * len(kinds)}",
    ]
    counted = Counter((one.phase, one.kind) for one in outcomes if one.interrupted)
    for phase in PHASES:
        if any(counted[phase, kind] for kind in kinds):
            lines.append(f"| {phase} | {' | '.join(str(counted[phase, kind]) for kind in kinds)} |")
    totals = [sum(one.interrupted for one in outcomes if one.kind == kind) for kind in kinds]
    lines.append(f"| together | {' | '.join(map(str, totals))} |")
    ended = [sum(not one.interrupted for one in outcomes if one.kind == kind) for kind in kinds]
    lines.append(f"| (ended before it could be interrupted) | {' | '.join(map(str, ended))} |")
    again = [sum(one.recoveries_killed for one in outcomes if one.kind == kind) for kind in kinds]
    lines += [f"| (recoveries killed as well) | {' | '.join(map(str, again))} |", ""]
    lines += _refusals(outcomes)
    wrong = [one for one in outcomes if one.problems]
    if wrong:
        lines += ["", "## Problems", ""]
        lines += [f"* {one.kind}, {one.phase}: {'; '.join(one.problems[:3])}" for one in wrong]
    return "\n".join(lines) + "\n"


def _refusals(outcomes: Sequence[Outcome]) -> list[str]:
    """What runs that found no room said in the end, which is after they undid what they had done."""
    said = Counter((one.kind, one.said.rpartition(": ")[2]) for one in outcomes if "killed" not in one.kind)
    if not said:
        return []
    lines = ["## What runs without room said", "", "| run | said | times |", "| --- | --- | --: |"]
    return [*lines, *(f"| {kind} | …{end} | {count} |" for (kind, end), count in sorted(said.items()))]


def as_data(outcomes: Sequence[Outcome], reached: Sequence[Goal], settings: dict[str, Any]) -> dict[str, Any]:
    """Everything, one entry per run."""
    return {
        "schema": 1,
        **settings,
        "goals": [{"what": g.what, "wanted": g.wanted, "reached": g.reached, "holds": g.holds} for g in reached],
        "runs": [one.to_json() for one in outcomes],
    }
