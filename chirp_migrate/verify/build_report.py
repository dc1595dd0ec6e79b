"""What was measured, and the document that says it with what is decided by it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from chirp_migrate import __version__
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
from chirp_migrate.verify.spec import EntryResult, StepCount
from chirp_migrate.verify.timing.children import SIDES
from chirp_migrate.verify.timing.rounds import Rounds, Stopped
from chirp_migrate.verify.verdict import Verdict, judged
from chirpid_patch.machine.cpus import usable_cpus

__all__ = ["Measurements", "build_report", "failed_report", "rounds_line"]

_ENTRY_VERDICTS = {
    Verdict.FASTER: "meets the threshold",
    Verdict.MODEL_BOUND: "model-bound",
    Verdict.NOT_SHOWN: "not shown",
    Verdict.UNDECIDED: "undecided",
    Verdict.SLOWER: "slower",
}


@dataclass
class Measurements:
    """Everything that was measured.

    Attributes:
        labels: entry points, in the order in which they ran.
        probe: PROBE results of ``before`` and ``after``.
        timed: the rounds; none when the sides were found to differ before timing.
        equivalence: what of the training differs.
        measured: what the MEASURED pass of ``before`` and ``after`` found; empty where there was none.
        simulated: side (``before``, ``after``, ``cached``) → entry point → simulated device steps of a timed round;
            empty when none were asked for.
        failing: entry points that were left out because they fail on both sides, with their errors.
        no_room: entry points that were left out because the budget has no room for them.
    """

    labels: tuple[str, ...]
    probe: dict[str, dict[str, EntryResult]]
    timed: Rounds
    equivalence: Equivalence
    measured: dict[str, SideMeasures] = field(default_factory=dict)
    simulated: dict[str, dict[str, StepCount]] = field(default_factory=dict)
    failing: Mapping[str, str] = field(default_factory=dict)
    no_room: tuple[str, ...] = ()

    @property
    def seconds(self) -> dict[str, dict[str, list[float]]]:
        """Side (``before``, ``after``, ``cached``) → entry point → seconds of each round that counts and has it."""
        included = self.timed.included
        return {
            side: {
                label: [each.seconds[side][label] for each in included if label in each.seconds[side]]
                for label in self.labels
            }
            for side in SIDES
        }

    def total(self, side: str) -> list[float]:
        """Seconds of all entry points together, for each round that counts and has all of them."""
        return [sum(each.seconds[side].values()) for each in self.timed.complete]


def build_report(
    measurements: Measurements, settings: VerifyOptions, discovery: Discovery, **conditions: Any
) -> VerifyReport:
    """Everything measured, with raw seconds of every round and what every loader yielded, and what is decided by it.

    Args:
        conditions: fields of the document that the measurements do not know: ``before``, ``copies``, ``files``.
    """
    interrupted = measurements.timed.ended_with == Stopped.INTERRUPTED
    equivalence = measurements.equivalence
    judge = judged(measurements.timed, settings.threshold, settings.margin, settings.each)
    decision = judge.decide(equivalence.differences, len(measurements.failing) + len(measurements.no_room))
    total = judge.total
    on = machine.describe(settings.threads)
    saw_loaders = any(entry.traces for entry in measurements.probe["before"].values())
    return VerifyReport(
        verdict=decision.verdict.text,
        exit_code=ExitCode.INTERRUPTED if interrupted else decision.verdict.exit_code,
        reason=_reason(measurements, decision.reason, settings),
        threshold=settings.threshold,
        headspace=None if total is None else total.headspace,
        ratio=None if total is None else total.ratio,
        ratios={label: timing.ratio for label, timing in judge.entries.items()},
        seconds=measurements.seconds,
        total_seconds={side: measurements.total(side) for side in SIDES},
        rounds=measurements.timed,
        verdicts={
            label: EntryVerdict(_ENTRY_VERDICTS[verdict], judge.entries[label].perfect, judge.entries[label].headspace)
            for label, verdict in judge.verdicts().items()
        },
        perfect=None if total is None else total.perfect,
        measures=_measured(measurements),
        targets=_targets(measurements, settings),
        simulated=_simulated(measurements, settings, discovery),
        differences=equivalence.found,
        notes=equivalence.notes,
        smallest_adjusted_p=equivalence.smallest_p,
        noticed=equivalence.noticed,
        unrepeatable=sorted(equivalence.unrepeatable),
        passes={side: {label: entry.traces for label, entry in of.items()} for side, of in measurements.probe.items()},
        workload=Workload(
            **asdict(settings.sizes),
            model=discovery.model,
            entry_points=[entry.label for entry in discovery.entry_points],
            left_out=list(discovery.left_out),
            failing=dict(measurements.failing),
            no_room=list(measurements.no_room),
            source=discovery.source.value,
            hook=discovery.entry_points[0].hook or None,
            command=list(discovery.entry_points[0].command) or None,
        ),
        machine=on,
        described=Described(
            rounds=rounds_line(measurements.timed) if measurements.timed.count else "",
            workload=discovery.describe(settings.sizes),
            machine=machine.line(on),
            compared=discovery.compared(saw_loaders) or "",
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
    if rounds.others_median is None:
        return f"{text}; whether other processes had the cores was not watched ({rounds.not_watched}).{ended}"
    busy = (
        f"other processes used {rounds.others_median:.0%} of the CPUs in the median round, at most "
        f"{rounds.others_most:.0%}"
    )
    limit = f"{rounds.others_limit:.0%}"
    if rounds.disturbed_but_counted:
        return (
            f"{text}, {rounds.disturbed_but_counted} of them though others used more than {limit} of the CPUs: the "
            f"machine was busy too often to wait for quiet ({busy}), which makes intervals wide.{ended}"
        )
    return f"{text}, {rounds.discarded} discarded because others used more than {limit} of the CPUs ({busy}).{ended}"


def _made() -> dict[str, Any]:
    """What made the document, when and where."""
    return {
        "tool": f"chirp-migrate {__version__}",
        "environment": machine.describe_environment(),
        "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _reason(measurements: Measurements, reason: str, settings: VerifyOptions) -> str:
    """The decision's reason; in front what was simulated, and that there would have been more."""
    if settings.simulates:
        reason = f"with SIMULATED device steps of {settings.simulate_step_ms:g} ms: {reason}"
    if measurements.timed.ended_with == Stopped.INTERRUPTED:
        reason = f"interrupted after {len(measurements.timed.made)} rounds, and so far: {reason}"
    return reason


def _measured(measurements: Measurements) -> Measured:
    return Measured(
        definitions=list(MEASURES),
        figures={side: _figures(measurements, side) for side in measurements.measured},
        memory_slope_mib={side: memory_slope(found) for side, found in measurements.measured.items()},
        raw=measurements.measured,
    )


def _figures(measurements: Measurements, side: str) -> dict[str, float | None]:
    found: dict[str, float | None] = dict.fromkeys(measure.name for measure in MEASURES)
    found.update(figures(measurements.measured[side]))
    if measurements.timed.count:
        passes = [record for entry in measurements.probe[side].values() for record in entry.traces]
        samples, batches = sum(one.samples for one in passes), sum(len(one.batches) for one in passes)
        cached = [seconds for seconds in measurements.total("cached") if seconds > 0]
        found.update(timed_figures(measurements.total(side), cached, samples, batches))
    return found


def _targets(measurements: Measurements, settings: VerifyOptions) -> list[Any]:
    after = measurements.measured.get("after")
    if after is None:
        return []
    return list(judge_targets(after, figures(after), settings.sizes.batch_size, settings.simulates))


def _simulated(measurements: Measurements, settings: VerifyOptions, discovery: Discovery) -> Simulated | None:
    """What was simulated, and how busy it kept the device; None when nothing was."""
    if not settings.simulates:
        return None
    step_ms, steps = settings.simulate_step_ms, measurements.simulated
    if discovery.source is Source.COMMAND:
        text = f"SIMULATED device steps were asked for ({step_ms:g} ms), but a command cannot be given any: none were."
        return Simulated(step_ms=step_ms, what=text)
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
        side: sum(count.steps for count in of) * step_ms / 1e3 / statistics.median(measurements.total(side))
        for side, of in counts.items()
        if of and measurements.timed.count
    }
    if busy:
        text += "; device busy " + ", ".join(f"{share:.0%} {side}" for side, share in busy.items())
    late = sum(count.overrun for of in counts.values() for count in of)
    if late:
        all_steps = sum(count.steps for of in counts.values() for count in of)
        text += f"; in {late} of {all_steps} steps the training's own work took longer than the step"
    return Simulated(step_ms=step_ms, what=f"{text}.", device_busy=busy, steps=steps)
