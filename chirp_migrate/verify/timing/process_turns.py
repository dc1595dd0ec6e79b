"""Start the child processes of a verification, and let the processes take turns.

Two timed processes take turns: one process trains for an epoch while the other process waits. In each turn, a random
process trains first. Every second round has the opposite order of the round before, so that no version trains first
more often. The waiting process and its workers are suspended, so that prefetching does not use CPU time.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from chirp_migrate.console.progress import Progress, ProgressStep, ignore_progress
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.background_load import BackgroundLoadWatch, cpu_seconds_of_this_process
from chirp_migrate.training.process.descendants import cpus_of_this_process
from chirp_migrate.training.process.run_child import Child, ChildLabels, workload_failure
from chirp_migrate.training.process.snapshot import restore_original_files
from chirp_migrate.training.workload.entry_points import (
    DiscoveredEntryPoints,
    EntryPoint,
    TrainingSource,
    WorkloadSizes,
)
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.spec import REPEATED, EntryPointTiming, JobKind, RunResult, RunSpec
from chirp_migrate.verify.timing.rounds import TimedRound
from chirpid_patch.machine.cpus import usable_cpus

_SIDES = ("before", "after")
_WATCH_SHARE, _LEAST_WATCH_S = 1 / 4, 30.0
"""Longest time for the recorded run of an entry point: a share of the time budget, but at least 30 seconds."""

_GRACE_S = 15.0
"""Seconds after the deadline during which an epoch that has begun may still run."""

_THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class _OutOfTime(Exception):
    """Error: the time budget ended while one of the two timed processes was training."""


def make_child_process(spec: RunSpec, version: str, progress: Progress = ignore_progress) -> Child[RunResult]:
    """Return a child process that has not started yet. The process starts in a ``with`` statement.

    Args:
        spec: the task of the child process.
        version: the version that the process trains (``before`` or ``after``), for messages.
        progress: function that is called with progress messages of the child process; by default, the messages are
            ignored.
    """
    restore_original_files(Path(spec.tree))
    role = ChildLabels(
        f"The version {version} the migration",
        f"The training failed in the version {version} the migration: ",
        "raise --timeout, or reduce the work with --samples and --epochs",
        version,
    )
    environment = dict.fromkeys(_THREAD_SETTINGS, str(spec.threads))
    environment["PYTHONHASHSEED"] = str(spec.hash_seed)
    return Child("chirp_migrate.verify.runner", spec, RunResult, role, spec.options.timeout_s, environment, progress)


class ChildStarter:
    """Starts the child processes of a verification, which run the same training in both versions.

    Attributes:
        progress: function that is called with progress messages.
        spent_s: dictionary, name of an activity → wall time of this activity in seconds.
        failing: dictionary, label (short unique name) of an entry point → its error. The dictionary contains the entry
            points that failed in the version before the migration during the timing.
        repeated: dictionary, version → label of the entry point → return value of its repeated run, as the result of
            :func:`.leaf_fingerprints`.
        threads: number of compute threads that the next process of each version uses. If the user has not set this
            number, the number decreases when other processes use CPUs. Without this decrease, compute threads would
            share CPUs with other processes. All threads would then wait for the slowest thread at every step, so that
            times vary strongly.
    """

    def __init__(
        self,
        trees: Mapping[str, Path],
        discovery: DiscoveredEntryPoints,
        settings: VerifyOptions,
        progress: Progress = ignore_progress,
    ) -> None:
        self.progress = progress
        self.spent_s: dict[str, float] = defaultdict(float)
        self.failing: dict[str, str] = {}
        self.repeated: dict[str, dict[str, dict[str, str]]] = {side: {} for side in _SIDES}
        self._timed: Counter[str] = Counter()
        self._trees = trees
        self._discovery = discovery
        self._settings = settings
        synthetic = discovery.source is TrainingSource.FOUND and settings.sizes.data is None
        self._together = synthetic and not torch.cuda.is_available()
        self.threads = settings.threads or usable_cpus()
        self._watching_threads = max(1, self.threads // 2)

    @property
    def watched_sizes(self) -> WorkloadSizes:
        """Return the sizes of the watched runs, in which ``verify`` records the batches."""
        return self._settings.sizes.for_watched_run()

    def limit_entry_points(self, discovery: DiscoveredEntryPoints, sizes: WorkloadSizes) -> None:
        """Let all later processes run only the entry points of ``discovery``, with the data sizes ``sizes``."""
        self._discovery = discovery
        self._settings = replace(self._settings, sizes=sizes)

    def limit_threads(self, others: float | None) -> None:
        """Limit the number of compute threads to the number of CPUs that other processes do not use.

        Args:
            others: share of the CPUs that other processes use, 0 to 1; None if this share is not known.
        """
        if others is not None and not self._settings.threads:
            self.threads = min(self.threads, max(1, round(usable_cpus() * (1 - others))))

    @property
    def watch_limit_s(self) -> float:
        """Return the time limit for one recorded run of an entry point, in seconds."""
        if len(self._discovery.entry_points) == 1:
            return self._settings.timeout_s
        return min(self._settings.timeout_s, max(_LEAST_WATCH_S, _WATCH_SHARE * self._settings.budget_s))

    @property
    def concurrent_versions(self) -> list[tuple[str, ...]]:
        """Return groups of versions (``before`` and ``after`` the migration) that may train at the same time.

        Both versions train at the same time if the data is synthetic and the machine has no GPU. Otherwise, the
        versions train one after the other.
        """
        return [_SIDES] if self._together else [(side,) for side in _SIDES]

    def time_round(
        self,
        number: int,
        labels: frozenset[str] | None,
        until: float,
        deadline: float,
        repeats: Sequence[str] = (),
        whole: Sequence[str] = (),
    ) -> TimedRound:
        """Time one round, in which two new processes train, one process for each version.

        Args:
            number: number of the round, from 0.
            labels: labels of the entry points (training functions or scripts) that may run; None for all.
            until: time of ``time.monotonic``, in seconds, after which no further entry point begins.
            deadline: time of ``time.monotonic``, in seconds, after which no further epoch begins.
            repeats: labels of the entry points that run once more before the timing, with the sizes of the run in which
                ``verify`` recorded the batches.
            whole: labels of the entry points that have no second epoch, so that the whole call is timed.

        Raises:
            WorkloadFailed: the project's code crashed or hung, or failed only after the migration.
        """
        began = time.monotonic()
        entries = self._choose_entry_points(number, labels)
        visits: dict[str, dict[str, EntryPointTiming]] = {side: {} for side in _SIDES}
        watch = BackgroundLoadWatch()
        with ExitStack() as stack:
            unread = tuple(entry.label for entry in entries if not self._timed[entry.label])
            more = {"repeats": tuple(repeats), "whole": tuple(whole), "memory_of": unread, "hash_seed": number}
            pair: dict[str, Child[RunResult]] = {}
            for side in _SIDES:
                self.progress(ProgressStep(f"round {number + 1}: starting"))
                pair[side] = stack.enter_context(
                    self.prepare_child(side, JobKind.TIME, entries, cached=side == "after", **more)
                )
            with self.adding_seconds("starting interpreters, importing"):
                for child in pair.values():
                    child.wait_until_ready()
            with self.adding_seconds("warming up"):
                for together in self.concurrent_versions:
                    self._run_turns([pair[side] for side in together], self._settings.timeout_s)
            for side, child in pair.items():
                for part in child.found:
                    if part.name == REPEATED:
                        self.repeated[side].update(part.value)
                child.found.clear()
            for done, entry in enumerate(entries):
                if done and time.monotonic() > until:
                    break
                self.progress(ProgressStep(f"round {number + 1}: {entry.label}", done, len(entries)))
                try:
                    with watch.watching(
                        lambda: cpu_seconds_of_this_process() + sum(child.cpu_s for child in pair.values())
                    ):
                        found = self._time_entry_point(pair, entry.label, number, deadline)
                except _OutOfTime:
                    break
                except WorkloadFailed as failed:
                    self.failing[entry.label] = self._error_of_version_before(pair, failed)
                    break  # this round is over, because the process of one version has ended
                if found is None:
                    continue
                before, after = found["before"], found["after"]
                if after.error and not before.error:
                    raised = f"The training failed in the version after the migration: {entry.label} raised "
                    raise workload_failure(f"{raised}{after.error}.", after.printed, "after")
                if before.error:
                    self.failing[entry.label] = before.error
                    continue
                self._timed[entry.label] += 1
                for side in _SIDES:
                    visits[side][entry.label] = found[side]
        own = {entry.label: entry.own for entry in self._discovery.entry_points}
        self.limit_threads(watch.share_of_others())
        return TimedRound.of(visits, own, watch.share_of_others(), time.monotonic() - began)

    @contextmanager
    def adding_seconds(self, what: str) -> Iterator[None]:
        """Return a context whose duration is added to ``spent_s`` for the activity ``what``."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.spent_s[what] += time.monotonic() - began

    def _error_of_version_before(self, pair: Mapping[str, Child[RunResult]], failed: WorkloadFailed) -> str:
        """Return how the process of the version before the migration crashed or hung.

        If the migrated version failed first, the method lets the version before the migration continue its training, to
        find out whether this version also fails.

        Raises:
            WorkloadFailed: the version before the migration did not crash or hang.
        """
        if failed.ending and failed.side == "after" and not pair["before"].found:
            try:
                self._run_turns([pair["before"]], min(self._settings.timeout_s, self.watch_limit_s))
            except WorkloadFailed as also:
                failed = also
        if failed.side != "before" or not failed.ending:
            raise failed
        return failed.ending

    def _time_entry_point(
        self, pair: Mapping[str, Child[RunResult]], label: str, number: int, deadline: float
    ) -> dict[str, EntryPointTiming] | None:
        """Time the entry point ``label`` in both versions; return None if the timing is not complete at the deadline.

        In each turn, the two versions train for an epoch one after the other. In rounds with even numbers, their order
        is random. The next round has the opposite order, so that no version trains first more often than the other
        version.

        Raises:
            _OutOfTime: an epoch continued too long after the deadline, so the process that was training was ended.
        """
        turn, cpus = 0, cpus_of_this_process()
        chance = random.Random(f"{self._settings.sizes.seed}-{number // 2}-{label}")
        while True:
            order = list(_SIDES)
            chance.shuffle(order)
            left = [side for side in (order if number % 2 == 0 else reversed(order)) if not pair[side].found]
            if not left:
                return {side: msgspec.convert(pair[side].found.pop().value, EntryPointTiming) for side in _SIDES}
            if turn and time.monotonic() > deadline:
                return None
            cpu = chance.choice(cpus) if cpus else None  # both versions run on the same CPU in this turn
            for side in left:
                with self.adding_seconds("start-up and first epochs" if turn == 0 else "later epochs"):
                    # A process that hangs must not use much more time than the budget has.
                    limit_s = min(self._settings.timeout_s, max(_LEAST_WATCH_S, deadline - time.monotonic() + _GRACE_S))
                    try:
                        self._run_turns([pair[side]], limit_s, cpu)
                    except WorkloadFailed as failed:
                        if failed.hung and limit_s < self._settings.timeout_s:
                            raise _OutOfTime from failed
                        raise
            turn += 1

    def _run_turns(self, children: Sequence[Child[RunResult]], limit_s: float, cpu: int | None = None) -> None:
        """Let processes continue at the same time until each waits for its next turn; then suspend the processes.

        In most turns, a process trains for one epoch. In its first turn, the process prepares the timing, for example
        by creating the data.
        """
        for child in children:
            child.give_turn(limit_s, cpu)
        for child in children:
            child.wait_until_ready()
            if child.is_lost:
                child.result()
        for child in children:
            child.suspend()

    @property
    def own_epochs(self) -> dict[str, int]:
        """Return a dictionary: label of an entry point that has not failed → epochs of the user's full training."""
        return {
            entry.label: entry.own.all_epochs
            for entry in self._discovery.entry_points
            if entry.label not in self.failing
        }

    def _choose_entry_points(self, number: int, labels: frozenset[str] | None) -> tuple[EntryPoint, ...]:
        """Return the entry points (training functions or scripts) that a round of the timing runs, in order.

        If time is short, the last entry points do not run.

        The own run of an entry point is the full training that the user would run. Entry points with long own runs come
        early, because these runs have the largest part in the total time. Each timing moves an entry point towards the
        end of the next rounds, so that other entry points are timed, too. Apart from these rules, the order is random.
        The order must vary from round to round, because each entry point changes the state of the process for the entry
        points after it.
        """
        entries = [
            each
            for each in self._discovery.entry_points
            if (labels is None or each.label in labels) and each.label not in self.failing
        ]
        random.Random(f"{self._settings.sizes.seed}-{number}").shuffle(entries)
        most = max((each.own.all_epochs for each in entries), default=1)

        def rank(entry: EntryPoint) -> int:
            return round(math.log2((self._timed[entry.label] + 1) * most / max(1, entry.own.all_epochs)))

        return tuple(sorted(entries, key=rank))

    def prepare_child(self, side: str, job: JobKind, entries: Sequence[EntryPoint], **more: Any) -> Child[RunResult]:
        """Return a child process that has not started yet; ``more`` sets other fields of its :class:`.RunSpec`."""
        more |= {"threads": self.threads, "watching_threads": self._watching_threads}
        discovery = replace(self._discovery, entry_points=tuple(entries))
        spec = RunSpec(str(self._trees[side]), discovery, self._settings, job, **more)

        def show(what: str | ProgressStep) -> None:
            if isinstance(what, ProgressStep):
                what = msgspec.structs.replace(what, text=f"{side}: {what.text}")
            self.progress(what)

        return make_child_process(spec, side, show)
