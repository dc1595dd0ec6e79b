"""Build the report of a verification from its measurements and its verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from chirp_migrate import __version__
from chirp_migrate.console.text import format_percent, pluralize, shorten_list
from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process import machine
from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, FullTrainingLength, TrainingSource
from chirp_migrate.verify.equivalence.compare import Equivalence
from chirp_migrate.verify.metrics import METRICS, judge_targets, metrics_of_timed_rounds
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.spec import LoaderPassTrace
from chirp_migrate.verify.timing.rounds import Rounds, StopReason
from chirp_migrate.verify.verdict import Verdict, judge_rounds
from chirp_migrate.verify.verify_report import (
    EntryVerdict,
    OwnRunTimes,
    ReportedMetrics,
    RunDescription,
    SimulatedDevice,
    VerifyReport,
    Workload,
)
from chirp_migrate.verify.watching import RecordedRuns
from chirpid_patch.machine.cpus import usable_cpus
from chirpid_patch.machine.nvml import gpu_status

_NO_LOADER = "verify detected no loader in the training, so it compared only the values that the training returns."


def build_report(
    discovery: DiscoveredEntryPoints,
    settings: VerifyOptions,
    recorded_runs: RecordedRuns,
    equivalence: Equivalence,
    rounds: Rounds,
    seconds_by_activity: Mapping[str, float],
) -> VerifyReport:
    """Build the report of a verification from all its measurements.

    The report contains the seconds of every round, and a record of every iteration over a loader in the watched runs
    (short trainings in which ``verify`` records batches and losses, and measures no times).

    Args:
        discovery: the entry points (training functions or a script) that were found in the project.
        settings: options of the verification, such as the time budget.
        recorded_runs: the records of the watched run of each entry point, in both versions.
        equivalence: the result of comparing these records: differences, and notes on values that were not compared.
        rounds: the rounds of the timing, in each of which both versions trained; no rounds if the comparison found a
            difference.
        seconds_by_activity: dictionary, name of an activity of ``verify``, such as ``warming up`` → seconds of this
            activity.
    """
    labels = [entry.label for entry in discovery.entry_points if entry.label not in recorded_runs.failing]
    judge = judge_rounds(rounds, settings.threshold, settings.margin, settings.strict)
    reached = {label for each in rounds.made for label in each.labels}
    not_timed = [] if equivalence.differences else [label for label in labels if label not in reached]
    decision = judge.decide(equivalence.differences, len(not_timed))
    total = judge.total
    on = machine.describe_machine(settings.threads)
    traces = {
        side: {label: one.traces for label, one in of.items() if not one.error}
        for side, of in recorded_runs.sides.items()
    }
    metrics = {side: _metric_values(rounds, side) for side in ("before", "after")} if rounds.made else {}
    targets = judge_targets(metrics["after"], str(gpu_status()), settings.simulate_step_ms > 0) if metrics else []
    reason, interrupted = decision.reason, rounds.ended_with == StopReason.INTERRUPTED
    if settings.simulate_step_ms:
        reason = f"with SIMULATED device steps of {settings.simulate_step_ms:g} ms: {reason}"
    if interrupted:
        reason = f"interrupted after {pluralize(len(rounds.made), 'round')}; the result so far: {reason}"
    if not_timed:
        note = f"not timed, because the budget of {settings.budget_s:.0f} s was used up: {', '.join(not_timed)}"
        equivalence += Equivalence(notes=[note])
    return VerifyReport(
        verdict=decision.verdict.text,
        exit_code=ExitCode.INTERRUPTED if interrupted else decision.verdict.exit_code,
        reason=reason,
        threshold=settings.threshold,
        ratio=None if total is None else total.ratio,
        ratios={label: timing.ratio for label, timing in judge.entries.items()},
        rounds=rounds,
        verdicts={
            label: EntryVerdict(verdict.of_entry_point, judge.entries[label].zero_cost_ratio)
            for label, verdict in judge.verdicts().items()
        },
        zero_cost_ratio=None if total is None else total.zero_cost_ratio,
        own_runs=_own_run_times(discovery, rounds),
        spent_s={name: round(seconds, 3) for name, seconds in seconds_by_activity.items()},
        measures=ReportedMetrics(definitions=list(METRICS), figures=metrics),
        targets=targets,
        simulated=_describe_simulation(discovery, settings, rounds) if settings.simulate_step_ms else None,
        differences=equivalence.found,
        notes=equivalence.notes,
        smallest_adjusted_p=equivalence.smallest_p,
        detectable_changes=equivalence.detectable_changes,
        unrepeatable=sorted(equivalence.unrepeatable),
        passes=traces,
        workload=Workload(
            **asdict(settings.sizes),
            model=discovery.model,
            entry_points=labels,
            left_out=list(discovery.left_out),
            failing=dict(recorded_runs.failing),
            no_room=not_timed,
            source=discovery.source.value,
            hook=discovery.entry_points[0].hook or None,
            command=list(discovery.entry_points[0].script) or None,
        ),
        machine=on,
        described=RunDescription(
            rounds=describe_rounds(rounds) if rounds.made else "",
            workload=discovery.describe(settings.sizes),
            machine=machine.machine_summary(on),
            compared="" if any(traces["before"].values()) else _NO_LOADER,
            unseen=_describe_uncompared_objects(traces),
        ),
        **_provenance(),
    )


def _own_run_times(discovery: DiscoveredEntryPoints, timed: Rounds) -> dict[str, OwnRunTimes]:
    """Return the start-up time and the epoch time of each entry point, as medians of all its timings.

    The keys of the dictionary are the labels (short unique names) of the entry points.
    """
    found = {}
    for entry in discovery.entry_points:
        sides = {
            side: [each.visits_of(side)[entry.label] for each in timed.made if entry.label in each.visits_of(side)]
            for side in ("before", "after")
        }
        if not all(sides.values()):
            continue
        epochs = {side: [s for visit in of for s in visit.epochs_s] for side, of in sides.items()}
        has_epochs = all(epochs.values())
        epoch_s = {side: statistics.median(of) for side, of in epochs.items()} if has_epochs else {}
        start_s = {
            side: max(0.0, statistics.median(visit.start_s for visit in of) - epoch_s.get(side, 0.0))
            for side, of in sides.items()
        }
        own = entry.own if has_epochs else FullTrainingLength(0, 1, False)
        found[entry.label] = OwnRunTimes(**asdict(own), epoch_s=epoch_s, start_s=start_s)
    return found


def build_failed_report(failure: WorkloadFailed, file_hashes: Mapping[str, str | None]) -> VerifyReport:
    """Return a report with the verdict ``failed``, the reason, and the last lines that the project's code printed."""
    on = machine.describe_machine(usable_cpus())
    return VerifyReport(
        verdict=Verdict.FAILED.text,
        exit_code=failure.exit_code,
        reason=str(failure),
        side=failure.side,
        output_tail=failure.shown_tail,
        machine=on,
        described=RunDescription(machine=machine.machine_summary(on)),
        files=dict(file_hashes),
        **_provenance(),
    )


def describe_rounds(rounds: Rounds) -> str:
    """Return one line: the number of timing rounds, the CPU use of other processes, and why no more rounds ran."""
    timed = sum(len(each.labels) for each in rounds.made)
    text = f"{pluralize(timed, 'timing')} of entry points by {pluralize(len(rounds.made), 'pair')} of processes"
    ended = "" if rounds.ended_with is None else f" No more rounds ran: {rounds.ended_with}."
    if rounds.others_median is None or rounds.others_most is None:
        return f"{text}; the CPU use of other processes was not measured ({rounds.not_watched}).{ended}"
    return (
        f"{text}; other processes used {format_percent(rounds.others_median)} of the CPUs in the median round, and "
        f"at most {format_percent(rounds.others_most)} in a round.{ended}"
    )


def _describe_uncompared_objects(traces: Mapping[str, Mapping[str, Sequence[LoaderPassTrace]]]) -> str:
    """Return a sentence on objects in batches that ``verify`` did not compare; ``""`` without such objects."""
    types: dict[str, set[str]] = {}
    for entries in traces.values():
        for label, records in entries.items():
            types.setdefault(label, set()).update(*(record.unseen for record in records))
    holders: dict[tuple[str, ...], list[str]] = {}
    for label, names in types.items():
        if names:
            holders.setdefault(tuple(sorted(names)), []).append(label)
    if not holders:
        return ""
    held = "; ".join(f"{shorten_list(labels, 3)}: {shorten_list(names, 3)}" for names, labels in holders.items())
    return f"Batches contain objects whose contents verify does not compare ({held})."


def _provenance() -> dict[str, Any]:
    """Return the report fields for the version of this program, the environment, and the present time."""
    return {
        "tool": f"chirp-migrate {__version__}",
        "environment": machine.describe_environment(),
        "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _metric_values(timed: Rounds, side: str) -> dict[str, float | None]:
    visits = [
        (visit, each.visits_of("after")[label]) for each in timed.made for label, visit in each.visits_of(side).items()
    ]
    return metrics_of_timed_rounds(timed.total_seconds(side), visits)


def _describe_simulation(discovery: DiscoveredEntryPoints, settings: VerifyOptions, timed: Rounds) -> SimulatedDevice:
    """Describe the simulated device steps, and compute the share of the time in which the simulated device was busy.

    A simulated step imitates a training step on a device. It takes time but no CPU (option ``--simulate-step-ms``).
    """
    step_ms = settings.simulate_step_ms
    first = timed.made[0].visits if timed.made else {}
    steps = {
        side: {label: visit.steps for label, visit in visits.items() if visit.steps is not None}
        for side, visits in first.items()
    }
    model = (
        "one small layer replaces the model in every run"
        if discovery.source is TrainingSource.FOUND
        else "the user's own model computes during the step"
    )
    text = (
        f"SIMULATED: each training batch is followed by a device step of {step_ms:g} ms that uses no CPU; {model}. "
        "All times, rates and the verdict describe this simulation"
    )
    busy = {}
    for side, of in steps.items():
        visits = [first[side][label] for label in of]
        taken = sum(math.fsum([one.start_s, *one.epochs_s, *one.cached_s, one.rest_s]) for one in visits)
        if taken:
            busy[side] = sum(one.steps for one in of.values()) * step_ms / 1e3 / taken
    if busy:
        text += "; device busy " + ", ".join(f"{format_percent(share)} {side}" for side, share in busy.items())
    counts = [one for of in steps.values() for one in of.values()]
    late = sum(one.overrun for one in counts)
    if late:
        all_steps = sum(one.steps for one in counts)
        text += f"; in {late} of {all_steps} steps, the training itself took longer than the simulated step"
    return SimulatedDevice(step_ms=step_ms, what=f"{text}.", device_busy=busy, steps=steps)
