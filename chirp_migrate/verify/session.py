"""A whole verification: probe both sides, then time them in turn, and gather everything for a verdict.

A round is a pair of fresh processes, before and after; ``timing.rounds`` says how many are made and
which of them count, :mod:`chirp_migrate.verify.verdict` what they show.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch

from chirp_migrate.stats.ratios import paired_ratio
from chirp_migrate.training.workload.entry_points import Discovery, Source
from chirp_migrate.verify.equivalence.api import public_names
from chirp_migrate.verify.equivalence.compare import Equivalence, compare_api, compare_results, compare_traces
from chirp_migrate.verify.measures.metric_data import SideMeasures
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.spec import EntryResult, Mode, RunResult, StepCount
from chirp_migrate.verify.timing.children import SIDES, Children
from chirp_migrate.verify.timing.rounds import Rounds, Stopped, TimedRound, complete, take_rounds
from chirp_migrate.verify.trial import Trial
from chirp_migrate.verify.verdict import Judge, Timing

__all__ = ["Measurements", "judged", "measure", "timings"]


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


def measure(
    trees: dict[str, Path],
    discovery: Discovery,
    settings: VerifyOptions,
    progress: Callable[[str], None],
    trial: Trial,
    deadline: float,
) -> Measurements:
    """Run every process of a verification but those of the trial.

    Args:
        trees: copies of both sides, ``before`` and ``after``.
        discovery: entry points of the side before.
        progress: called with one line as each step begins or ends.
        trial: what brief trainings showed.
        deadline: when the budget is used up, on the clock of ``time.monotonic``.

    Raises:
        WorkloadFailed: the backend's code crashed or hung on one of the sides.
    """
    children = Children(trees, discovery, settings)
    # A command is a program of its own, with nothing in it that could be measured from here.
    watching = (Mode.PROBE,) if discovery.source is Source.COMMAND else (Mode.PROBE, Mode.MEASURED)
    progress("watching each side train, untimed: what it loads, in which order, and what it computes")
    began = time.monotonic()
    probe = {}
    with ExitStack() as stack:
        modes = dict.fromkeys(("before", "after"), watching)
        for side, child in children.in_turn(stack, modes, api_names=public_names(trees["before"])):
            probe[side] = child.result()
            progress(f"watched the training {side} the migration ({time.monotonic() - began:.0f} s)")
    watched = {side: result.modes[Mode.PROBE] for side, result in probe.items()}
    children.has_loaders = any(entry.traces for entry in watched["before"].values())
    once_more = None
    if torch.cuda.is_available() and discovery.source is not Source.COMMAND:
        progress("watching the side before once more: what does not repeat there is compared by its distribution")
        with ExitStack() as stack:
            for _, child in children.in_turn(stack, {"before": (Mode.PROBE,)}):
                once_more = child.result().modes[Mode.PROBE]
    equivalence = compare_traces(watched["before"], watched["after"], once_more)
    equivalence = equivalence.joined(compare_api(probe["before"].api, probe["after"].api)).joined(trial.difference)
    labels = tuple(entry.label for entry in discovery.entry_points)
    timed = Rounds.of((), ())
    if not equivalence.differences:
        timed = _time_rounds(children, frozenset(labels), settings, progress, deadline)
        again = {side: result.modes[Mode.TIMED] for side, result in children.first_timed.items()}
        results = compare_results(
            watched["before"], again["before"], watched["after"], again["after"], equivalence.unrepeatable
        )
        equivalence = equivalence.joined(results)
    measured = {side: result.measured for side, result in probe.items() if result.measured is not None}
    steps = _steps(children.first_timed)
    return Measurements(labels, watched, timed, equivalence, measured, steps, trial.failing, trial.no_room)


def _steps(timed: Mapping[str, RunResult]) -> dict[str, dict[str, StepCount]]:
    """Simulated steps of the first timed process of each side, and of its cached pass."""
    found: dict[str, dict[str, StepCount]] = {}
    for side, result in timed.items():
        for mode, counts in result.simulated.items():
            found["cached" if mode is Mode.CACHED else side] = counts
    return found


def judged(rounds: Rounds, settings: VerifyOptions) -> Judge:
    """What the looks at these rounds have shown."""
    by = Judge(settings.threshold, settings.margin, settings.each)
    for number, look in enumerate(rounds.looks):
        by.look(*timings(rounds.included[: look.rounds]), rounds.looks[: number + 1])
    return by


def timings(rounds: Sequence[TimedRound]) -> tuple[Timing, dict[str, Timing]]:
    """All entry points together, and each, over those of these rounds that have them."""
    in_all = complete(rounds)
    labels = list(in_all[0].seconds["before"])
    entries = {label: _timing([each for each in rounds if label in each.labels], [label]) for label in labels}
    return _timing(in_all, labels), entries


def _timing(rounds: Sequence[TimedRound], labels: Sequence[str]) -> Timing:
    """These entry points together."""

    def seconds(some: Sequence[TimedRound], side: str) -> list[float]:
        return [math.fsum(each.seconds[side][label] for label in labels) for each in some]

    fed = [each for each in rounds if each.seconds["cached"]]
    perfect = paired_ratio(seconds(fed, "before"), seconds(fed, "cached")) if fed else None
    return Timing(paired_ratio(seconds(rounds, "before"), seconds(rounds, "after")), perfect)


def _time_rounds(
    children: Children,
    every_one: frozenset[str],
    settings: VerifyOptions,
    progress: Callable[[str], None],
    deadline: float,
) -> Rounds:
    """Time both sides, round by round, until the questions are settled or the budget is used up."""

    def make(number: int, labels: frozenset[str] | None) -> TimedRound:
        # What perfect loading would save is asked of all together, and with --per-entry of every one.
        made = children.time_round(number, labels, cached=settings.each or labels is None or labels == every_one)
        times = {side: sum(made.seconds[side].values()) for side in ("before", "after")}
        some = "" if labels is None else f" ({len(labels)} still open)"
        beside = f", disturbed: other processes used {made.others:.0%} of the CPUs" if made.disturbed else ""
        progress(f"round {number + 1}{some}: {times['before']:.2f} s before, {times['after']:.2f} s after{beside}")
        return made

    by = Judge(settings.threshold, settings.margin, settings.each)
    rounds = take_rounds(
        make,
        lambda some, looks: by.look(*timings(some), looks),
        settings.rounds,
        deadline - time.monotonic(),
    )
    if rounds.ended_with == Stopped.BUDGET:
        progress(f"stopped after {len(rounds.made)} rounds: the budget of {settings.budget_s:.0f} s is used up")
    elif rounds.ended_with == Stopped.INTERRUPTED:
        progress(f"interrupted after {len(rounds.made)} rounds: this is the verdict so far")
    return rounds
