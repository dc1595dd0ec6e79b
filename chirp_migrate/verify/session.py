"""A whole verification: probe both sides, then time them in turn, and gather everything for a verdict.

A round is a pair of fresh processes, before and after; :mod:`chirp_migrate.verify.rounds` says how many are made and
which of them count, :mod:`chirp_migrate.verify.verdict` what they show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch

from chirp_migrate.verify.api import public_names
from chirp_migrate.verify.disturbance import Span, Watch, own_s, share_of_others
from chirp_migrate.verify.equivalence import Equivalence, compare_api, compare_passes, compare_results
from chirp_migrate.verify.measure_options import NO_OPTIONS, MeasureOptions
from chirp_migrate.verify.measured import SideMeasures
from chirp_migrate.verify.process import Child
from chirp_migrate.verify.rounds import MIN_ROUNDS, Rounds, Stopped, TimedRound, order, take_rounds, whole
from chirp_migrate.verify.simulate import StepCount
from chirp_migrate.verify.spec import EntryResult, Mode, RunResult, RunSpec
from chirp_migrate.verify.statistics import Ratio, paired_ratio
from chirp_migrate.verify.verdict import Decision, Timing, Verdict, decide, entry_verdicts, still_open
from chirp_migrate.verify.workload import Discovery, EntryPoint, Sizes, Source

__all__ = ["MIN_ROUNDS", "Children", "Measurements", "Outcome", "Settings", "judge", "measure", "timings"]

_SIDES = ("before", "after", "cached")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Settings:
    """What the user chose.

    Attributes:
        sizes: the workload.
        rounds: timed pairs that count, at most; at least :data:`MIN_ROUNDS` are run.
        budget_s: no further round begins when it would probably end later than this many seconds after the first.
        threshold: share of the time that must be saved, 0 to 1.
        threads: compute threads of each child.
        timeout_s: seconds after which a child counts as hung.
        measuring: what is measured besides times, and whether device steps are simulated.
        each: whether rounds are made for each entry point's own verdict, too.
    """

    sizes: Sizes
    rounds: int
    budget_s: float
    threshold: float
    threads: int
    timeout_s: float
    measuring: MeasureOptions = NO_OPTIONS
    each: bool = False


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
    """

    labels: tuple[str, ...]
    probe: dict[str, dict[str, EntryResult]]
    timed: Rounds
    equivalence: Equivalence
    measured: dict[str, SideMeasures] = field(default_factory=dict)
    simulated: dict[str, dict[str, StepCount]] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Timed pairs that count; 0 when the sides were found to differ before timing."""
        return len(self.timed.used)

    @property
    def seconds(self) -> dict[str, dict[str, list[float]]]:
        """Side (``before``, ``after``, ``cached``) → entry point → seconds of each round that counts and has it."""
        return _columns(self.timed.used, self.labels)

    def total(self, side: str) -> list[float]:
        """Seconds of all entry points together, for each round that counts and has all of them."""
        return [sum(each.seconds[side].values()) for each in self.timed.whole]


@dataclass(frozen=True)
class Outcome:
    """Judged measurements; ratios, headspace and verdicts are missing when nothing was timed.

    Attributes:
        headspace: share of the time before that perfect loading would save.
        perfect: time with perfect loading / time before, over all entry points and for each.
        verdicts: each entry point's own verdict.
    """

    decision: Decision
    total: Ratio | None
    entries: dict[str, Ratio]
    headspace: float | None
    perfect: Ratio | None = None
    perfect_entries: dict[str, Ratio] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)


def measure(
    trees: dict[str, Path],
    discovery: Discovery,
    settings: Settings,
    scratch: Path,
    progress: Callable[[str], None],
) -> Measurements:
    """Run every process of a verification.

    Args:
        trees: copies of both sides, ``before`` and ``after``.
        discovery: entry points of the side before.
        scratch: folder for the processes' files.
        progress: called with one line as each step begins or ends.

    Raises:
        WorkloadFailed: the backend's code crashed or hung on one of the sides.
    """
    children = Children(trees, discovery, settings, scratch)
    # A command is a program of its own, with nothing in it that could be measured from here.
    watching = (Mode.PROBE,) if discovery.source is Source.COMMAND else (Mode.PROBE, Mode.MEASURED)
    progress("watching each side train, untimed: what it loads, in which order, and what it computes")
    began = time.monotonic()
    probe = {}
    with ExitStack() as stack:
        modes = dict.fromkeys(("before", "after"), watching)
        for side, child in children.in_turn(stack, tuple(modes), modes, api_names=public_names(trees["before"])):
            probe[side] = child.result()
            progress(f"watched the training {side} the migration ({time.monotonic() - began:.0f} s)")
    watched = {side: result.modes[Mode.PROBE] for side, result in probe.items()}
    children.has_loaders = any(entry.passes for entry in watched["before"].values())
    equivalence = compare_passes(watched["before"], watched["after"])
    equivalence = equivalence.joined(compare_api(probe["before"].api, probe["after"].api))
    labels = tuple(entry.label for entry in discovery.entry_points)
    timed = Rounds()
    if not equivalence.differences:
        timed = _time_rounds(children, settings, progress)
        again = {side: result.modes[Mode.TIMED] for side, result in children.first_timed.items()}
        results = compare_results(watched["before"], again["before"], watched["after"], again["after"])
        equivalence = equivalence.joined(results)
    measured = {side: result.measured for side, result in probe.items() if result.measured is not None}
    return Measurements(labels, watched, timed, equivalence, measured, _steps(children.first_timed))


def _steps(timed: Mapping[str, RunResult]) -> dict[str, dict[str, StepCount]]:
    """Simulated steps of the first timed process of each side, and of its cached pass."""
    found: dict[str, dict[str, StepCount]] = {}
    for side, result in timed.items():
        for mode, counts in result.simulated.items():
            found["cached" if mode is Mode.CACHED else side] = counts
    return found


def judge(measurements: Measurements, threshold: float) -> Outcome:
    """Turn measurements into a verdict."""
    differences = measurements.equivalence.differences
    if measurements.rounds == 0:
        return Outcome(Decision(Verdict.NOT_EQUIVALENT, differences[0]), None, {}, None)
    total, entries = timings(measurements.timed.used, measurements.timed.confidence)
    return Outcome(
        decide(total, entries, threshold, differences),
        total.ratio,
        {label: timing.ratio for label, timing in entries.items()},
        total.headspace,
        total.perfect,
        {label: timing.perfect for label, timing in entries.items() if timing.perfect is not None},
        entry_verdicts(entries, threshold),
    )


def timings(rounds: Sequence[TimedRound], confidence: float) -> tuple[Timing, dict[str, Timing]]:
    """All entry points together, and each, over those of these rounds that have them; intervals at this level."""
    complete = whole(rounds)
    labels = tuple(complete[0].seconds["before"])
    columns = _columns(rounds, labels)

    def timing(seconds: Mapping[str, Sequence[float]]) -> Timing:
        before, cached = seconds["before"], seconds["cached"]
        perfect = paired_ratio(before, cached, confidence) if cached else None
        return Timing(paired_ratio(before, seconds["after"], confidence), perfect)

    entries = {label: timing({side: columns[side][label] for side in _SIDES}) for label in labels}
    sums = {side: [sum(each.seconds[side].values()) for each in complete if each.seconds[side]] for side in _SIDES}
    return timing(sums), entries


def _columns(rounds: Sequence[TimedRound], labels: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """Side → entry point → seconds of each round."""
    return {
        side: {label: [each.seconds[side][label] for each in rounds if label in each.seconds[side]] for label in labels}
        for side in _SIDES
    }


def _time_rounds(children: Children, settings: Settings, progress: Callable[[str], None]) -> Rounds:
    """Time both sides, round by round, until the questions are settled or the budget is used up."""

    def make(number: int, labels: frozenset[str] | None) -> TimedRound:
        made = children.time_round(number, labels)
        times = {side: sum(made.seconds[side].values()) for side in ("before", "after")}
        some = "" if labels is None else f" ({len(labels)} still open)"
        beside = f", disturbed: other processes used {made.others:.0%} of the CPUs" if made.disturbed else ""
        progress(f"round {number + 1}{some}: {times['before']:.2f} s before, {times['after']:.2f} s after{beside}")
        return made

    def open_ones(rounds: tuple[TimedRound, ...], confidence: float) -> frozenset[str]:
        return still_open(*timings(rounds, confidence), settings.threshold, settings.each)

    rounds = take_rounds(make, open_ones, settings.rounds, settings.budget_s)
    if rounds.stopped is Stopped.BUDGET:
        progress(f"stopped after {len(rounds.made)} rounds: the budget of {settings.budget_s:.0f} s is used up")
    return rounds


def _turns(sides: Sequence[str], modes: Mapping[str, Sequence[Mode]], entries: int) -> list[str]:
    """The side of each turn: warming up, then every entry point on both sides before the next one.

    A machine's speed drifts within seconds, so what is compared should be timed right after each other.
    """
    once = [side for side in sides for _ in modes[side]]
    return [*sides, *once * entries]


class Children:
    """Starts child processes, numbered, with the same workload for both sides.

    Attributes:
        first_timed: side → result of its first timed process.
        has_loaders: whether the training takes batches from loaders that are seen, so that they can be cached.
    """

    def __init__(self, trees: dict[str, Path], discovery: Discovery, settings: Settings, scratch: Path) -> None:
        self._trees = trees
        self._discovery = discovery
        self._settings = settings
        self._scratch = scratch
        self._count = 0
        synthetic = discovery.source is Source.FOUND and settings.sizes.data is None
        self._beside_each_other = synthetic and not torch.cuda.is_available()
        self.first_timed: dict[str, RunResult] = {}
        self.has_loaders = True

    def time_round(self, number: int, labels: frozenset[str] | None = None, cached: bool = True) -> TimedRound:
        """Time one process of each side; the one of the side after also trains from cached batches, if asked to.

        Args:
            number: of the round, from 0.
            labels: the entry points that run; all by default.

        Raises:
            WorkloadFailed: the backend's code crashed or hung.
        """
        began = time.monotonic()
        sides = order(self._settings.sizes.seed, number)
        modes: dict[str, tuple[Mode, ...]] = {"before": (Mode.TIMED,), "after": (Mode.TIMED,)}
        if cached and self.has_loaders:
            modes["after"] = (Mode.TIMED, Mode.CACHED) if sides[-1] == "after" else (Mode.CACHED, Mode.TIMED)
        entries = tuple(each for each in self._discovery.entry_points if labels is None or each.label in labels)
        spans: dict[str, list[Span | None]] = {side: [] for side in sides}

        def watched(side: str, child: Child, act: Callable[[], _T]) -> _T:
            watch = Watch(used_s=lambda: own_s() + child.cpu_s)
            value = act()
            spans[side].append(watch.span())
            return value

        with ExitStack() as stack:
            ready = self.in_turn(stack, sides, modes, entries, by_entry=True)
            if self._beside_each_other:
                children = dict(ready)
                for side in _turns(sides, modes, len(entries)):
                    watched(side, children[side], children[side].take_turn)
                results = {side: child.result() for side, child in children.items()}
            else:
                results = {side: watched(side, child, child.result) for side, child in ready}
        seconds: dict[str, dict[str, float]] = {side: {} for side in _SIDES}
        for side, result in results.items():
            self.first_timed.setdefault(side, result)
            for mode, name in ((Mode.TIMED, side), (Mode.CACHED, "cached")):
                seconds[name].update({label: entry.seconds for label, entry in result.modes.get(mode, {}).items()})
        known = [share for share in map(share_of_others, spans.values()) if share is not None]
        return TimedRound(sides, seconds, max(known, default=None), time.monotonic() - began)

    def in_turn(
        self,
        stack: ExitStack,
        sides: Sequence[str],
        modes: Mapping[str, tuple[Mode, ...]],
        entries: tuple[EntryPoint, ...] | None = None,
        by_entry: bool = False,
        api_names: Mapping[str, list[str]] | None = None,
    ) -> Iterator[tuple[str, Child]]:
        """One process of each side, ready for its first turn; with :meth:`Child.result` it takes all of them.

        They start and import beside each other where that takes nothing away from anybody: on the small synthetic
        data of found entry points, without a GPU. Else the next one starts when it is asked for, and should not be
        before the last has ended.

        Args:
            stack: ends them.
            modes: passes of each.
            entries: what they train; every entry point by default.
            by_entry: whether each entry point makes its passes before the next one does.
            api_names: names to describe; none by default.
        """

        def started(side: str) -> Child:
            spec = self._spec(side, modes[side])
            spec = replace(spec, by_entry=by_entry, api_names=dict(api_names or {}))
            if entries is not None:
                spec = replace(spec, entry_points=entries)
            return stack.enter_context(Child(spec, side, Path(spec.output).with_suffix(""), self._settings.timeout_s))

        together = {side: started(side) for side in sides} if self._beside_each_other else {}
        for child in together.values():
            child.wait_until_ready()
        for side in sides:
            child = together.get(side) or started(side)
            child.wait_until_ready()
            yield side, child

    def _spec(self, side: str, modes: tuple[Mode, ...]) -> RunSpec:
        self._count += 1
        return RunSpec(
            tree=str(self._trees[side]),
            output=str(self._scratch / f"{self._count:03d}-{side}.json"),
            entry_points=self._discovery.entry_points,
            model=self._discovery.model,
            sizes=self._settings.sizes,
            threads=self._settings.threads,
            modes=modes,
            api_names={},
            origin=self._discovery.origin,
            simulate_step_ms=self._settings.measuring.simulate_step_ms,
            worker_counts=self._settings.measuring.worker_counts if side == "after" else (),
            extra_s=self._settings.measuring.extra_s,
        )
