"""Migrate random programs, and run each before and after its migration with the same seeds.

The check compares the return values (every bit and the dtypes), the errors, the output, and the random states after
the run. The exit code is 1 if a difference is not listed in docs/differences.md.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict

import click

from benchmarks.harness import QA_RESULTS, Progress, conditions, made_by, table, write
from qa.soundness_programs.running import Outcome, run_programs
from qa.soundness_programs.running import start_method as method_of


@click.command()
@click.option("--programs", default=5000, show_default=True, type=click.IntRange(min=1), help="Number of programs.")
@click.option("--first", default=0, show_default=True, help="Number of the first program.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1), help="Number of processes.")
@click.option("--rule", "codes", multiple=True, help="Migrate with this rule only, such as CHP002. [all rules]")
@click.option(
    "--start-method",
    default="both",
    show_default=True,
    type=click.Choice(["fork", "spawn", "both"]),
    help="Start method of worker processes. With both, every fifth program uses spawn.",
)
@click.option("--minutes", type=click.FloatRange(min=0), help="Minutes after which the check ends. [no limit]")
@click.option("--write", "save", is_flag=True, help="Write qa/results/soundness.md.")
def main(
    programs: int,
    first: int,
    jobs: int,
    codes: tuple[str, ...],
    start_method: str,
    minutes: float | None,
    save: bool,
) -> None:
    """Migrate random programs, and check that they behave the same."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # otherwise each of the many processes would initialise CUDA
    progress = Progress()
    rules: dict[str, Counter[str]] = defaultdict(Counter)
    families: dict[str, Counter[str]] = defaultdict(Counter)
    methods: Counter[str] = Counter()
    shown: Counter[str] = Counter()
    differing = 0
    for number, one in enumerate(run_programs(range(first, first + programs), jobs, codes, start_method)):
        _count(one, rules, families)
        methods.update([method_of(one.program.number, start_method)])
        shown.update(one.shown)
        if one.difference:
            differing += 1
            click.echo(f"--- program {one.program.number} ({', '.join(sorted(one.rewritten))})\n{one.difference}")
        progress.count(number + 1, programs, f", {differing} differ", every=500)
        if minutes is not None and progress.seconds > 60 * minutes:
            break
    progress.end()
    total = methods.total()
    by_method = ", ".join(f"{count} by {method}" for method, count in methods.most_common())
    allowed = table(
        ["documented difference", "programs"], [[f"`{name}`", count] for name, count in sorted(shown.items())]
    )
    tables = "\n".join([*_table("rule", rules), "", *_table("family", families), "", *(allowed if shown else [])])
    ended = f"{differing} of {total} programs differ ({by_method})"
    click.echo(f"{tables}\n\n{ended}; {progress.seconds:.0f} s")
    if save:
        head = "# Random programs before and after their migration"
        but = "not counting the documented differences (see [differences.md](../../docs/differences.md))"
        ran = f"{made_by(conditions())}, {progress.seconds:.0f} s."
        write(QA_RESULTS, "soundness", f"{head}\n\n{tables}\n\n{ended}, {but}.\n\n{ran}\n")
    sys.exit(1 if differing else 0)


def _count(one: Outcome, rules: dict[str, Counter[str]], families: dict[str, Counter[str]]) -> None:
    for rule in one.rewritten:
        rules[rule].update(["rewritten", "differ" if one.difference else "same"])
    for rule in one.refused.keys() - one.rewritten.keys():
        rules[rule].update(["not rewritten"])
    families[one.program.family].update(
        ["rewritten" if one.rewritten else "not rewritten", *(["differ"] if one.difference else [])]
    )


def _table(what: str, rows: dict[str, Counter[str]]) -> list[str]:
    columns = [
        one for one in ("rewritten", "not rewritten", "same", "differ") if any(row[one] for row in rows.values())
    ]
    return table([what, *columns], [[name, *(row[one] for one in columns)] for name, row in sorted(rows.items())])
