"""Check that the rules find exactly the objects that cannot be pickled for workers.

The check generates a program for every kind of object, at every position in which a dataset or loader may contain such
an object. A seed determines the names and the structure of the program. To find the correct answer, another
process pickles the objects that workers need.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

import click

from benchmarks.harness import QA_RESULTS, Goal, Progress, conditions, end, goal_lines, made_by, table, write
from qa.pickling_programs.comparing import Answer, answers
from qa.pickling_programs.kinds import KINDS
from qa.pickling_programs.programs import PLACES, every_pair, make_program

#: Smallest share of the programs that cannot be pickled for which a rule must have a finding.
_FOUND_SHARE = 0.95
_FAMILY = {kind.name: kind.family for kind in KINDS}


@click.command()
@click.option("--seeds", default=2, show_default=True, type=click.IntRange(min=1), help="Programs for each pair.")
@click.option("--first", default=0, show_default=True, help="Seed of the first programs.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1), help="Number of processes.")
@click.option("--write", "save", is_flag=True, help="Write qa/results/pickling.md.")
def main(seeds: int, first: int, jobs: int, save: bool) -> None:
    """Compare the reports of the rules with the results of pickling."""
    progress = Progress()
    programs = [make_program(kind, place, seed) for seed in range(first, first + seeds) for kind, place in every_pair()]
    seen: list[Answer] = []
    for one in answers(programs, jobs):
        seen.append(one)
        for what, is_so in (("missed", one.is_missed), ("wrong finding", one.is_false)):
            if is_so:
                click.echo(f"{what}: {one.program.kind}, {one.program.place}, seed {one.program.seed}: {one.reported}")
        progress.count(len(seen), len(programs), every=1000)
    progress.end()
    failing = [one for one in seen if one.error]
    found = sum(not one.is_missed for one in failing)
    false = sum(one.is_false for one in seen)
    share = found / len(failing)
    goals = [
        Goal(
            "findings for datasets that cannot be pickled",
            f"{_FOUND_SHARE:.0%}",
            f"{found} of {len(failing)} ({share:.1%})",
            share >= _FOUND_SHARE,
        ),
        Goal("findings for datasets that can be pickled", "0", f"{false} of {len(seen) - len(failing)}", not false),
    ]
    kinds = _rows(seen, lambda one: one.program.kind, (kind.name for kind in KINDS))
    places = _rows(seen, lambda one: one.program.place, PLACES)
    matrix = _matrix(seen)
    text = "\n".join(goal_lines(goals))
    click.echo(text)
    if save:
        page = [
            "# Objects that cannot be pickled for workers",
            f"The programs contain {len(KINDS)} kinds of objects in {len(PLACES)} places. Number of programs for each "
            f"pair: {seeds}. Another process pickles the objects that a loader sends to spawned workers. h5py, lmdb, "
            "netCDF4 and torchvision are replaced by stubs. The column *rewritten* counts programs without a pickling "
            "error, in which a rule moves a lambda or local function to module level.",
            text,
            "## By place and kind",
            "Each cell has two numbers: programs with a finding / programs whose pickling fails. `+n` is the number of "
            "programs with a finding whose pickling works.",
            "\n".join(matrix),
            "## By kind",
            "\n".join(table(_HEADER, kinds)),
            "## By place",
            "\n".join(table(_HEADER, places)),
            f"{made_by(conditions())}, {progress.seconds:.0f} s.",
        ]
        write(QA_RESULTS, "pickling", "\n\n".join(page) + "\n")
    end(goals)


_HEADER = ["", "pickling fails", "found", "missed", "pickling works", "reported", "rewritten"]


def _rows(seen: Iterable[Answer], name_of: Callable[[Answer], str], names: Iterable[str]) -> list[list[object]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in seen:
        count = counts[name_of(one)]
        count["fails" if one.error else "works"] += 1
        count["missed"] += one.is_missed
        count["false"] += one.is_false
        count["rewritten"] += not one.error and bool(one.rewritten)
    return [
        [name, c["fails"], c["fails"] - c["missed"], c["missed"], c["works"], c["false"], c["rewritten"]]
        for name, c in ((name, counts[name]) for name in names)
    ]


def _matrix(seen: Iterable[Answer]) -> list[str]:
    families = list(dict.fromkeys(_FAMILY.values()))
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in seen:
        count = counts[one.program.place, _FAMILY[one.program.kind]]
        count.update(programs=1, fails=bool(one.error), missed=one.is_missed, false=one.is_false)

    def cell(place: str, family: str) -> str:
        count = counts[place, family]
        false = f" +{count['false']}" if count["false"] else ""
        return f"{count['fails'] - count['missed']} / {count['fails']}{false}" if count["programs"] else ""

    return table(["place", *families], [[place, *(cell(place, one) for one in families)] for place in PLACES])
