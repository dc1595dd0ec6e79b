"""Record small runs of every entry point in both versions, before anything is timed.

One process for each version trains each entry point on a few samples, one entry point after the other. If an entry
point hangs or ends its process, a new process runs the remaining entry points. An entry point that fails before the
migration must fail with the same error after the migration. The report lists the entry points that fail before the
migration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import msgspec

from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.run_child import Child, workload_failure
from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, EntryPoint
from chirp_migrate.verify.equivalence.api import Api
from chirp_migrate.verify.equivalence.compare import Equivalence
from chirp_migrate.verify.spec import EntryResult, JobKind, RunResult
from chirp_migrate.verify.timing.children import ChildStarter

_MOST_DEATHS = 3
"""Largest number of entry points that may crash or hang in one version; after one more, ``verify`` stops."""
_LOOK_S = 0.02


@dataclass
class RecordedRuns:
    """The recorded runs of both versions.

    Attributes:
        sides: dictionary, name of the version (``before`` or ``after``) → label of the entry point → its recorded run.
        api: dictionary, name of the version → its public names and signatures.
        failing: dictionary, label of an entry point that fails before the migration → its error.
        difference: differences between an error before the migration and the result after it.
    """

    sides: dict[str, dict[str, EntryResult]] = field(default_factory=dict)
    api: dict[str, Api] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)
    difference: Equivalence = field(default_factory=Equivalence)

    def working_entries(self, side: str) -> dict[str, EntryResult]:
        """Return the recorded runs of a version, without entry points that fail before the migration."""
        return {label: one for label, one in self.sides[side].items() if label not in self.failing}


class _WatchedVersion:
    """The recording of one version. Each call of :meth:`advance` continues the recording for a short time.

    Attributes:
        found: dictionary, label of the entry point → its recorded run.
        api: public names and signatures of the version.
        is_over: whether every entry point is recorded.
    """

    def __init__(
        self,
        children: ChildStarter,
        side: str,
        entries: Sequence[EntryPoint],
        stack: ExitStack,
        more: Mapping[str, Any],
    ) -> None:
        self.found: dict[str, EntryResult] = {}
        self.api: Api = {}
        self.is_over = False
        self._children = children
        self._side = side
        self._left = list(entries)
        self._stack = stack
        self._more = more
        self._deaths = 0
        self._start()

    def advance(self) -> None:
        """Receive a message of the process, or let the process continue with the next entry point.

        Raises:
            WorkloadFailed: the process ended before any entry point ran, or too many entry points crashed or hung.
        """
        try:
            if self._child.is_busy:
                self._child.receive_message(_LOOK_S)
            elif self._left:
                self._child.give_turn(self._children.watch_limit_s)
                self._started = True
            else:
                self.api, self.is_over = self._child.result().api, True
        except WorkloadFailed as failed:
            self._record_loss(failed)
        for part in self._child.found:
            self.found[part.name] = msgspec.convert(part.value, EntryResult)
            self._left = [entry for entry in self._left if entry.label != part.name]
        self._child.found.clear()

    def _start(self) -> None:
        self._started = False
        self._child: Child[RunResult] = self._stack.enter_context(
            self._children.prepare_child(self._side, JobKind.WATCH, self._left, **self._more)
        )

    def _record_loss(self, failed: WorkloadFailed) -> None:
        """Record the end of the process as the error of the present entry point, and start a new process."""
        self._deaths += 1
        if not self._started or not failed.ending or self._deaths > _MOST_DEATHS:
            raise failed
        entry, *self._left = self._left
        lost = EntryResult({}, [], error=failed.ending, printed=failed.log_tail, lost=True, hung=failed.hung)
        self.found[entry.label] = lost
        self._start()


def record_runs(
    children: ChildStarter,
    discovery: DiscoveredEntryPoints,
    api_names: dict[str, list[str]],
    repeat_before: bool = False,
) -> RecordedRuns:
    """Record a small run of every entry point in both versions, at the same time if possible.

    Args:
        children: starts the processes.
        discovery: the entry points.
        api_names: dictionary, module → public names whose signatures are read.
        repeat_before: whether the version before the migration runs twice, because its runs may differ.

    Raises:
        WorkloadFailed: an entry point fails only after the migration, or all entry points fail before it.
    """
    watched = RecordedRuns()
    for together in children.group_concurrent_versions(("before", "after")):
        with ExitStack() as stack:
            sides = {
                side: _WatchedVersion(
                    children,
                    side,
                    discovery.entry_points,
                    stack,
                    {"api_names": api_names, "twice": repeat_before and side == "before"},
                )
                for side in together
            }
            while not all(one.is_over for one in sides.values()):
                for one in sides.values():
                    if not one.is_over:
                        one.advance()
                children.progress(_recording_progress(sides, len(discovery.entry_points)))
            for side, one in sides.items():
                watched.sides[side], watched.api[side] = one.found, one.api
    before, after = watched.sides["before"], watched.sides["after"]
    watched.failing = {label: one.error for label, one in before.items() if one.error}
    broken = [label for label, one in after.items() if one.error and not before[label].error]
    if broken:
        raise _workload_failure("after", broken[0], after)
    if len(watched.failing) == len(before):
        raise _workload_failure("before", next(iter(before)), before, others=len(before) > 1)
    for label, lost in before.items():
        if lost.error:
            watched.difference.notes.append(
                f"{label}: not compared, because the code before the migration {_describe_failure(lost)}"
            )
            # An entry point that hangs has no error to compare.
            if after[label].error != lost.error and not lost.hung:
                watched.difference.add_difference(
                    "error-differs", label, f"{_describe_failure(lost)} before, {_describe_failure(after[label])} after"
                )
    return watched


def _describe_failure(one: EntryResult) -> str:
    return one.error if one.lost else f"raises {one.error}" if one.error else "trains"


def _workload_failure(side: str, label: str, found: Mapping[str, EntryResult], others: bool = False) -> WorkloadFailed:
    one = found[label]
    also = " (all other entry points also failed)" if others else ""
    how = one.error if one.lost else f"raised {one.error}"
    message = f"The training failed in the version {side} the migration: {label} {how}{also}."
    return workload_failure(message, one.printed, side)


def _recording_progress(sides: Mapping[str, _WatchedVersion], of: int) -> ProgressStep:
    return ProgressStep("recording what each entry point loads", min(len(one.found) for one in sides.values()), of)
