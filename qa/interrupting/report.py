"""Count the outcomes of interrupted runs, and write them as tables and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.harness import Goal, page

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
    counted = Counter((one.phase, one.kind) for one in outcomes if one.interrupted)
    by_kind = [[one for one in outcomes if one.kind == kind] for kind in kinds]
    rows: list[list[object]] = [[phase, *(counted[phase, kind] for kind in kinds)] for phase in PHASES]
    rows = [row for row in rows if any(row[1:])]
    rows.append(["all phases", *(sum(one.interrupted for one in some) for some in by_kind)])
    ended = [sum(not one.interrupted for one in some) for some in by_kind]
    rows.append(["(runs that ended before the interruption)", *ended])
    rows.append(["(killed recoveries)", *(sum(one.recoveries_killed for one in some) for some in by_kind)])
    # Runs without enough space first undo their changes, and then print their last message.
    last = Counter((one.kind, one.printed.rpartition(": ")[2]) for one in outcomes if "killed" not in one.kind)
    messages = [(kind, f"…{end}", count) for (kind, end), count in sorted(last.items())]
    wrong = [one for one in outcomes if one.problems]
    return page(
        "interruption", settings=settings, goals=reached, kinds=kinds, phases=rows, messages=messages, wrong=wrong
    )


def as_data(outcomes: Sequence[Outcome], reached: Sequence[Goal], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON document with the settings, the goals and the outcome of each run."""
    return {
        "schema": 1,
        **settings,
        "goals": [asdict(goal) for goal in reached],
        "runs": [asdict(one) for one in outcomes],
    }
