"""`make bench-soundness`: programs made up at random, migrated, and run before and after with the same seeds.

Compared are what they return (to the bit, with dtypes), the errors they raise, what they print, and the random states
afterwards. Ends with exit code 1 if anything differs.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict

import click
from harness import RESULTS, Progress, conditions, made_by, table, write
from soundness_bench.running import Outcome, run_programs


@click.command(context_settings={"max_content_width": 100})
@click.option("--programs", default=3000, show_default=True, type=click.IntRange(min=1), help="How many programs.")
@click.option("--first", default=0, show_default=True, help="Number of the first: the same number, the same program.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1), help="How many at a time.")
@click.option("--rule", "codes", multiple=True, help="Migrate with this rule only, such as CHP002. [all rules]")
@click.option(
    "--start-method",
    default="fork",
    show_default=True,
    type=click.Choice(["fork", "spawn"]),
    help="How programs start worker processes.",
)
@click.option("--write", "save", is_flag=True, help="Write benchmarks/results/soundness.md.")
def main(programs: int, first: int, jobs: int, codes: tuple[str, ...], start_method: str, save: bool) -> None:
    """Migrate programs made up at random, and see that they do the same."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # each program is a process, and would set CUDA up
    progress = Progress()
    rules: dict[str, Counter[str]] = defaultdict(Counter)
    families: dict[str, Counter[str]] = defaultdict(Counter)
    differing = 0
    for number, one in enumerate(run_programs(range(first, first + programs), jobs, codes, start_method)):
        _count(one, rules, families)
        if one.difference:
            differing += 1
            click.echo(f"--- program {one.program.number} ({', '.join(sorted(one.rewritten))})\n{one.difference}")
        progress.count(number + 1, programs, f", {differing} differ", every=500)
    progress.end()
    tables = "\n".join([*_table("rule", rules), "", *_table("family", families)])
    click.echo(f"{tables}\n\n{differing} of {programs} programs differ; {progress.seconds:.0f} s")
    if save:
        head = "# Programs made up at random, before and after their migration"
        ran = f"{made_by(conditions())}, {progress.seconds:.0f} s."
        write(RESULTS, "soundness", f"{head}\n\n{tables}\n\n{differing} of {programs} differ.\n\n{ran}\n")
    sys.exit(1 if differing else 0)


def _count(one: Outcome, rules: dict[str, Counter[str]], families: dict[str, Counter[str]]) -> None:
    for rule in one.rewritten:
        rules[rule].update(["rewritten", "differ" if one.difference else "same"])
    for rule in one.refused.keys() - one.rewritten.keys():
        rules[rule].update(["left alone"])
    families[one.program.family].update(
        ["rewritten" if one.rewritten else "left alone", *(["differ"] if one.difference else [])]
    )


def _table(what: str, rows: dict[str, Counter[str]]) -> list[str]:
    columns = [one for one in ("rewritten", "left alone", "same", "differ") if any(row[one] for row in rows.values())]
    return table([what, *columns], [[name, *(row[one] for one in columns)] for name, row in sorted(rows.items())])


if __name__ == "__main__":
    main()
