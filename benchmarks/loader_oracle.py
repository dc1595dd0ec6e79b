"""`make bench-oracle`: programs made up at random, each with PyTorch's loader, with ours, and as a migrated call.

Compared are batches, errors and their places, calls of the user's methods by kind of process, random states, the
dataset afterwards, the start method, imports, signal and logging handlers, threads and processes left. What may differ
is listed in docs/loader.md. Ends with exit code 1 if anything else does.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import click
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from oracle_bench.cases import make_case
from oracle_bench.runner import explain, run_cases

from chirp_migrate.training.process import machine as machines

_RESULTS = Path(__file__).resolve().parent / "results" / "loader-oracle.md"


@click.command(context_settings={"max_content_width": 100})
@click.option("--cases", default=2000, show_default=True, type=click.IntRange(min=1), help="How many programs.")
@click.option("--first", default=0, show_default=True, help="Number of the first: the same number, the same program.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1), help="How many at a time.")
@click.option("--slow-methods", default=0.04, show_default=True, help="Share that spawn workers or use a fork server.")
@click.option("--write", is_flag=True, help="Write benchmarks/results/loader-oracle.md.")
def main(cases: int, first: int, jobs: int, slow_methods: float, write: bool) -> None:
    """Compare our loaders with PyTorch's on programs made up at random."""
    begun, shown = time.monotonic(), 0
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
        if sys.stderr.isatty() or (number + 1) % 250 == 0:
            end = "\r" if sys.stderr.isatty() else "\n"
            click.echo(
                f"{number + 1} of {cases}, {shown} differ, {time.monotonic() - begun:.0f} s{end}", err=True, nl=False
            )
    ends = ", ".join(f"{side}: {count} of {cases} differ" for side, count in sorted(counts.items()))
    click.echo(f"\n{ends}; {time.monotonic() - begun:.0f} s")
    if write:
        machine = machines.line(machines.describe(torch.get_num_threads()))
        lines = [
            "# Our loaders beside PyTorch's, on programs made up at random", "",
            f"`python benchmarks/loader_oracle.py --cases {cases} --first {first}` on", f"{machine}.", "",
            "| of the programs | |", "|---|--:|", *(f"| {use} | {count} |" for use, count in sorted(uses.items())), "",
            "| loader | programs that differ from PyTorch's |", "|---|--:|",
            *(f"| {side} | {count} of {cases} |" for side, count in sorted(counts.items())), "",
        ]  # fmt: skip
        _RESULTS.write_text("\n".join(lines), encoding="utf-8")
    if shown:
        sys.exit(1)


if __name__ == "__main__":
    main()
