"""`make bench-runs`: run `verify` again and again with its defaults, and compare verdicts, durations and intervals.

The benchmark migrates copies of the fixture backends (example projects), and verifies each copy repeatedly. Some runs
use the machine as it is, and other runs keep one CPU core busy. After each run, the benchmark adds its result to
`verify-runs.json`, so that users can interrupt the benchmark and continue later. The benchmark writes `verify-runs.md`.
`--runs 0` only writes this page again, and `--new` discards earlier runs.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from decisions_bench.recording import other_load
from harness import (
    ROOT,
    Goal,
    Progress,
    check_option,
    conditions,
    end,
    goal_lines,
    made_by,
    migrated_copy,
    output_option,
    run_tool,
    saved,
    table,
    write,
    write_json,
)

_COMMANDS: dict[str, tuple[str, ...]] = {
    "backend": (),
    "grown_backend": (),
    "other_backend": ("--", "python", "train.py", "--epochs", "50"),
}
BACKENDS = tuple(_COMMANDS)
_LOADS = ("quiet", "one core busy")
_MOST_S = 180.0
_MEDIAN_QUIET_S = 120.0
_WIDTHS = {"quiet": 5.0, "one core busy": 10.0}
_NAME = "verify-runs"


def _run(backend: Path, load: str) -> dict[str, Any]:
    """Verify once, and return the row of the run."""
    with nullcontext() if load == "quiet" else other_load(rest_s=0.0):
        began = time.monotonic()
        code, report = run_tool("verify", backend, *_COMMANDS[backend.name])
        seconds = time.monotonic() - began
    row: dict[str, Any] = {"backend": backend.name, "load": load, "exit_code": code, "seconds": seconds}
    if report:
        total = report["ratio"]
        row |= {
            "verdict": report["verdict"],
            "entry_points": len(report["verdicts"]),
            "rounds": len(report["rounds"]["made"]),
            "others": report["rounds"]["others_median"],
            "spent_s": report["spent_s"],
            "ratios": {label: [one["value"], one["low"], one["high"]] for label, one in report["ratios"].items()},
            **({key: total[key] for key in ("value", "low", "high")} if total else {}),
        }
    return row


def _half_width(row: dict[str, Any]) -> float:
    """Return half the length of the total's interval, in percent of the time before; infinite without an interval."""
    return 50 * (row["high"] - row["low"]) if "high" in row else float("inf")


def _goals(load: str, rows: Sequence[dict[str, Any]]) -> list[Goal]:
    [backend] = {row["backend"] for row in rows}
    times = max(Counter(row.get("verdict", "none") for row in rows).values())
    seconds = [row["seconds"] for row in rows]
    width, wide = statistics.median(map(_half_width, rows)), _WIDTHS[load]
    found = [
        ("runs with the same verdict", "9 of 10", f"{times} of {len(rows)}", times >= 0.9 * len(rows)),
        ("longest run", f"≤ {_MOST_S:.0f} s", f"{max(seconds):.0f} s", max(seconds) <= _MOST_S),
        ("median of half the width of the total's interval", f"≤ {wide:.0f} points", f"{width:.1f}", width <= wide),
    ]
    if load == "quiet":
        median = statistics.median(seconds)
        found.append(("median run", f"≤ {_MEDIAN_QUIET_S:.0f} s", f"{median:.0f} s", median <= _MEDIAN_QUIET_S))
    return [Goal(f"{backend}, {load}: {what}", *rest) for what, *rest in found]


def _page(rows: Sequence[dict[str, Any]], settings: dict[str, Any]) -> tuple[str, list[Goal]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["backend"], row["load"]), []).append(row)
    goals: list[Goal] = []
    made = f"{made_by(settings)}. Some of the runs may be from earlier calls of the benchmark."
    lines = ["# Repeated runs of `verify` with its default settings", "", made, ""]
    body = []
    for (backend, load), runs in groups.items():
        goals += _goals(load, runs)
        for row in runs:
            others = "" if row.get("others") is None else f"{row['others']:.0%}"
            seconds, verdict = f"{row['seconds']:.0f}", row.get("verdict", f"exit code {row['exit_code']}")
            counts = (row.get("entry_points", 0), row.get("rounds", 0))
            body.append((backend, load, verdict, saved(row if "value" in row else None, 1), *counts, seconds, others))
    lines += [*goal_lines(goals), ""]
    header = ("backend", "machine", "verdict", "less time", "entry points", "rounds", "seconds", "CPUs used by others")
    lines += table(header, body, left=4)
    return "\n".join(lines) + "\n", goals


@click.command()
@click.option("--runs", type=click.IntRange(min=0), default=10, show_default=True, help="New runs of each kind.")
@click.option("--backend", "backends", type=click.Choice(BACKENDS), multiple=True, help="Verify only this backend.")
@click.option("--load", "loads", type=click.Choice(_LOADS), multiple=True, help="Run only with this load.")
@click.option("--new", is_flag=True, help="Discard earlier runs.")
@output_option
@check_option
def main(runs: int, backends: tuple[str, ...], loads: tuple[str, ...], new: bool, output: Path, check: bool) -> None:
    """Verify fixture backends repeatedly, and write a table of the verdicts, times and intervals."""
    raw = output / f"{_NAME}.json"
    output.mkdir(parents=True, exist_ok=True)
    if not runs and (new or not raw.is_file()):
        raise click.UsageError(
            "--runs 0 only writes the page, so it needs recorded runs, and cannot be used with --new."
        )
    kept = json.loads(raw.read_text(encoding="utf-8")) if raw.is_file() and not new else {"runs": []}
    rows: list[dict[str, Any]] = kept["runs"]
    settings = conditions() if runs else kept["settings"]
    progress = Progress()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copies = {
            name: migrated_copy(ROOT / "fixtures" / name, Path(folder)) for name in (backends or BACKENDS) if runs
        }
        for number in range(runs):
            for load in loads or _LOADS:
                for name, backend in copies.items():
                    progress.step(f"{name}, {load}, run {number + 1} of {runs}")
                    rows.append(_run(backend, load))
                    write_json(raw, {"settings": settings, "runs": rows})
                    click.echo(f"{rows[-1].get('verdict')} in {rows[-1]['seconds']:.0f} s", err=True)
    progress.end()
    rows.sort(key=lambda row: (BACKENDS.index(row["backend"]), _LOADS.index(row["load"])))
    text, goals = _page(rows, settings)
    write(output, _NAME, text, {"settings": settings, "runs": rows})
    end(goals, check)


if __name__ == "__main__":
    main()
