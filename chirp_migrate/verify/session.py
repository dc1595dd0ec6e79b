"""A whole verification: probe both sides, then time them in turn, and gather everything for a verdict.

Rounds are pairs of fresh processes, before and after, in alternating order. How many there are depends on the
clock alone, never on what they show: stopping at a welcome result would make chance look like speed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chirp_migrate.verify.api import missing_from, public_names
from chirp_migrate.verify.equivalence import Equivalence, compare_passes, compare_results
from chirp_migrate.verify.process import run_child
from chirp_migrate.verify.spec import EntryResult, Mode, RunResult, RunSpec
from chirp_migrate.verify.statistics import Ratio, paired_ratio
from chirp_migrate.verify.verdict import Decision, Verdict, decide
from chirp_migrate.verify.workload import Discovery, Sizes

__all__ = ["MIN_ROUNDS", "Measurements", "Outcome", "Settings", "judge", "measure"]

MIN_ROUNDS = 3
_CACHED_ROUNDS = 2


@dataclass(frozen=True)
class Settings:
    """What the user chose.

    Attributes:
        sizes: the workload.
        rounds: timed pairs at most; at least :data:`MIN_ROUNDS` are run.
        budget_s: no further round begins when it would probably end later than this many seconds after the first.
        threshold: share of the time that must be saved, 0 to 1.
        threads: compute threads of each child.
        timeout_s: seconds after which a child counts as hung.
    """

    sizes: Sizes
    rounds: int
    budget_s: float
    threshold: float
    threads: int
    timeout_s: float


@dataclass
class Measurements:
    """Everything that was measured.

    Attributes:
        labels: entry points, in the order in which they ran.
        probe: PROBE results of ``before`` and ``after``.
        seconds: side → entry point → seconds of each round; ``cached`` is a side of fewer rounds.
        equivalence: what of the training differs.
    """

    labels: tuple[str, ...]
    probe: dict[str, dict[str, EntryResult]]
    seconds: dict[str, dict[str, list[float]]]
    equivalence: Equivalence

    @property
    def rounds(self) -> int:
        """Timed pairs; 0 when the sides were found to differ before timing."""
        return len(next(iter(self.seconds["before"].values()), []))

    def total(self, side: str) -> list[float]:
        """Seconds of all entry points together, for each round."""
        return [sum(row) for row in zip(*self.seconds[side].values(), strict=True)]


@dataclass(frozen=True)
class Outcome:
    """Judged measurements; ratios and headspace are None when nothing was timed.

    Attributes:
        headspace: share of the time before that perfect loading would save.
    """

    decision: Decision
    total: Ratio | None
    entries: dict[str, Ratio]
    headspace: float | None


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
        progress: called with one line as each process ends.

    Raises:
        WorkloadFailed: the backend's code crashed or hung on one of the sides.
    """
    children = _Children(trees, discovery, settings, scratch)
    probe = {}
    for side in ("before", "after"):
        began = time.monotonic()
        probe[side] = children.run(side, (Mode.PROBE,), public_names(trees["before"]))
        progress(f"watched the training {side} the migration ({time.monotonic() - began:.0f} s)")
    watched = {side: result.modes[Mode.PROBE] for side, result in probe.items()}
    equivalence = compare_passes(watched["before"], watched["after"])
    api = tuple(missing_from(probe["before"].api, probe["after"].api))
    equivalence = Equivalence(equivalence.differences + api, (), equivalence.smallest_p)
    labels = tuple(entry.label for entry in discovery.entry_points)
    seconds: dict[str, dict[str, list[float]]] = {
        side: {label: [] for label in labels} for side in ("before", "after", "cached")
    }
    if not equivalence.differences:
        timed = _time_rounds(children, settings, seconds, progress)
        again = {side: result.modes[Mode.TIMED] for side, result in timed.items()}
        results = compare_results(watched["before"], again["before"], watched["after"], again["after"])
        equivalence = Equivalence(results.differences, results.notes, equivalence.smallest_p)
    return Measurements(labels, watched, seconds, equivalence)


def judge(measurements: Measurements, threshold: float) -> Outcome:
    """Turn measurements into a verdict."""
    differences = measurements.equivalence.differences
    if measurements.rounds == 0:
        return Outcome(Decision(Verdict.NOT_EQUIVALENT, differences[0]), None, {}, None)
    before, after = measurements.seconds["before"], measurements.seconds["after"]
    total = paired_ratio(measurements.total("before"), measurements.total("after"))
    entries = {label: paired_ratio(before[label], after[label]) for label in measurements.labels}
    perfect = statistics.median(measurements.total("cached"))
    headspace = max(0.0, 1 - perfect / statistics.median(measurements.total("before")))
    return Outcome(decide(total, entries, headspace, threshold, differences), total, entries, headspace)


def _time_rounds(
    children: _Children,
    settings: Settings,
    seconds: dict[str, dict[str, list[float]]],
    progress: Callable[[str], None],
) -> dict[str, RunResult]:
    """Time both sides round by round into ``seconds``; the results of the first round are returned."""
    first: dict[str, RunResult] = {}
    began = time.monotonic()
    for number in range(max(settings.rounds, MIN_ROUNDS)):
        elapsed = time.monotonic() - began
        if number >= MIN_ROUNDS and elapsed * (number + 1) / number > settings.budget_s:
            progress(f"stopped after {number} rounds: the budget of {settings.budget_s:.0f} s is used up")
            break
        for side in ("before", "after") if number % 2 == 0 else ("after", "before"):
            with_cached = side == "after" and number < _CACHED_ROUNDS
            modes = (Mode.TIMED, Mode.CACHED) if with_cached else (Mode.TIMED,)
            result = children.run(side, modes, {})
            first.setdefault(side, result)
            for mode, name in ((Mode.TIMED, side), (Mode.CACHED, "cached")):
                for label, entry in result.modes.get(mode, {}).items():
                    seconds[name][label].append(entry.seconds)
        times = {side: sum(rows[-1] for rows in seconds[side].values()) for side in ("before", "after")}
        progress(f"round {number + 1}: {times['before']:.2f} s before, {times['after']:.2f} s after")
    return first


class _Children:
    """Starts child processes, numbered, with the same workload for both sides."""

    def __init__(self, trees: dict[str, Path], discovery: Discovery, settings: Settings, scratch: Path) -> None:
        self._trees = trees
        self._discovery = discovery
        self._settings = settings
        self._scratch = scratch
        self._count = 0

    def run(self, side: str, modes: tuple[Mode, ...], api_names: dict[str, list[str]]) -> RunResult:
        self._count += 1
        folder = self._scratch / f"{self._count:03d}-{side}"
        spec = RunSpec(
            tree=str(self._trees[side]),
            output=str(self._scratch / f"{self._count:03d}-{side}.json"),
            entry_points=self._discovery.entry_points,
            model=self._discovery.model,
            sizes=self._settings.sizes,
            threads=self._settings.threads,
            modes=modes,
            api_names=api_names,
        )
        return run_child(spec, side, folder, self._settings.timeout_s)
