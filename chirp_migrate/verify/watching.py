"""Comparison of every entry point in both versions, before anything is timed.

One process for each version trains each entry point on a few watched samples, in its own turn. An entry point may raise
an error, hang, or end its process; a new process then continues with the others. An entry point that fails before the
migration is reported and omitted, and must fail in the same way after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import msgspec

from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.run_child import Child, workload_failed
from chirp_migrate.training.workload.entry_points import Discovery, EntryPoint
from chirp_migrate.verify.equivalence.api import Api
from chirp_migrate.verify.equivalence.compare import Equivalence
from chirp_migrate.verify.spec import EntryResult, RunResult
from chirp_migrate.verify.timing.children import Children

__all__ = ["WatchedRuns", "watch"]

_MOST_DEATHS = 3
"""Number of entry points of a version that may end their process; after one more, verify stops."""
_LOOK_S = 0.02


@dataclass
class WatchedRuns:
    """The watched runs of both versions.

    Attributes:
        sides: version → entry point → its watched run.
        api: version → its public names, see :mod:`.api`.
        failing: entry points that fail before the migration → their error there.
        difference: entry points that fail before the migration, but differently or not at all after it.
        spent_s: seconds of each activity of both processes, by name.
    """

    sides: dict[str, dict[str, EntryResult]] = field(default_factory=dict)
    api: dict[str, Api] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)
    difference: Equivalence = field(default_factory=Equivalence)

    def working(self, side: str) -> dict[str, EntryResult]:
        """Return the entry points that train."""
        return {label: one for label, one in self.sides[side].items() if label not in self.failing}


class _WatchedVersion:
    """One version while it is watched; :meth:`advance` continues, without waiting long.

    Attributes:
        found: the watched runs, by entry point.
        api: the public names.
        is_over: whether every entry point was watched.
    """

    def __init__(
        self, children: Children, side: str, entries: Sequence[EntryPoint], stack: ExitStack, more: Mapping[str, Any]
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
        """Receive the messages of the process, and let it continue; raise WorkloadFailed if no entry point runs."""
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
            self._children.watching(self._side, self._left, **self._more)
        )

    def _record_loss(self, failed: WorkloadFailed) -> None:
        """Record the loss of the process, and the error of its current entry point."""
        self._deaths += 1
        if not self._started or not failed.ending or self._deaths > _MOST_DEATHS:
            raise failed
        entry, *self._left = self._left
        lost = EntryResult(0.0, {}, [], error=failed.ending, printed=failed.log_tail, lost=True, hung=failed.hung)
        self.found[entry.label] = lost
        self._start()


def watch(
    children: Children, discovery: Discovery, api_names: dict[str, list[str]], twice_before: bool = False
) -> WatchedRuns:
    """Watch every entry point in both versions, at the same time if possible.

    Args:
        api_names: public names to look up.
        twice_before: whether the version before the migration is watched twice, because its runs may differ.

    Raises:
        WorkloadFailed: an entry point fails only after the migration, or all entry points fail before it.
    """
    watched = WatchedRuns()
    for together in children.beside_each_other(("before", "after")):
        with ExitStack() as stack:
            sides = {
                side: _WatchedVersion(
                    children,
                    side,
                    discovery.entry_points,
                    stack,
                    {"api_names": api_names, "twice": twice_before and side == "before"},
                )
                for side in together
            }
            while not all(one.is_over for one in sides.values()):
                for one in sides.values():
                    if not one.is_over:
                        one.advance()
                children.progress(_advance_versions(sides, len(discovery.entry_points)))
            for side, one in sides.items():
                watched.sides[side], watched.api[side] = one.found, one.api
    before, after = watched.sides["before"], watched.sides["after"]
    watched.failing = {label: one.error for label, one in before.items() if one.error}
    broken = [label for label, one in after.items() if one.error and not before[label].error]
    if broken:
        raise _failure("after", broken[0], after)
    if len(watched.failing) == len(before):
        raise _failure("before", next(iter(before)), before, others=len(before) > 1)
    for label, lost in before.items():
        if lost.error:
            watched.difference.notes.append(
                f"{label}: left out, because before the migration it {_describe_failure(lost)}, too"
            )
            # verify does not wait for an entry point that hangs before the migration, so its end is unknown.
            if after[label].error != lost.error and not lost.hung:
                watched.difference.differs(
                    "error-differs", label, f"{_describe_failure(lost)} before, {_describe_failure(after[label])} after"
                )
    return watched


def _describe_failure(one: EntryResult) -> str:
    return one.error if one.lost else f"raises {one.error}" if one.error else "trains"


def _failure(side: str, label: str, found: Mapping[str, EntryResult], others: bool = False) -> WorkloadFailed:
    one = found[label]
    also = " (and so do all others)" if others else ""
    how = one.error if one.lost else f"raised {one.error}"
    return workload_failed(f"The version {side} failed: {label} {how}{also}.", one.printed, side)


def _advance_versions(sides: Mapping[str, _WatchedVersion], of: int) -> ProgressStep:
    return ProgressStep("watching what each entry point loads", min(len(one.found) for one in sides.values()), of)
