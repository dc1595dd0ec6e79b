"""A whole verification, from the options to the document that says what was found; it needs PyTorch.

Both sides are tried and watched, then timed in turn. A round is a pair of fresh processes, before and after;
``timing.rounds`` says how many are made and which of them count, :mod:`chirp_migrate.verify.verdict` what they show.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from chirp_migrate.console.progress import Progress, Step
from chirp_migrate.console.text import count
from chirp_migrate.stats.sequential_looks import MIN_ROUNDS
from chirp_migrate.training.workload.entry_points import Discovery, Source
from chirp_migrate.verify.build_report import build_report
from chirp_migrate.verify.document import VerifyReport
from chirp_migrate.verify.equivalence.api import public_names
from chirp_migrate.verify.equivalence.compare import compare_api, compare_results, compare_traces
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.sides.baseline import Before
from chirp_migrate.verify.sides.copies import find_training, make_sides
from chirp_migrate.verify.spec import Mode
from chirp_migrate.verify.timing.children import Children
from chirp_migrate.verify.timing.rounds import Rounds, Stopped, TimedRound, take_rounds
from chirp_migrate.verify.trial import Trial, fitted, try_out
from chirp_migrate.verify.verdict import Judge, timings
from chirpid_patch.machine.cpus import usable_cpus

__all__ = ["measure", "verification"]


def verification(
    root: Path,
    before: Before,
    files: Mapping[str, str | None],
    options: VerifyOptions,
    progress: Progress,
) -> VerifyReport:
    """Measure and judge.

    Args:
        root: the migrated project.
        before: the side before.
        files: SHA-256 of the files that the verdict speaks of, which the report keeps.
        options: what is run.
        progress: told what is done, and what was.

    Raises:
        WorkloadFailed: the project's code failed on one of the sides.
    """
    options = replace(options, threads=options.threads or usable_cpus())
    with tempfile.TemporaryDirectory(prefix="chirp-migrate-verify-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder).resolve()
        progress(Step("copying the project for both sides"))
        trees, notes = make_sides(root, before, options, scratch)
        for note in notes:
            progress(note)
        discovery = find_training(trees["before"], root, before, options, progress)
        labels = [entry.label for entry in discovery.entry_points]
        what = count(len(labels), "entry point") if options.source is Source.FOUND else ", ".join(labels)
        progress(f"verify runs the project's own code in separate processes: {what}")
        deadline = time.monotonic() + options.budget_s
        children = Children(trees, discovery, options, progress)
        trial = try_out(children, discovery, progress)
        if trial.tried:
            options, trial = fitted(options, trial, deadline - time.monotonic(), progress)
            remaining = tuple(one for one in discovery.entry_points if one.label in trial.labels)
            discovery = replace(discovery, entry_points=remaining)
        conditions = {"before": before.described, "copies": list(notes), "files": dict(files)}
        return measure(trees, discovery, options, progress, trial, deadline, **conditions)


def measure(
    trees: dict[str, Path],
    discovery: Discovery,
    settings: VerifyOptions,
    progress: Progress,
    trial: Trial,
    deadline: float,
    **conditions: Any,
) -> VerifyReport:
    """Run every process of a verification but those of the trial, and judge.

    Args:
        trees: copies of both sides, ``before`` and ``after``.
        discovery: entry points of the side before.
        progress: told what is done, and what was.
        trial: what brief trainings showed.
        deadline: when the budget is used up, on the clock of ``time.monotonic``.
        conditions: see :func:`.build_report`.

    Raises:
        WorkloadFailed: the backend's code crashed or hung on one of the sides.
    """
    children = Children(trees, discovery, settings, progress)
    # A command is a program of its own, with nothing in it that could be measured from here.
    watching = (Mode.PROBE,) if discovery.source is Source.COMMAND else (Mode.PROBE, Mode.MEASURED)
    progress("watching each side train, untimed: what it loads, in which order, and what it computes")
    began = time.monotonic()
    if trial.tried:
        progress(Step("watching", left_s=trial.expected_s(settings), most_s=deadline - began))
    probe = {}
    with ExitStack() as stack:
        modes = dict.fromkeys(("before", "after"), watching)
        for side, child in children.in_turn(stack, Step("watching"), modes, api_names=public_names(trees["before"])):
            probe[side] = child.result()
            progress(f"watched the training {side} the migration ({time.monotonic() - began:.0f} s)")
    if discovery.source is Source.COMMAND:  # a round runs it on both sides, as watching did
        rounds_s = MIN_ROUNDS * (time.monotonic() - began)
        progress(f"the fewest rounds, {MIN_ROUNDS}, will take about {rounds_s:.0f} s{_beyond(rounds_s, deadline)}")
        progress(Step("comparing what was watched", left_s=rounds_s, most_s=deadline - time.monotonic()))
    watched = {side: result.modes[Mode.PROBE] for side, result in probe.items()}
    children.has_loaders = any(entry.traces for entry in watched["before"].values())
    once_more = None
    if torch.cuda.is_available() and discovery.source is not Source.COMMAND:
        progress("watching the side before once more: what does not repeat there is compared by its distribution")
        with ExitStack() as stack:
            for _, child in children.in_turn(stack, Step("watching again"), {"before": (Mode.PROBE,)}):
                once_more = child.result().modes[Mode.PROBE]
    equivalence = compare_traces(watched["before"], watched["after"], once_more)
    equivalence = equivalence.joined(compare_api(probe["before"].api, probe["after"].api)).joined(trial.difference)
    timed = Rounds.of((), ())
    if not equivalence.differences:
        labels = frozenset(entry.label for entry in discovery.entry_points)
        timed = _time_rounds(children, labels, settings, progress, deadline)
        again = children.first_timed
        results = compare_results(
            watched["before"], again["before"], watched["after"], again["after"], equivalence.unrepeatable
        )
        equivalence = equivalence.joined(results)
    return build_report(discovery, settings, trial, probe, equivalence, timed, children.first_timed, **conditions)


def _time_rounds(
    children: Children,
    every_one: frozenset[str],
    settings: VerifyOptions,
    progress: Progress,
    deadline: float,
) -> Rounds:
    """Time both sides, round by round, until the questions are settled or the budget is used up."""

    def make(number: int, labels: frozenset[str] | None) -> TimedRound:
        # What perfect loading would save is asked of all together, and with --per-entry of every one.
        made = children.time_round(number, labels, cached=settings.each or labels is None or labels == every_one)
        times = {side: sum(made.seconds[side].values()) for side in ("before", "after")}
        some = "" if labels is None else f" ({len(labels)} still open)"
        beside = f", disturbed: other processes used {made.others:.0%} of the CPUs" if made.disturbed else ""
        rest_s = (MIN_ROUNDS - number - 1) * made.duration_s
        ahead = ""
        if rest_s >= 1:
            ahead = f"; the fewest rounds, {MIN_ROUNDS}, end in about {rest_s:.0f} s"
            ahead += _beyond(rest_s, deadline) if number == 0 else ""
        progress(
            f"round {number + 1}{some}: {times['before']:.2f} s before, {times['after']:.2f} s after{beside}{ahead}"
        )
        most_s = (settings.rounds - number - 1) * made.duration_s
        progress(Step("looking at the rounds", left_s=rest_s, most_s=min(most_s, deadline - time.monotonic())))
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


def _beyond(seconds: float, deadline: float) -> str:
    """What is added where a step is known to end after the time budget."""
    return ", longer than the time budget lasts" if seconds > deadline - time.monotonic() else ""
