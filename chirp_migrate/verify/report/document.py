"""What a verification found, as text for a terminal and as JSON with every raw value."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from chirp_migrate.console.paint import count
from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.training.process import machine
from chirp_migrate.training.workload.entry_points import Discovery, Source
from chirp_migrate.verify.equivalence.difference import Noticed
from chirp_migrate.verify.report import measures as measures_report
from chirp_migrate.verify.report import timing as timing_report
from chirp_migrate.verify.report.showing import TABLE_WIDTH
from chirp_migrate.verify.report.summary import sentence, short, summary_lines
from chirp_migrate.verify.session import Measurements, Outcome
from chirp_migrate.verify.settings import Settings
from chirp_migrate.verify.spec import EntryResult
from chirp_migrate.verify.timing.rounds import Stopped

__all__ = ["exit_code", "to_json", "to_text"]

_DIFFERENCES_SHOWN = 10
_SIDES = ("before", "after", "cached")


def to_text(
    measurements: Measurements,
    outcome: Outcome,
    settings: Settings,
    discovery: Discovery,
    machine_found: dict[str, Any],
    verbose: bool = False,
    width: int = TABLE_WIDTH,
) -> str:
    """The report, verdict first.

    Args:
        verbose: everything that was measured, with tables of 100 columns, instead of at most 25 lines.
        width: columns of the terminal.
    """
    decision = outcome.decision
    lines = [f"Verdict: {decision.verdict.text}. {sentence(_reason(measurements, outcome, settings))}"]
    head = [piece for line in lines for piece in _wrapped(line, width)]
    head += ["", *summary_lines(measurements, outcome, settings, discovery, width)]
    if not verbose:
        return "".join(f"{line}\n" for line in head)
    details = _details(measurements, outcome, settings, discovery, machine_found)
    return "".join(f"{line}\n" for line in [*head, *(piece for line in details for piece in _wrapped(line, width))])


def _details(
    measurements: Measurements,
    outcome: Outcome,
    settings: Settings,
    discovery: Discovery,
    machine_found: dict[str, Any],
) -> list[str]:
    """Tables, equivalence, conditions."""
    simulation = measures_report.simulation_line(measurements, settings, discovery)
    lines = ["", simulation] if simulation is not None else []
    if measurements.rounds:
        lines += ["", *_time_table(measurements, outcome)]
        lines += ["", *timing_report.entry_lines(outcome, settings.threshold, short)]
        lines += ["", f"Rounds: {timing_report.rounds_line(measurements.timed)}"]
    saw_loaders = any(entry.passes for entry in measurements.probe["before"].values())
    if saw_loaders:
        lines += ["", *_training_table(measurements)]
    lines += ["", *measures_report.lines(measurements, settings)] if measurements.measured else []
    lines += ["", *_equivalence(measurements, discovery.compared(saw_loaders))]
    lines += ["", f"Workload: {discovery.describe(settings.sizes)}"]
    if discovery.source is Source.FOUND and simulation is None:
        lines += ["The CPU model is chosen small so that loading matters as it does beside a GPU."]
    if saw_loaders:
        lines += ["'model only' is the same training fed from one cached batch."]
    lines += [
        "Medians of the rounds; [ ] are the intervals of the paired ratios before / after that the verdict rests on. "
        "Starting workers counts, so few epochs weigh it more than a long training does.",
        f"Machine: {machine.line(machine_found)}.",
    ]
    return [*lines, *(f"Left out: {reason}." for reason in discovery.left_out)]


def to_json(
    measurements: Measurements,
    outcome: Outcome,
    settings: Settings,
    discovery: Discovery,
    machine_found: dict[str, Any],
) -> dict[str, Any]:
    """Everything measured and decided, with raw seconds of every round and what every loader yielded."""
    return {
        "schema": 1,
        "verdict": outcome.decision.verdict.text,
        "exit_code": exit_code(measurements, outcome),
        "reason": _reason(measurements, outcome, settings),
        "threshold": settings.threshold,
        "headspace": outcome.headspace,
        "ratio": None if outcome.total is None else asdict(outcome.total),
        "ratios": {label: asdict(ratio) for label, ratio in outcome.entries.items()},
        "seconds": measurements.seconds,
        "total_seconds": {side: measurements.total(side) for side in _SIDES},
        **timing_report.to_json(outcome, measurements.timed),
        **measures_report.to_json(measurements, settings, discovery),
        "differences": [difference.to_json() for difference in measurements.equivalence.found],
        "notes": measurements.equivalence.notes,
        "smallest_adjusted_p": dict(measurements.equivalence.smallest_p or {}),
        "noticed": {
            label: {statistic: asdict(one) for statistic, one in of.items()}
            for label, of in measurements.equivalence.noticed.items()
        },
        "passes": {
            side: {label: [asdict(record) for record in entry.passes] for label, entry in entries.items()}
            for side, entries in measurements.probe.items()
        },
        "workload": {
            **asdict(settings.sizes),
            "model": discovery.model,
            "entry_points": [entry.label for entry in discovery.entry_points],
            "left_out": discovery.left_out,
            "failing": dict(measurements.failing),
            "no_room": list(measurements.no_room),
            "source": discovery.source.value,
            "hook": discovery.entry_points[0].hook or None,
            "command": discovery.entry_points[0].command or None,
        },
        "machine": machine_found,
        "described": {
            "rounds": timing_report.rounds_line(measurements.timed) if measurements.rounds else "",
            "workload": discovery.describe(settings.sizes),
            "machine": machine.line(machine_found),
        },
    }


def exit_code(measurements: Measurements, outcome: Outcome) -> ExitCode:
    """That of the verdict, or of an interrupted command."""
    interrupted = measurements.timed.stopped is Stopped.INTERRUPTED
    return ExitCode.INTERRUPTED if interrupted else outcome.decision.verdict.exit_code


def _reason(measurements: Measurements, outcome: Outcome, settings: Settings) -> str:
    """The decision's reason; in front what was simulated, and that there would have been more."""
    reason = outcome.decision.reason
    if settings.measuring.simulates:
        reason = f"with SIMULATED device steps of {settings.measuring.simulate_step_ms:g} ms: {reason}"
    if measurements.timed.stopped is Stopped.INTERRUPTED:
        reason = f"interrupted after {len(measurements.timed.made)} rounds, and so far: {reason}"
    return reason


def _time_table(measurements: Measurements, outcome: Outcome) -> list[str]:
    if outcome.total is None:
        return []
    lines = [
        f"{'seconds of training':42} {'before':>7} {'after':>7} {'model only':>10}  {'speed-up':17} {'samples/s':>11}",
    ]
    samples_taken = 0
    for label in measurements.labels:
        times = [_median(measurements.seconds[side][label]) for side in _SIDES]
        samples = _samples_taken(measurements.probe["before"][label])
        samples_taken += samples
        lines.append(_time_row(short(label), times, outcome.entries[label], samples))
    total_times = [_median([s for s in measurements.total(side) if s > 0]) for side in _SIDES]
    lines.append(_time_row(f"all ({len(measurements.timed.whole)} rounds)", total_times, outcome.total, samples_taken))
    perfect = "" if outcome.headspace is None else f"Perfect loading would save {outcome.headspace:.0%} of the time; "
    lines.append(sentence(f"{perfect}the migration saved {1 - outcome.total.value:.0%}"))
    return lines


def _median(seconds: list[float]) -> float | None:
    """None where nothing was measured."""
    return statistics.median(seconds) if seconds else None


def _time_row(name: str, times: list[float | None], ratio: Ratio, samples: int) -> str:
    before, after, cached = (f"{time:.2f}" if time is not None else "-" for time in times)
    speed_up = f"{_times(1 / ratio.value)} [{_times(1 / ratio.high)}, {_times(1 / ratio.low)}]"
    rates = ">".join(f"{samples / time:,.0f}" for time in times[:2] if time) if samples else "-"
    return f"{name:42.42} {before:>7} {after:>7} {cached:>10}  {speed_up:17} {rates:>11}"


def _times(value: float) -> str:
    """Three digits, mostly: the table has no room for more."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _training_table(measurements: Measurements) -> list[str]:
    lines = [f"{'samples per epoch and last losses':42} {'train':>9} {'valid.':>9}  {'before':15} {'after':15}"]
    for label in measurements.labels:
        before, after = (measurements.probe[side][label] for side in ("before", "after"))
        counts = [_both(_per_pass(before, role), _per_pass(after, role)) for role in ("train", "validation")]
        lines.append(f"{short(label):42.42} {counts[0]:>9} {counts[1]:>9}  {_losses(before):15} {_losses(after):15}")
    return lines


def _equivalence(measurements: Measurements, limited: str | None) -> list[str]:
    found = measurements.equivalence
    if found.differences:
        lines = ["Differences:", *(f"  {sentence(text)}" for text in found.differences[:_DIFFERENCES_SHOWN])]
        hidden = len(found.differences) - _DIFFERENCES_SHOWN
        return [*lines, f"  and {hidden} more (see --json)"] if hidden > 0 else lines
    augmented = dict(found.smallest_p or {})
    exact = len(measurements.labels) - len(augmented)
    lines = [
        limited
        or f"Equivalent: {count(exact, 'entry point')} identical to the last bit in every batch, loss and result."
    ]
    for label, p in augmented.items():
        kind = "not repeatable" if label in found.unrepeatable else "augmented; validation identical"
        lines.append(
            f"  {short(label)}: {kind}, same distribution (smallest adjusted p {p:.2g}). "
            f"Noticed 9 times in 10: {_noticed(found.noticed.get(label, {}))}."
        )
    return [*lines, *(f"  Note: {note}." for note in found.notes)]


def _noticed(of: Mapping[str, Noticed]) -> str:
    """What differences the tests of an entry point's augmentation would have found."""
    if not of:
        return "whether random numbers repeat, and nothing else"
    share = max(one.share for one in of.values())
    shifts = [f"{name} {one.shift:.2g}" for name, one in of.items() if one.shift is not None]
    return f"{share:.2f} more or less of any probability; in all samples: {', '.join(shifts) or 'nothing else'}"


def _samples_taken(entry: EntryResult) -> int:
    return sum(record.samples for record in entry.passes)


def _per_pass(entry: EntryResult, role: str) -> str:
    counts = sorted({record.samples for record in entry.passes if record.role == role})
    if not counts:
        return "none"
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


def _both(before: str, after: str) -> str:
    return before if before == after else f"{before}>{after}"


def _losses(entry: EntryResult) -> str:
    """Mean loss of the last training pass and of the last validation pass in which a loss was computed."""
    texts = []
    for role in ("train", "validation"):
        means = [loss for record in entry.passes if record.role == role and (loss := record.mean_loss()) is not None]
        texts.append(f"{means[-1]:.4f}" if means else "-")
    return " / ".join(texts)


def _wrapped(line: str, width: int) -> list[str]:
    """The line in pieces that fit the width, continued with the indentation it has; tables fit as they are."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
