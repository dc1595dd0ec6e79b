"""`make bench-verify`: how often `verify` decides rightly on this machine.

Records rounds of real processes in which the training takes 50 % less to 50 % more time by construction, then
decides many times on rounds drawn from the recording, by the code that `verify` decides with. Writes
`verify-decisions.json` (the recording and every count) and `verify-decisions.md` (tables).
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from verify_decisions import report
from verify_decisions.coverage import cover
from verify_decisions.pool import Pool, of_condition, record
from verify_decisions.trees import CONDITIONS
from verify_decisions.trials import run_trials

from chirp_migrate.verify import machine as machines

_RESULTS = Path(__file__).resolve().parent / "results"
_DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "verify.md"
_SIMULATIONS = 100_000


def _recorded(rounds: int, threads: int, load: bool, raw: Path) -> tuple[Pool, dict[str, Any]]:
    """Record, and keep what there is after every round: an interrupted recording is not lost."""
    settings: dict[str, Any] = {
        "command": shlex.join(["python", "benchmarks/verify_decisions.py", *sys.argv[1:]]),
        "machine": machines.describe(threads),
        "niceness": os.nice(0) if hasattr(os, "nice") else None,
    }
    pool = Pool(load, ())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for pool in record(rounds, threads, load, Path(folder), lambda text: click.echo(text, err=True)):
            _write(raw, {"settings": settings, "pool": pool.to_json()})
    return pool, settings


def _write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@click.command()
@click.option("--rounds", type=click.IntRange(min=3), default=48, show_default=True, help="Rounds to record.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Compute threads of a side.")
@click.option("--load/--no-load", default=True, show_default=True, help="Keep a core busy now and then meanwhile.")
@click.option("--trials", type=click.IntRange(min=100), default=1000, show_default=True, help="Verifications each.")
@click.option("--most", multiple=True, type=click.IntRange(min=3), help="Rounds at most.  [default: 5, 10 and 20]")
@click.option("--seed", type=int, default=435, show_default=True, help="Of the drawing.")
@click.option("--recorded", is_flag=True, help="Decide on the recording that is there instead of making one.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=_RESULTS,
    help="Folder for the results.  [default: benchmarks/results]",
)
@click.option("--docs/--no-docs", default=False, help="Also put the tables into docs/verify.md.")
@click.option("--check", is_flag=True, help="End with exit code 1 if a wanted rate does not hold.")
def main(
    rounds: int,
    threads: int,
    load: bool,
    trials: int,
    most: tuple[int, ...],
    seed: int,
    recorded: bool,
    output: Path,
    docs: bool,
    check: bool,
) -> None:
    """Record rounds, decide many times, and table how often each verdict came out. Takes about a quarter of an hour."""
    output.mkdir(parents=True, exist_ok=True)
    raw = output / "verify-decisions.json"
    if recorded:
        if not raw.is_file():
            raise click.UsageError(f"{raw} is not there: record first, without --recorded.")
        pool, settings = Pool.read(raw), json.loads(raw.read_text(encoding="utf-8"))["settings"]
    else:
        pool, settings = _recorded(rounds, threads, load, raw)
    settings |= {"trials": trials, "seed": seed, "simulations": _SIMULATIONS}
    tallies = {
        condition.name: [
            run_trials(of_condition(pool, condition), condition.ratio, limit, trials, seed)
            for limit in sorted(set(most or (5, 10, 20)))
        ]
        for condition in CONDITIONS
    }
    coverages = cover(20, _SIMULATIONS, seed)
    text = report.as_markdown(pool, tallies, coverages, settings)
    (output / "verify-decisions.md").write_text(f"# How often `verify` is right\n\n{text}", encoding="utf-8")
    results = {
        "settings": settings,
        "tallies": {name: [each.to_json() for each in by_most] for name, by_most in tallies.items()},
        "pool": pool.to_json(),
    }
    _write(raw, results)
    if docs:
        report.replace_between_marks(_DOCUMENT, text)
    click.echo(text)
    if check and not all(holds for _, _, holds in report.targets(tallies)):
        sys.exit(1)


if __name__ == "__main__":
    main()
