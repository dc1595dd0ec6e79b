"""Write the results as text and as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness import Goal, interval_text

from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.training.process import machine as machines

from .cells import NO_TIME, Cell, Measured
from .correctness import Check
from .measure import Timings, times_faster
from .stalls import NOTHING, Stalls
from .ways import LIMIT, ORIGINAL, PINNED, RESIDENT, TITLES

_BUSY_PERCENT = 90.0
_GOODPUT = {RESIDENT: 0.95, PINNED: 0.90}
_FASTER = 2.0

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


def judge(results: Sequence[Measured], key: Sequence[Cell]) -> list[Goal]:
    """Judge every target in every key cell."""
    by_cell = {result.cell: result for result in results}
    outcomes = []
    for result in (by_cell.get(cell, Measured(cell)) for cell in key):
        timings = result.ways.get(RESIDENT)
        busy = None if timings is None else timings.busy_percent
        what, wanted = f"{result.cell.title}: {TITLES[RESIDENT]}, GPU utilisation", f"≥ {_BUSY_PERCENT:.0f} %"
        shown = _why_not(timings, "NVML reports none") if busy is None else f"{busy:.0f} %"
        outcomes.append(Goal(what, wanted, shown, None if busy is None else busy >= _BUSY_PERCENT))
        outcomes += [_goal(result, way, "goodput", LIMIT, bound, 2) for way, bound in _GOODPUT.items()]
        if result.cell.augmented:
            outcomes.append(
                _goal(result, RESIDENT, f"samples/s / samples/s of {TITLES[ORIGINAL]}", ORIGINAL, _FASTER, 1)
            )
    return outcomes


def _goal(result: Measured, way: str, name: str, slow: str, bound: float, digits: int) -> Goal:
    what, found = f"{result.cell.title}: {TITLES[way]}, {name}", _ratio(result, slow, way)
    shown = _why_not(result.ways.get(way), "not measured") if found is None else interval_text(found)
    return Goal(what, f"≥ {bound:.{digits}f}", shown, None if found is None else found.value >= bound)


def _why_not(timings: Timings | None, otherwise: str) -> str:
    return "not measured" if timings is None else timings.failed or otherwise


def _ratio(result: Measured, slow: str, fast: str) -> Ratio | None:
    """Return samples per second / samples per second of another loader with the same training."""
    one, other = result.ways.get(slow), result.ways.get(fast)
    return None if one is None or other is None else times_faster(one, other)


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
        good, faster = (interval_text(_ratio(result, slow, name), missing="—") for slow in (LIMIT, ORIGINAL))
        lines.append(f"  {title:<24}{timings.rate:>10,.0f}  {busy:>8}  {good:<19}  {faster}")
    return lines


def _stalls(stalls: Stalls) -> list[str]:
    plain = stalls.habits[NOTHING]
    lines = [f"{stalls.model} CNN, batch {stalls.batch_size}"]
    for name, timings in stalls.habits.items():
        rate = "—" if timings.rate is None else f"{timings.rate:,.0f}"
        ratio = times_faster(timings, plain) if name != NOTHING else None
        lines.append(f"  {name:<24}{rate:>10}  {interval_text(ratio)}".rstrip())
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
