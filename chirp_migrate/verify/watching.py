"""Record a small run of every entry point (a training function or script) in both versions.

The timing begins after these runs. One process for each version trains the entry points on a few samples, one entry
point after the other. If an entry point hangs or crashes its process, a new process runs the remaining entry points.

The report names the entry points that fail in the version before the migration. If the failure is an error or a crash,
the migrated version must fail with the same error or crash; otherwise, the versions are not equivalent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import msgspec

from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.run_child import Child, workload_failure
from chirp_migrate.training.workload.entry_points import (
    DiscoveredEntryPoints,
    EntryPoint,
    TrainingSource,
    WorkloadSizes,
)
from chirp_migrate.verify.equivalence.api import Api
from chirp_migrate.verify.equivalence.compare import Equivalence
from chirp_migrate.verify.spec import EntryPointRecord, JobKind, RunResult
from chirp_migrate.verify.timing.process_turns import ChildStarter

_MOST_DEATHS = 3
"""Largest number of entry points that may crash or hang in one version. If more of them do, ``verify`` stops."""
_LOOK_S = 0.02
_LAST_OUTPUT_S = 0.3


@dataclass
class RecordedRuns:
    """The short runs in which ``verify`` recorded the batches of both versions.

    Attributes:
        sides: dictionary, name of the version (``before`` or ``after``) → label (short unique name) of an entry point →
            its recorded run.
        api: dictionary, name of the version → its public names and signatures.
        failing: dictionary, label of an entry point that fails before the migration → its error.
        difference: notes and differences for the entry points that fail before the migration. Each of these entry
            points has a note. If the entry point raises an error or crashes before the migration, but trains or fails
            in another way after the migration, it also has a difference.
    """

    sides: dict[str, dict[str, EntryPointRecord]] = field(default_factory=dict)
    api: dict[str, Api] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)
    difference: Equivalence = field(default_factory=Equivalence)

    def working_entries(self, side: str) -> dict[str, EntryPointRecord]:
        """Return the recorded runs of a version, without entry points that fail before the migration."""
        return {label: one for label, one in self.sides[side].items() if label not in self.failing}


class _WatchedVersion:
    """The recording of the entry points (training functions or a script) in one version.

    Each call of :meth:`advance` processes one message of the child process, or lets the process continue.

    Attributes:
        found: dictionary, label of the entry point → its recorded run.
        api: public names and signatures of the version.
        is_over: whether every entry point is recorded.
    """

    def __init__(
        self, entries: Sequence[EntryPoint], start: Callable[[Sequence[EntryPoint]], Child[RunResult]], limit_s: float
    ) -> None:
        self.found: dict[str, EntryPointRecord] = {}
        self.api: Api = {}
        self.is_over = self._started = False
        self._left = list(entries)
        self._start, self._limit_s = start, limit_s
        self._child = start(entries)
        self._deaths = 0

    def advance(self) -> None:
        """Wait briefly for a message if the process is busy. Otherwise, let the process run the next entry point.

        Raises:
            WorkloadFailed: the process ended before any entry point ran, or too many entry points crashed or hung.
        """
        try:
            if self._child.is_busy:
                self._child.receive_message(_LOOK_S)
            elif self._left:
                self._child.give_turn(self._limit_s)
                self._started = True
            else:
                self.api, self.is_over = self._child.result().api, True
        except WorkloadFailed as failed:
            self._record_loss(failed)
        for part in self._child.found:
            one = self.found[part.name] = msgspec.convert(part.value, EntryPointRecord)
            if one.error and not one.printed:
                time.sleep(_LAST_OUTPUT_S)
                one.printed = self._child.last_lines()
            self._left = [entry for entry in self._left if entry.label != part.name]
        self._child.found.clear()

    def _record_loss(self, failed: WorkloadFailed) -> None:
        """Store a record for the entry point that was running when the process ended, and start a new process.

        The error in this record describes how the process ended. The new process runs the remaining entry points.

        Raises:
            WorkloadFailed: see :meth:`advance`.
        """
        self._deaths += 1
        if not self._started or not failed.ending or self._deaths > _MOST_DEATHS:
            raise failed
        entry, *self._left = self._left
        lost = EntryPointRecord({}, [], error=failed.ending, printed=failed.log_tail, lost=True, hung=failed.hung)
        self.found[entry.label] = lost
        self._started, self._child = False, self._start(self._left)


def record_runs(
    child_starter: ChildStarter,
    discovery: DiscoveredEntryPoints,
    api_names: dict[str, list[str]],
    run_original_twice: bool = False,
) -> RecordedRuns:
    """Run every entry point briefly in both versions, at the same time if possible, and record the batches.

    Args:
        child_starter: object with which this function starts the child processes that train.
        discovery: the entry points to run (training functions or a script).
        api_names: dictionary, module → public names whose signatures are read in both versions.
        run_original_twice: whether the version before the migration runs every entry point twice. Two runs show which
            values differ from run to run, for example on a GPU.

    Raises:
        WorkloadFailed: an entry point fails only after the migration, or all entry points fail before the migration.
    """
    watched = RecordedRuns()
    for together in child_starter.concurrent_versions:
        versions = _record_versions(child_starter, discovery.entry_points, together, api_names, run_original_twice)
        for side, version in versions.items():
            watched.sides[side], watched.api[side] = version.found, version.api
    before, after = watched.sides["before"], watched.sides["after"]
    watched.failing = {label: one.error for label, one in before.items() if one.error}
    for label, one in after.items():
        if one.error and label not in watched.failing:
            raise _workload_failure("after", label, one)
    if len(watched.failing) == len(before):
        label, one = next(iter(before.items()))
        also = " (all other entry points also failed)" if len(before) > 1 else ""
        sizes = child_starter.watched_sizes if discovery.source is TrainingSource.HOOK else None
        raise _workload_failure("before", label, one, also, sizes)
    for label, lost in before.items():
        if lost.error:
            watched.difference.notes.append(
                f"{label}: not compared, because the code before the migration {_describe_failure(lost)}"
            )
            # If the entry point hangs before the migration, there is no error to compare.
            if after[label].error != lost.error and not lost.hung:
                watched.difference.add_difference(
                    "error-differs", label, f"{_describe_failure(lost)} before, {_describe_failure(after[label])} after"
                )
    return watched


def record_original_again(child_starter: ChildStarter, entries: Sequence[EntryPoint]) -> dict[str, EntryPointRecord]:
    """Run entry points briefly before the migration, in a new process, and return the records of those that train.

    The keys of the result are the labels of the entry points.
    """
    found = _record_versions(child_starter, entries, ("before",), {}, False)["before"].found
    return {label: one for label, one in found.items() if not one.error}


def _record_versions(
    child_starter: ChildStarter,
    entries: Sequence[EntryPoint],
    together: Sequence[str],
    api_names: dict[str, list[str]],
    run_original_twice: bool,
) -> dict[str, _WatchedVersion]:
    """Run every entry point briefly in the versions ``together``, at the same time, and record the batches."""
    with ExitStack() as stack:

        def start(side: str, left: Sequence[EntryPoint]) -> Child[RunResult]:
            more = {"api_names": api_names, "twice": run_original_twice and side == "before"}
            return stack.enter_context(child_starter.prepare_child(side, JobKind.WATCH, left, **more))

        sides = {side: _WatchedVersion(entries, partial(start, side), child_starter.watch_limit_s) for side in together}
        while not all(version.is_over for version in sides.values()):
            for version in sides.values():
                if not version.is_over:
                    version.advance()
            done = min(len(version.found) for version in sides.values())
            child_starter.progress(ProgressStep("recording what each entry point loads", done, len(entries)))
    return sides


def _describe_failure(one: EntryPointRecord) -> str:
    return one.error if one.lost else f"raises {one.error}" if one.error else "trains"


def _workload_failure(
    side: str, label: str, one: EntryPointRecord, also: str = "", sizes: WorkloadSizes | None = None
) -> WorkloadFailed:
    how = one.error if one.lost else f"raised {one.error}"
    message = f"The training failed in the version {side} the migration: {label} {how}{also}."
    if sizes is not None:
        message += (
            f" The workload function got {sizes.samples} samples in batches of {sizes.batch_size}. If the training "
            "needs other sizes, use fixed sizes in the workload function."
        )
    return workload_failure(message, one.printed, side)
