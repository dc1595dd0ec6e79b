"""Run random programs with PyTorch's loader, with our loader, and with a migrated call.

PyTorch's loader defines the correct behaviour of the other two. The check compares the batches, the errors and the
places of the errors, the calls of the user's methods in each kind of process, and the random states. It also compares
the dataset after the run, the start method, the imported modules, the handlers of signals and logging, and the
remaining threads and processes. docs/loader.md lists the permitted differences. Any other difference leads to exit code
1.
"""

from __future__ import annotations

import sys
from collections import Counter

import click

from benchmarks.harness import QA_RESULTS, Progress, conditions, made_by, table, write
from qa.oracle_programs.cases import make_case
from qa.oracle_programs.runner import explain, run_cases


@click.command()
@click.option("--cases", default=2000, show_default=True, type=click.IntRange(min=1), help="Number of programs.")
@click.option("--first", default=0, show_default=True, help="Number of the first program.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1), help="Number of processes.")
@click.option("--slow-methods", default=0.04, show_default=True, help="Share of programs with spawn or forkserver.")
@click.option("--write", "save", is_flag=True, help="Write qa/results/oracle.md.")
def main(cases: int, first: int, jobs: int, slow_methods: float, save: bool) -> None:
    """Compare the loaders of `chirpid_patch` with PyTorch's loader on random programs."""
    progress, shown = Progress(), 0
    counts: Counter[str] = Counter()
    uses: Counter[str] = Counter()
    programs = [make_case(first + number, slow_methods) for number in range(cases)]
    for number, outcome in enumerate(run_cases(programs, jobs)):
        events = outcome.found["torch"].get("events", [])
        uses[f"{outcome.case.workers} workers"] += 1
        uses[outcome.case.method or "default start method"] += 1
        uses["an error is raised"] += any(event[0] == "error" for event in events)
        for side, names in outcome.differing.items():
            counts[side] += bool(names)
        if not outcome.is_same:
            shown += 1
            click.echo(explain(outcome))
        progress.count(number + 1, cases, f", {shown} differ", every=250)
    progress.end()
    ends = ", ".join(f"{side}: {count} of {cases} differ" for side, count in sorted(counts.items()))
    click.echo(f"\n{ends}; {progress.seconds:.0f} s")
    if save:
        counted = [(side, f"{count} of {cases}") for side, count in sorted(counts.items())]
        lines = [
            "# Loaders of chirpid_patch compared with PyTorch's loader", "", f"{made_by(conditions())}.", "",
            *table(["property of the random program", "programs"], sorted(uses.items())), "",
            *table(["loader", "programs that differ from PyTorch's"], counted), "",
        ]  # fmt: skip
        write(QA_RESULTS, "oracle", "\n".join(lines))
    if shown:
        sys.exit(1)
