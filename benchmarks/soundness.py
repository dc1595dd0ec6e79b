"""`make bench-soundness`: programs made up at random, migrated, and run before and after with the same seeds.

Compared are what they return (to the bit, with dtypes), the errors they raise, what they print, and the random states
afterwards. Ends with exit code 1 if anything differs.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import click
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from soundness_bench.running import Outcome, run_programs

from chirp_migrate.training.process import machine as machines

_RESULTS = Path(__file__).resolve().parent / "results" / "soundness.md"


@click.command(context_settings={"max_content_width": 100})
@click.option("--programs", default=3000, show_default=True, type=click.IntRange(min=1), help="How many programs.")
@click.option("--first", default=0, show_default=True, help="Number of the first: the same number, the same program.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1), help="How many at a time.")
@click.option("--write", is_flag=True, help="Write benchmarks/results/soundness.md.")
def main(programs: int, first: int, jobs: int, write: bool) -> None:
    """Migrate programs made up at random, and see that they do the same."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # each program is a process, and would set CUDA up
    begun = time.monotonic()
    rules: dict[str, Counter[str]] = defaultdict(Counter)
    families: dict[str, Counter[str]] = defaultdict(Counter)
    differing = 0
    for number, one in enumerate(run_programs(range(first, first + programs), jobs)):
        _count(one, rules, families)
        if one.difference:
            differing += 1
            click.echo(f"--- program {one.program.number} ({', '.join(sorted(one.rewritten))})\n{one.difference}")
        if sys.stderr.isatty() or (number + 1) % 500 == 0:
            end = "\r" if sys.stderr.isatty() else "\n"
            click.echo(f"{number + 1} of {programs}, {differing} differ{end}", err=True, nl=False)
    took = time.monotonic() - begun
    table = "\n".join([*_table("rule", rules), "", *_table("family", families)])
    click.echo(f"{table}\n\n{differing} of {programs} programs differ; {took:.0f} s")
    if write:
        machine = machines.line(machines.describe(torch.get_num_threads()))
        command = f"python benchmarks/soundness.py --programs {programs} --first {first} --write"
        head = "# Programs made up at random, before and after their migration"
        text = f"{head}\n\n{table}\n\n{differing} of {programs} differ.\n\n{machine} {took:.0f} s: `{command}`\n"
        _RESULTS.write_text(text, encoding="utf-8")
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
    lines = [f"| {what} | {' | '.join(columns)} |", f"|---|{'--:|' * len(columns)}"]
    return lines + [
        f"| {name} | {' | '.join(str(row[one]) for one in columns)} |" for name, row in sorted(rows.items())
    ]


if __name__ == "__main__":
    main()
