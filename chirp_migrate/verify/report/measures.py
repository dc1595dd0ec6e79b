"""Measures, targets and simulated steps of a verification, as lines for a terminal and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chirp_migrate.console.paint import figure
from chirp_migrate.training.workload.entry_points import Discovery, Source
from chirp_migrate.verify.measures.figures import MEASURES, figures, memory_slope, timed_figures
from chirp_migrate.verify.measures.metric_data import LoaderRate
from chirp_migrate.verify.measures.targets import TargetVerdict, judge_targets
from chirp_migrate.verify.report import plots
from chirp_migrate.verify.session import Measurements
from chirp_migrate.verify.settings import Settings
from chirp_migrate.verify.timing.simulate import StepCount

__all__ = ["drawn", "lines", "simulation_line", "to_json"]

_SIDES = ("before", "after")
_PLATEAU = 0.9
"""Share of the best rate that counts as equal to it."""

_IN_TABLE = (
    "samples_per_s",
    "batches_per_s",
    "goodput_percent",
    "epoch_s",
    "wait_p50_ms",
    "wait_p95_ms",
    "wait_p99_ms",
    "wait_variation",
    "first_batch_ms",
    "waiting_percent",
    "augmentation_ms",
    "augmentation_percent",
    "gpu_percent",
    "gpu_memory_mib",
    "memory_mib",
    "resident_mib",
    "memory_slope_mib",
    "lost_workers",
)


def lines(measurements: Measurements, settings: Settings) -> list[str]:
    """The table of measures, what is behind it, and a verdict on each target; nothing where nothing was measured."""
    if not measurements.measured:
        return []
    found = {side: _figures(measurements, side) for side in _SIDES}
    simulated = settings.measuring.simulates
    mark = "  (device steps simulated)" if simulated else ""
    shown = [f"{'measured, all entry points' + mark:54} {'before':>12} {'after':>12}  unit"]
    for measure in MEASURES:
        values = [found[side].get(measure.name) for side in _SIDES]
        if measure.name in _IN_TABLE and any(value is not None for value in values):
            cells = [figure(value) for value in values]
            shown.append(f"{measure.title:54.54} {cells[0]:>12} {cells[1]:>12}  {measure.unit}".rstrip())
    for side in _SIDES:
        slope = memory_slope(measurements.measured[side])
        if slope is not None:
            shown.append(f"Memory growth {side}: {slope.value:+.2f} MiB/epoch [{slope.low:+.2f}, {slope.high:+.2f}].")
    after = measurements.measured["after"]
    if found["after"]["gpu_percent"] is None:
        shown.append(f"{_capital(after.gpu)}.")
    rates = [rate for rate in after.rates if rate.samples_per_second is not None]
    if rates:
        each = ", ".join(
            f"{rate.samples_per_second:,.0f} {'from the factory' if rate.loader == 'factory' else f'at {rate.workers}'}"
            for rate in rates
        )
        shown.append(f"Loading alone after the migration, samples/s by workers of PyTorch's loader: {each}.")
        shown += _plateau(rates)
    shown += ["", "Targets, after the migration:", *map(_target_line, _targets(measurements, settings))]
    return shown


def simulation_line(measurements: Measurements, settings: Settings, discovery: Discovery) -> str | None:
    """What was simulated, and how busy it kept the device; None when nothing was."""
    step_ms = settings.measuring.simulate_step_ms
    if not settings.measuring.simulates:
        return None
    if discovery.source is Source.COMMAND:
        return f"SIMULATED device steps were asked for ({step_ms:g} ms), but a command cannot be given any: none were."
    model = (
        "a stand-in of one small layer takes the model's place in every pass"
        if discovery.source is Source.FOUND
        else "the model stays, and its own work runs within the step"
    )
    text = (
        f"SIMULATED: each training batch is followed by a device step of {step_ms:g} ms that uses no CPU; {model}. "
        "Times, rates and the verdict are of this simulation"
    )
    busy = _busy(measurements, step_ms)
    if busy:
        text += "; device busy " + ", ".join(f"{share:.0%} {side}" for side, share in busy.items())
    late = sum(count.overrun for side in _SIDES for count in measurements.simulated.get(side, {}).values())
    steps = sum(count.steps for side in _SIDES for count in measurements.simulated.get(side, {}).values())
    if late:
        text += f"; in {late} of {steps} steps the training's own work took longer than the step"
    return f"{text}."


def drawn(folder: Path, measurements: Measurements, settings: Settings, machine: str) -> str:
    """Draw the plots into an existing folder, and say so in one sentence (see :func:`.plots.draw`)."""
    step_ms = settings.measuring.simulate_step_ms
    words = f"SIMULATED device steps of {step_ms:g} ms, which use no CPU." if settings.measuring.simulates else None
    seconds = measurements.seconds if measurements.rounds else {}
    written = plots.draw(folder, seconds, measurements.measured, f"Machine: {machine}.", words)
    names = ", ".join(path.name for path in written) or "none, as nothing was measured"
    return f"Plots in {folder}: {names}."


def to_json(measurements: Measurements, settings: Settings, discovery: Discovery) -> dict[str, Any]:
    """Definitions, figures and raw values of both sides, targets, and the simulation."""
    simulated: Mapping[str, Mapping[str, StepCount]] = measurements.simulated
    step_ms = settings.measuring.simulate_step_ms
    slopes = {side: memory_slope(found) for side, found in measurements.measured.items()}
    return {
        "measures": {
            "definitions": [asdict(measure) for measure in MEASURES],
            "figures": {side: _figures(measurements, side) for side in measurements.measured},
            "memory_slope_mib": {side: None if slope is None else asdict(slope) for side, slope in slopes.items()},
            "raw": {side: asdict(found) for side, found in measurements.measured.items()},
        },
        "targets": [asdict(target) for target in _targets(measurements, settings)],
        "simulated": None
        if not settings.measuring.simulates
        else {
            "step_ms": step_ms,
            "what": simulation_line(measurements, settings, discovery),
            "device_busy": _busy(measurements, step_ms),
            "steps": {side: {label: asdict(count) for label, count in of.items()} for side, of in simulated.items()},
        },
    }


def _figures(measurements: Measurements, side: str) -> dict[str, float | None]:
    found: dict[str, float | None] = dict.fromkeys(measure.name for measure in MEASURES)
    found.update(figures(measurements.measured[side]))
    if measurements.rounds:
        passes = [record for entry in measurements.probe[side].values() for record in entry.passes]
        samples, batches = sum(one.samples for one in passes), sum(len(one.batches) for one in passes)
        cached = [seconds for seconds in measurements.total("cached") if seconds > 0]
        found.update(timed_figures(measurements.total(side), cached, samples, batches))
    return found


def _plateau(rates: Sequence[LoaderRate]) -> list[str]:
    """From how many workers on PyTorch's loader gains nothing more, and the setting that follows (R-004)."""
    plain = {rate.workers: rate.samples_per_second or 0.0 for rate in rates if rate.loader == "plain"}
    ours = next((rate.samples_per_second or 0.0 for rate in rates if rate.loader == "factory"), 0.0)
    if len(plain) < 2:
        return []
    best = max(plain.values())
    count = min(workers for workers, rate in plain.items() if rate >= _PLATEAU * best)
    advice = "leave num_workers to the factory" if ours >= _PLATEAU * best else f"try max_workers={count} or tune=True"
    return [f"More than {count} workers gain nothing more there: {advice}."]


def _targets(measurements: Measurements, settings: Settings) -> tuple[TargetVerdict, ...]:
    if "after" not in measurements.measured:
        return ()
    after = measurements.measured["after"]
    simulated = settings.measuring.simulates
    return judge_targets(after, figures(after), settings.sizes.batch_size, simulated)


def _busy(measurements: Measurements, step_ms: float) -> dict[str, float]:
    """Share of the training time in which the simulated device was busy, by side."""
    shares = {}
    for side in _SIDES:
        counts = measurements.simulated.get(side, {})
        if counts and measurements.rounds:
            steps = sum(count.steps for count in counts.values())
            shares[side] = steps * step_ms / 1e3 / statistics.median(measurements.total(side))
    return shares


def _target_line(target: TargetVerdict) -> str:
    warning = ", WARNING" if target.warning else ""
    return f"  {target.verdict}{warning}: {target.target} ({target.requirement}): {target.why}."


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".rstrip(".")
