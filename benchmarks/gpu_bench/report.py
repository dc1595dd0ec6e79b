"""Write the results as text and as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness import Goal

from chirp_migrate.training.process import machine as machines

from .cells import NO_TIME, Cell, Measured
from .correctness import Check
from .measure import Timings, times_faster
from .stalls import NOTHING, Stalls
from .targets import as_text, goodput, judge, speed_up
from .ways import TITLES

CPU_LABEL = "CPU: only a test of the benchmark. The results do not apply to a GPU, and no target is judged."
QUICK_LABEL = "Quick: only a test of the benchmark. The samples are too few and too small, so no target is judged."


@dataclass
class Run:
    """The settings and results of a run.

    The attribute ``label`` explains why no target is judged. It is None if targets are judged.
    """

    settings: dict[str, Any]
    machine: dict[str, Any]
    label: str | None
    planned: list[Cell]
    checks: list[Check] = field(default_factory=list)
    results: list[Measured] = field(default_factory=list)
    stalls: list[Stalls] = field(default_factory=list)

    @property
    def outcomes(self) -> list[Goal]:
        """Return the results for the targets; empty if no target is judged."""
        return judge(self.results, [cell for cell in self.planned if cell.key]) if self.label is None else []

    @property
    def missing(self) -> list[Cell]:
        """Return the cells for which no time was left."""
        done = {result.cell for result in self.results}
        return [cell for cell in self.planned if cell not in done]

    @property
    def holds(self) -> bool:
        """Return whether all checks and targets hold. A target without a measurement does not hold."""
        return all(check.holds for check in self.checks) and all(outcome.holds for outcome in self.outcomes)


def as_data(run: Run) -> dict[str, Any]:
    """Return all raw values, for JSON."""
    return {
        "settings": run.settings,
        "machine": run.machine,
        "label": run.label,
        "correctness": [asdict(check) for check in run.checks],
        "cells": [
            {**asdict(one.cell), "ways": {name: asdict(t) for name, t in one.ways.items()}} for one in run.results
        ],
        "not_measured": [asdict(cell) for cell in run.missing],
        "stalls": [asdict(one) for one in run.stalls],
        "targets": [asdict(outcome) for outcome in run.outcomes],
        "holds": run.holds,
    }


def as_text_report(run: Run) -> str:
    """Return the report in 100 columns; the most important part is last."""
    lines = [f"Machine: {machines.machine_summary(run.machine)}"]
    lines += [] if run.label is None else [run.label]
    lines += ["", "The same batches?"]
    lines += [f"  {'yes' if check.holds else 'NO '}  {check.what}: {check.found}" for check in run.checks]
    if run.stalls:
        lines += ["", "Additional call in every step (with a single batch on the device):"]
        lines.append(f"{'':<26}{'samples/s':>10}  time / time of the loop without it [95 %]")
        lines += [line for stalls in run.stalls for line in _stalls(stalls)]
    lines += [
        "",
        "GPU busy: NVML's utilisation, second half of each turn. Goodput: samples/s / samples/s of the limit.",
    ]
    lines.append(f"{'':<26}{'samples/s':>10}  {'GPU busy':>8}  {'goodput [95 %]':<19}  samples/s / original [95 %]")
    for result in sorted(run.results, key=lambda one: one.cell.key):
        lines += [result.cell.title, *_ways(result.ways, result)]
    lines += [f"Not measured, {NO_TIME}: {cell.title}" for cell in run.missing]
    lines += _failures(run.results)
    if run.outcomes:
        lines += ["", "Targets"]
        lines += [_verdict(outcome) for outcome in run.outcomes]
    return "\n".join(lines)


def _ways(ways: dict[str, Timings], result: Measured) -> list[str]:
    lines = []
    for name, title in TITLES.items():
        timings = ways.get(name, Timings(failed="not measured"))
        if timings.rate is None:
            lines.append(f"  {title:<24}{'—':>10}")
            continue
        busy = "—" if timings.busy_percent is None else f"{timings.busy_percent:.0f} %"
        good, faster = goodput(result, name), speed_up(result, name)
        lines.append(
            f"  {title:<24}{timings.rate:>10,.0f}  {busy:>8}  {as_text(good) if good else '—':<19}  "
            f"{as_text(faster) if faster else '—'}".rstrip()
        )
    return lines


def _stalls(stalls: Stalls) -> list[str]:
    plain = stalls.habits[NOTHING]
    lines = [f"{stalls.model} CNN, batch {stalls.batch_size}"]
    for name, timings in stalls.habits.items():
        rate = "—" if timings.rate is None else f"{timings.rate:,.0f}"
        ratio = times_faster(timings, plain) if name != NOTHING else None
        lines.append(f"  {name:<24}{rate:>10}  {as_text(ratio) if ratio else ''}".rstrip())
    return lines


def _failures(results: Sequence[Measured]) -> list[str]:
    failed: dict[str, list[str]] = {}
    for result in results:
        for name, timings in result.ways.items():
            if timings.failed is not None:
                word = "Not measured" if timings.failed == NO_TIME else "Failed"
                failed.setdefault(f"{word}, {TITLES[name]}: {timings.failed}", []).append(result.cell.title)
    return [f"{what} ({len(where)} of the trainings, first: {where[0]})" for what, where in failed.items()]


def _verdict(outcome: Goal) -> str:
    word = {True: "holds     ", False: "MISSED    ", None: "NOT SHOWN "}[outcome.holds]
    return f"  {word}{outcome.what}: {outcome.measured}, wanted {outcome.wanted}"
