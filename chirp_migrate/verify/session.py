"""Run a whole verification, from the copies of the project to the report.

First, ``verify`` records a small run of every entry point (a training function or script) in both versions, and
compares the records. If ``verify`` finds no difference, it times both versions in rounds. Each round starts one new
process for each version. The two processes take turns: one process trains for an epoch while the other process waits.
The module :mod:`chirp_migrate.verify.watching` records the small runs. The module
:mod:`chirp_migrate.verify.timing.rounds` decides the number of rounds, and :mod:`chirp_migrate.verify.verdict` decides
the verdict.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from chirp_migrate.console.progress import Progress, ProgressStep
from chirp_migrate.console.text import format_percent, pluralize
from chirp_migrate.stats.interim_analyses import InterimAnalysis
from chirp_migrate.training.process.background_load import BackgroundLoadWatch
from chirp_migrate.training.process.guard import temporary_folder
from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, TrainingSource
from chirp_migrate.verify.build_report import build_report
from chirp_migrate.verify.equivalence.api import public_names
from chirp_migrate.verify.equivalence.compare import compare_api, compare_recorded_passes, compare_return_values
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.sides.baseline import OriginalVersion
from chirp_migrate.verify.sides.copies import copy_both_versions, find_entry_points_before
from chirp_migrate.verify.spec import EntryPointRecord
from chirp_migrate.verify.timing.process_turns import ChildStarter
from chirp_migrate.verify.timing.rounds import Rounds, StopReason, TimedRound, run_rounds
from chirp_migrate.verify.verdict import Judge, combine_timings
from chirp_migrate.verify.verify_report import VerifyReport
from chirp_migrate.verify.watching import record_original_again, record_runs

_RESERVED = 1 / 12
"""Share of the time budget that is reserved for the end of the last epoch, for ending processes and for the report."""


def verify_versions(
    root: Path, original: OriginalVersion, options: VerifyOptions, progress: Progress, deadline: float
) -> VerifyReport:
    """Compare and time a project before and after the migration, and return the report with the verdict.

    Args:
        root: folder of the migrated project.
        original: the version before the migration.
        options: the options of the verification.
        progress: function that is called with progress messages.
        deadline: time at which the time budget ends, in seconds of ``time.monotonic``.

    Raises:
        WorkloadFailed: the project's code failed in one of the versions.
    """
    with temporary_folder("chirp-migrate-verify-") as scratch:
        progress(ProgressStep("copying the project for both versions"))
        trees, notes = copy_both_versions(root, original, options, scratch)
        for note in notes:
            progress(note)
        discovery = find_entry_points_before(trees["before"], root, original, options, progress)
        labels = [entry.label for entry in discovery.entry_points]
        what = pluralize(len(labels), "entry point") if options.source is TrainingSource.FOUND else ", ".join(labels)
        progress(f"verify runs the project's own code in separate processes: {what}")
        if options.source is TrainingSource.SCRIPT:
            progress(
                "the script runs in a copy of each version, but can change files at absolute paths, use the network, "
                "and log to experiment trackers"
            )
        report = run_all_processes(trees, discovery, options, progress, deadline)
    return msgspec.structs.replace(report, before=original.described, copies=list(notes))


def run_all_processes(
    trees: Mapping[str, Path],
    discovery: DiscoveredEntryPoints,
    settings: VerifyOptions,
    progress: Progress,
    deadline: float,
) -> VerifyReport:
    """Run all processes of a verification, and return the report.

    Args:
        trees: dictionary, version (``before`` or ``after``) → folder with a copy of this version.
        discovery: entry points (training functions or a script) of the version before the migration.
        settings: the options of the verification.
        progress: function that is called with progress messages.
        deadline: time at which the time budget ends, in seconds of ``time.monotonic``.

    Raises:
        WorkloadFailed: the project's code crashed or hung in one of the versions.
    """
    children = ChildStarter(trees, discovery, settings, progress)
    began = time.monotonic()
    # On a GPU, two runs of the same training may differ.
    twice = torch.cuda.is_available()
    progress("comparing what each entry point loads and computes in both versions")
    load = BackgroundLoadWatch()
    with children.adding_seconds("watching"), load.watching():
        watched = record_runs(children, discovery, public_names(trees["before"]), twice)
    before, after = watched.working_entries("before"), watched.working_entries("after")
    once_more = {label: replace(one, traces=one.again) for label, one in before.items()} if twice else None
    equivalence = compare_recorded_passes(before, after, once_more)
    suspects = {one.entry_point for one in equivalence.found}
    if suspects and not twice:
        # A training that draws its own seed differs from run to run, even without a migration.
        progress("training once more before the migration, to find differences between two runs of the same version")
        entries = tuple(one for one in discovery.entry_points if one.label in suspects)
        with children.adding_seconds("watching"):
            once_more = before | record_original_again(children, entries)
        equivalence = compare_recorded_passes(before, after, once_more)
    equivalence += compare_api(watched.api["before"], watched.api["after"]) + watched.difference
    same = "differences found" if equivalence.differences else "no difference so far"
    progress(
        f"compared {pluralize(len(before), 'entry point')} in both versions: {same} ({time.monotonic() - began:.0f} s)"
    )
    rounds = Rounds.of((), ())
    if not equivalence.differences:
        timed = replace(discovery, entry_points=tuple(one for one in discovery.entry_points if one.label in before))
        others, usual = load.share_of_others() or 0.0, children.threads
        settings = replace(settings, sizes=settings.sizes_for_timing(others))
        children.limit_entry_points(timed, settings.sizes)
        children.limit_threads(others)
        if children.threads < usual:
            progress(
                f"other processes use {format_percent(others)} of the CPUs: both versions train with "
                f"{pluralize(children.threads, 'compute thread')} instead of {usual} (--threads sets another number)"
            )
        repeats = [label for label, one in before.items() if _needs_repeating(one, after[label])]
        # If an entry point iterates over a training loader only once, it has no second epoch: time the whole call.
        whole = [label for label, one in before.items() if sum(trace.role == "train" for trace in one.traces) < 2]
        rounds = _run_rounds(children, before.keys(), settings, progress, deadline, repeats, whole)
        if all(children.repeated.values()) or not repeats:
            equivalence += compare_return_values(before, after, children.repeated, equivalence.unrepeatable)
        failing = children.failing.items()
        why = "not timed: the version before the migration fails with the number of samples that the timing uses"
        equivalence.notes += [f"{label}: {why}: {error}" for label, error in failing]
    settings = replace(settings, threads=children.threads)
    return build_report(discovery, settings, watched, equivalence, rounds, children.spent_s)


def _run_rounds(
    children: ChildStarter,
    labels: Collection[str],
    settings: VerifyOptions,
    progress: Progress,
    deadline: float,
    repeats: Sequence[str],
    whole: Sequence[str],
) -> Rounds:
    """Time both versions in rounds, until more rounds cannot change the verdict or the time is used up.

    In each round, one new process for each version trains.
    """
    deadline -= _RESERVED * settings.budget_s

    def make(number: int, labels: frozenset[str] | None, until: float) -> TimedRound:
        made = children.time_round(number, labels, until, deadline, () if number else repeats, whole)
        times = [sum(made.seconds[side].values()) for side in ("before", "after")]
        ratio = (
            f"the migrated version took {format_percent(times[1] / times[0])} of the original time"
            if times[0]
            else "the training was too short to measure"
        )
        beside = "" if made.others is None else f", other processes used {made.others:.0%} of the CPUs"
        entry_points = pluralize(len(made.labels), "entry point")
        progress(f"round {number + 1}: {entry_points} in {made.duration_s:.0f} s: {ratio}{beside}")
        return made

    judge = Judge(settings.threshold, settings.margin, settings.strict)

    def find_entry_points_to_time(rounds: Sequence[TimedRound], looks: Sequence[InterimAnalysis]) -> frozenset[str]:
        unfinished = judge.run_interim_analysis(*combine_timings(rounds), looks)
        timed = {label for each in rounds for label in each.labels}
        return unfinished | {label for label in labels if label not in timed and label not in children.failing}

    rounds = run_rounds(make, find_entry_points_to_time, settings.max_rounds, deadline, lambda: children.own_epochs)
    if rounds.ended_with == StopReason.BUDGET:
        progress(
            f"stopped after {pluralize(len(rounds.made), 'round')}: the budget of {settings.budget_s:.0f} s is used up"
        )
    elif rounds.ended_with == StopReason.INTERRUPTED:
        progress(f"interrupted after {pluralize(len(rounds.made), 'round')}: the verdict uses the rounds so far")
    return rounds


def _needs_repeating(before: EntryPointRecord, after: EntryPointRecord) -> bool:
    """Return whether a training must run again, to show which of its return values are the same in every run.

    A second run is necessary if the return values differ between the versions, or if samples are augmented.
    """
    return before.fingerprint != after.fingerprint or any(trace.random for trace in before.traces)
