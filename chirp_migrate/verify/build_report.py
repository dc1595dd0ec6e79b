"""From what was measured to the document that says it, and what is decided by it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from chirp_migrate import __version__
from chirp_migrate.console.text import percent, shortened
from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process import machine
from chirp_migrate.training.workload.entry_points import Discovery, Source
from chirp_migrate.verify.document import Described, EntryVerdict, Measured, Simulated, VerifyReport, Workload
from chirp_migrate.verify.equivalence.compare import Equivalence
from chirp_migrate.verify.measures.figures import MEASURES, figures, memory_slope, timed_figures
from chirp_migrate.verify.measures.metric_data import SideMeasures
from chirp_migrate.verify.measures.targets import judge_targets
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.spec import EntryResult, Mode, RunResult, Trace
from chirp_migrate.verify.timing.rounds import SIDES, Rounds, Stopped
from chirp_migrate.verify.trial import Trial
from chirp_migrate.verify.verdict import Verdict, judged
from chirpid_patch.machine.cpus import usable_cpus

__all__ = ["build_report", "failed_report", "rounds_line"]


def build_report(
    discovery: Discovery,
    settings: VerifyOptions,
    trial: Trial,
    probe: Mapping[str, RunResult],
    equivalence: Equivalence,
    timed: Rounds,
    first_timed: Mapping[str, Mapping[str, EntryResult]],
    **conditions: Any,
) -> VerifyReport:
    """Everything measured, with raw seconds of every round and what every loader yielded, and what is decided by it.

    Args:
        trial: what brief trainings showed.
        probe: what the untimed processes of ``before`` and ``after`` found.
        equivalence: what of the training differs.
        timed: the rounds; none when the sides were found to differ before timing.
        first_timed: side → entry point → result in its first timed process, see :class:`.Children`.
        conditions: fields of the document that are not measured: ``before``, ``copies``, ``files``.
    """
    labels = [entry.label for entry in discovery.entry_points]
    judge = judged(timed, settings.threshold, settings.margin, settings.each)
    decision = judge.decide(equivalence.differences, len(trial.failing) + len(trial.no_room))
    total = judge.total
    on = machine.describe(settings.threads)
    traces = {
        side: {label: entry.traces for label, entry in result.modes[Mode.PROBE].items()}
        for side, result in probe.items()
    }
    measured = {side: result.measured for side, result in probe.items() if result.measured is not None}
    targets = []
    if after := measured.get("after"):
        targets = judge_targets(after, figures(after), settings.sizes.batch_size, settings.simulates)
    reason, interrupted = decision.reason, timed.ended_with == Stopped.INTERRUPTED
    if settings.simulates:
        reason = f"with SIMULATED device steps of {settings.simulate_step_ms:g} ms: {reason}"
    if interrupted:
        reason = f"interrupted after {len(timed.made)} rounds, and so far: {reason}"
    return VerifyReport(
        verdict=decision.verdict.text,
        exit_code=ExitCode.INTERRUPTED if interrupted else decision.verdict.exit_code,
        reason=reason,
        threshold=settings.threshold,
        headspace=None if total is None else total.headspace,
        ratio=None if total is None else total.ratio,
        ratios={label: timing.ratio for label, timing in judge.entries.items()},
        seconds={side: {label: timed.seconds(side, label) for label in labels} for side in SIDES},
        total_seconds={side: timed.total_seconds(side) for side in SIDES},
        rounds=timed,
        verdicts={
            label: EntryVerdict(verdict.of_entry_point, judge.entries[label].perfect, judge.entries[label].headspace)
            for label, verdict in judge.verdicts().items()
        },
        perfect=None if total is None else total.perfect,
        measures=Measured(
            definitions=list(MEASURES),
            figures={side: _figures(found, timed, side, traces[side]) for side, found in measured.items()},
            memory_slope_mib={side: memory_slope(found) for side, found in measured.items()},
            raw=measured,
        ),
        targets=targets,
        simulated=_simulated(discovery, settings, timed, first_timed) if settings.simulates else None,
        differences=equivalence.found,
        notes=equivalence.notes,
        smallest_adjusted_p=equivalence.smallest_p,
        noticed=equivalence.noticed,
        unrepeatable=sorted(equivalence.unrepeatable),
        passes=traces,
        workload=Workload(
            **asdict(settings.sizes),
            model=discovery.model,
            entry_points=labels,
            left_out=list(discovery.left_out),
            failing=dict(trial.failing),
            no_room=list(trial.no_room),
            source=discovery.source.value,
            hook=discovery.entry_points[0].hook or None,
            command=list(discovery.entry_points[0].command) or None,
        ),
        machine=on,
        described=Described(
            rounds=rounds_line(timed) if timed.count else "",
            workload=discovery.describe(settings.sizes),
            machine=machine.line(on),
            compared=discovery.compared(saw_loaders=any(traces["before"].values())) or "",
            unseen=_unseen(traces),
        ),
        **_made(),
        **conditions,
    )


def failed_report(failure: WorkloadFailed, files: Mapping[str, str | None]) -> VerifyReport:
    """The verdict ``failed``, with the end of what the project's code printed."""
    on = machine.describe(usable_cpus())
    return VerifyReport(
        verdict=Verdict.FAILED.text,
        exit_code=failure.exit_code,
        reason=str(failure),
        side=failure.side,
        output_tail=failure.shown_tail,
        machine=on,
        described=Described(machine=machine.line(on)),
        files=dict(files),
        **_made(),
    )


def rounds_line(rounds: Rounds) -> str:
    """How many rounds were made, discarded and why, how busy the machine was, and why there were no more."""
    text = f"{len(rounds.made)} made, {rounds.count} kept"
    some = rounds.count - len(rounds.complete)
    if some:
        text += f" ({some} of them with the entry points that were still open)"
    ended = "" if rounds.ended_with is None else f" Ended with {rounds.ended_with}."
    if rounds.others_median is None or rounds.others_most is None or rounds.others_limit is None:
        return f"{text}; whether other processes had the cores was not watched ({rounds.not_watched}).{ended}"
    busy = (
        f"other processes used {percent(rounds.others_median)} of the CPUs in the median round, at most "
        f"{percent(rounds.others_most)}"
    )
    limit = percent(rounds.others_limit)
    if rounds.disturbed_but_counted:
        return (
            f"{text}, {rounds.disturbed_but_counted} of them though others used more than {limit} of the CPUs: the "
            f"machine was busy too often to wait for quiet ({busy}), which makes intervals wide.{ended}"
        )
    return f"{text}, {rounds.discarded} discarded because others used more than {limit} of the CPUs ({busy}).{ended}"


def _unseen(traces: Mapping[str, Mapping[str, Sequence[Trace]]]) -> str:
    """What batches hold and nobody looked into, as one sentence; empty for nothing."""
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
    held = "; ".join(f"{shortened(labels, 3)}: {shortened(names, 3)}" for names, labels in holders.items())
    return f"Batches hold objects that verify does not look into, so what is in them was not compared ({held})."


def _made() -> dict[str, Any]:
    """What made the document, when and where."""
    return {
        "tool": f"chirp-migrate {__version__}",
        "environment": machine.describe_environment(),
        "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _figures(
    measured: SideMeasures, timed: Rounds, side: str, traces: Mapping[str, Sequence[Trace]]
) -> dict[str, float | None]:
    found = figures(measured)
    if timed.count:
        passes = [record for records in traces.values() for record in records]
        samples, batches = sum(one.samples for one in passes), sum(len(one.batches) for one in passes)
        cached = [seconds for seconds in timed.total_seconds("cached") if seconds > 0]
        found |= timed_figures(timed.total_seconds(side), cached, samples, batches)
    return {measure.name: found.get(measure.name) for measure in MEASURES}


def _simulated(
    discovery: Discovery,
    settings: VerifyOptions,
    timed: Rounds,
    first_timed: Mapping[str, Mapping[str, EntryResult]],
) -> Simulated:
    """What was simulated, and how busy it kept the device."""
    step_ms = settings.simulate_step_ms
    if discovery.source is Source.COMMAND:
        text = f"SIMULATED device steps were asked for ({step_ms:g} ms), but a command cannot be given any: none were."
        return Simulated(step_ms=step_ms, what=text)
    steps = {
        side: {label: entry.steps for label, entry in entries.items() if entry.steps is not None}
        for side, entries in first_timed.items()
    }
    model = (
        "a stand-in of one small layer takes the model's place in every pass"
        if discovery.source is Source.FOUND
        else "the model stays, and its own work runs within the step"
    )
    text = (
        f"SIMULATED: each training batch is followed by a device step of {step_ms:g} ms that uses no CPU; {model}. "
        "Times, rates and the verdict are of this simulation"
    )
    counts = {side: list(steps.get(side, {}).values()) for side in ("before", "after")}
    busy = {
        side: sum(count.steps for count in of) * step_ms / 1e3 / statistics.median(timed.total_seconds(side))
        for side, of in counts.items()
        if of and timed.count
    }
    if busy:
        text += "; device busy " + ", ".join(f"{percent(share)} {side}" for side, share in busy.items())
    late = sum(count.overrun for of in counts.values() for count in of)
    if late:
        all_steps = sum(count.steps for of in counts.values() for count in of)
        text += f"; in {late} of {all_steps} steps the training's own work took longer than the step"
    return Simulated(step_ms=step_ms, what=f"{text}.", device_busy=busy, steps=steps)
