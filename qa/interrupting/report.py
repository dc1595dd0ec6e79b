"""Count the outcomes of interrupted runs, and write them as tables and as JSON."""

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
    """Return the goals of the check, and whether the outcomes reach the goals.

    Args:
        outcomes: the outcomes of all runs.
        kills: wanted number of killed runs of ``apply``.
        full: wanted number of runs without enough space.
    """
    interrupted = [one for one in outcomes if one.interrupted]
    killed = sum(one.kind == "apply killed" for one in interrupted)
    without_room = sum("killed" not in one.kind for one in interrupted)
    wrong = sum(bool(one.problems) for one in outcomes)
    return [
        Goal("runs of apply killed", str(kills), str(killed), killed >= kills),
        Goal("runs with the disk full or writes failing", str(full), str(without_room), without_room >= full),
        Goal("runs with problems", "0", str(wrong), not wrong),
    ]


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """Return one line for each kind of run, with the numbers of interrupted runs and of runs with problems."""
    lines = []
    for kind in sorted({one.kind for one in outcomes}):
        some = [one for one in outcomes if one.kind == kind]
        stopped = sum(one.interrupted for one in some)
        again = sum(one.recoveries_killed for one in some)
        wrong = sum(bool(one.problems) for one in some)
        more = f", {again} recoveries also killed" if again else ""
        lines.append(f"{kind}: {stopped} interrupted, {len(some) - stopped} ended before{more}; {wrong} with problems")
    return lines


def as_markdown(outcomes: Sequence[Outcome], reached: Sequence[Goal], settings: dict[str, Any]) -> str:
    """Return the page with the results."""
    kinds = sorted({one.kind for one in outcomes})
    lines = [
        "# Runs interrupted at random",
        "",
        f"{made_by(settings)}, trees in {settings['folder']}; seed {settings['seed']}; {settings['seconds']:.0f} s.",
        "",
        f"The backend has {settings['python_files']} Python files, and `apply` rewrites all but "
        f"{settings['not_rewritten']} of these files. Every run is a separate process. A fifth of the runs of `apply` "
        "were killed at a random time. All other kills took place as soon as a random file changed that the command "
        "writes or removes. Runs on a full disk were not killed. After each interruption, the check compared every "
        "file with its old and new version and with the journal, and compiled every Python file. The next command "
        "(`rollback`, `apply` or `apply --diff`, chosen at random) had to report the interruption if the run was "
        "unfinished. After a rollback, the tree had to be the original tree, with the same names, permission bits and "
        "bytes, and without a journal. The SHA-256 of the original tree is "
        f"`{settings['tree'][:16]}…`.",
        "",
        *goal_lines(reached),
        "",
        "## Phases of the interrupted runs",
        "",
    ]
    counted = Counter((one.phase, one.kind) for one in outcomes if one.interrupted)
    rows: list[list[object]] = [
        [phase, *(counted[phase, kind] for kind in kinds)]
        for phase in PHASES
        if any(counted[phase, kind] for kind in kinds)
    ]
    by_kind = [[one for one in outcomes if one.kind == kind] for kind in kinds]
    rows.append(["all phases", *(sum(one.interrupted for one in some) for some in by_kind)])
    ended = [sum(not one.interrupted for one in some) for some in by_kind]
    rows.append(["(runs that ended before the interruption)", *ended])
    rows.append(["(killed recoveries)", *(sum(one.recoveries_killed for one in some) for some in by_kind)])
    lines += [*table(["phase at the interruption", *kinds], rows), ""]
    lines += _last_messages(outcomes)
    wrong = [one for one in outcomes if one.problems]
    if wrong:
        lines += ["", "## Problems", ""]
        lines += [f"* {one.kind}, {one.phase}: {'; '.join(one.problems[:3])}" for one in wrong]
    return "\n".join(lines) + "\n"


def _last_messages(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a table of the last messages of runs without enough space. Such runs first undo their changes."""
    counts = Counter((one.kind, one.printed.rpartition(": ")[2]) for one in outcomes if "killed" not in one.kind)
    if not counts:
        return []
    rows = [(kind, f"…{end}", count) for (kind, end), count in sorted(counts.items())]
    return ["## Last messages of runs without enough space", "", *table(["run", "message", "times"], rows, left=2)]


def as_data(outcomes: Sequence[Outcome], reached: Sequence[Goal], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON document with the settings, the goals and the outcome of each run."""
    return {
        "schema": 1,
        **settings,
        "goals": [asdict(goal) for goal in reached],
        "runs": [asdict(one) for one in outcomes],
    }
