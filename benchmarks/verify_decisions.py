"""`make bench-verify`: measure how often the decisions of `verify` are correct on this machine.

The benchmark simulates many verifications of 16 entry points (training functions), and decides each verification with
the code of `verify`. The times are simulated with synthetic noise, or with the noise of recorded rounds of real
processes. The benchmark writes `verify-decisions.json` (the recorded times and all counts) and `verify-decisions.md`
(tables).
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import click
import msgspec
from decisions_bench import report
from decisions_bench.recording import Pool, read_pool, record
from decisions_bench.trials import AT_MARGIN, SCENARIOS, recorded_noise, run_trials, synthetic_noise
from harness import ROOT, Goal, check_option, conditions, end, output_option, write, write_json

_DOCUMENT = ROOT / "docs" / "verify.md"
_NOISE = (0.06, 0.15)
_ROUNDS = (3, 4, 12)
_AT_MARGIN_TRIALS = 2000


def _record(rounds: int, threads: int, load: bool, raw: Path) -> tuple[Pool, dict[str, Any]]:
    """Record rounds, and save the recording after every round, so that an interruption loses nothing."""
    settings = {**conditions(threads), "niceness": os.nice(0) if hasattr(os, "nice") else None}
    pool = Pool(load, ())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for pool in record(rounds, threads, load, Path(folder), lambda text: click.echo(text, err=True)):
            write_json(raw, {"settings": settings, "pool": msgspec.to_builtins(pool)})
    return pool, settings


@click.command()
@click.option("--rounds", type=click.IntRange(min=3), default=48, show_default=True, help="Rounds to record.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Compute threads.")
@click.option("--load/--no-load", default=True, show_default=True, help="Keep a CPU core busy at times.")
@click.option(
    "--trials", type=click.IntRange(min=100), default=400, show_default=True, help="Verifications per scenario."
)
@click.option("--seed", type=int, default=435, show_default=True, help="Seed of the simulation.")
@click.option("--recorded", "from_recording", is_flag=True, help="Use the existing recording, and record nothing.")
@output_option
@click.option("--docs/--no-docs", default=False, help="Also write the tables to docs/verify.md.")
@check_option
def main(
    rounds: int,
    threads: int,
    load: bool,
    trials: int,
    seed: int,
    from_recording: bool,
    output: Path,
    docs: bool,
    check: bool,
) -> None:
    """Record rounds, decide many times, and count how often each verdict occurs."""
    output.mkdir(parents=True, exist_ok=True)
    raw = output / "verify-decisions.json"
    if from_recording:
        if not raw.is_file():
            raise click.UsageError(f"{raw} does not exist: run the benchmark without --recorded first.")
        pool, settings = read_pool(raw), json.loads(raw.read_text(encoding="utf-8"))["settings"]
    else:
        pool, settings = _record(rounds, threads, load, raw)
    settings |= {"command": conditions(threads)["command"], "trials": trials, "seed": seed}
    noises = {f"{noise:.0%} noise of one time": synthetic_noise(noise) for noise in _NOISE}
    noises[f"Noise of {len(pool.rounds)} recorded rounds on a machine with other load"] = recorded_noise(pool.rounds)
    tallies = {
        name: {
            rounds_of: {each: run_trials(ratios, noise, rounds_of, trials, seed) for each, ratios in SCENARIOS.items()}
            for rounds_of in _ROUNDS
        }
        for name, noise in noises.items()
    }
    text = report.as_markdown(tallies, settings)
    results = msgspec.to_builtins({"settings": settings, "tallies": tallies, "pool": pool}, str_keys=True)
    write(output, "verify-decisions", f"# How often `verify` is right\n\n{text}", results)
    if docs:
        at_margin = {
            drift: run_trials(AT_MARGIN, synthetic_noise(_NOISE[0], drift), max(_ROUNDS), _AT_MARGIN_TRIALS, seed)
            for drift in (0.0, 0.02)
        }
        report.replace_between_marks(_DOCUMENT, report.in_short(tallies, at_margin, settings))
    click.echo(text)
    end([Goal(what, "", "", holds) for what, _, holds in report.targets(tallies)], check)


if __name__ == "__main__":
    main()
