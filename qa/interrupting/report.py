"""The outcomes counted, as tables and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.harness import Goal, goal_lines, made_by, table

from .checks import PHASES
from .kills import Outcome

__all__ = ["as_data", "as_markdown", "goals", "summary"]


def goals(outcomes: Sequence[Outcome], kills: int, full: int) -> list[Goal]:
    """What was to be shown, of which ``kills`` and ``full`` were asked for."""
    interrupted = [one for one in outcomes if one.interrupted]
    killed = sum(one.kind == "apply killed" for one in interrupted)
    without_room = sum("killed" not in one.kind for one in interrupted)
    wrong = sum(bool(one.problems) for one in outcomes)
    return [
        Goal("runs of apply killed", str(kills), str(killed), killed >= kills),
        Goal("runs with the disk full or writes failing", str(full), str(without_room), without_room >= full),
        Goal("runs after which something was not as it must be", "0", str(wrong), not wrong),
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
        f"{made_by(settings)}, trees in {settings['folder']}; seed {settings['seed']}; {settings['seconds']:.0f} s.",
        "",
        f"A backend of {settings['python_files']} Python files, all but {settings['not_rewritten']} of them rewritten. "
        "Every run is a process of its own. A fifth of the kills of `apply` came at instants drawn from the whole run; "
        "all others when a file, drawn from those that the command writes or removes, was seen to change. After each "
        "interruption every file was compared with the old and the new tree and with the journal, and every Python "
        "file compiled; then the next command (`rollback`, `apply` or `apply --diff`, at random) had to say what it "
        "found, and after a rollback the tree had to be the original one: names, permission bits and bytes, SHA-256 "
        f"`{settings['tree'][:16]}…`, with no journal left.",
        "",
        *goal_lines(reached),
        "",
        "## Where the interruptions came",
        "",
    ]
    counted = Counter((one.phase, one.kind) for one in outcomes if one.interrupted)
    rows: list[list[object]] = [
        [phase, *(counted[phase, kind] for kind in kinds)]
        for phase in PHASES
        if any(counted[phase, kind] for kind in kinds)
    ]
    by_kind = [[one for one in outcomes if one.kind == kind] for kind in kinds]
    rows.append(["together", *(sum(one.interrupted for one in some) for some in by_kind)])
    ended = [sum(not one.interrupted for one in some) for some in by_kind]
    rows.append(["(ended before it could be interrupted)", *ended])
    rows.append(["(recoveries killed as well)", *(sum(one.recoveries_killed for one in some) for some in by_kind)])
    lines += [*table(["found by the next command", *kinds], rows), ""]
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
    rows = [(kind, f"…{end}", count) for (kind, end), count in sorted(said.items())]
    return ["## What runs without room said", "", *table(["run", "said", "times"], rows, left=2)]


def as_data(outcomes: Sequence[Outcome], reached: Sequence[Goal], settings: dict[str, Any]) -> dict[str, Any]:
    """Everything, one entry per run."""
    return {
        "schema": 1,
        **settings,
        "goals": [asdict(goal) for goal in reached],
        "runs": [one.to_json() for one in outcomes],
    }
