"""What a verification found, read from its JSON (docs/json.md) as something that anybody may have changed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chirp_migrate.transaction.record import checked_path

__all__ = [
    "EntryStory",
    "Interval",
    "MeasureStory",
    "TargetStory",
    "VerdictStory",
    "read_verdict",
    "verified_digests",
]

_SCHEMA = 1
_SIDES = ("before", "after", "cached")
_Seconds = Mapping[str, Mapping[str, Sequence[Any]]]


@dataclass(frozen=True)
class Interval:
    """A ratio of times, after / before, with its interval: each end is wrong at most 2.5 times in 100."""

    value: float
    low: float
    high: float

    @property
    def saved(self) -> tuple[float, float, float]:
        """Share of the time before that is saved, 0 to 1 (negative where it is lost): value, low, high."""
        return 1 - self.value, 1 - self.high, 1 - self.low

    @property
    def speed_up(self) -> tuple[float, float, float]:
        """How many times as fast: value, low, high."""
        return 1 / self.value, 1 / self.high, 1 / self.low


@dataclass(frozen=True)
class EntryStory:
    """One entry point of the training, or all together.

    Attributes:
        label: its name; ``all`` for all together.
        seconds: ``before``, ``after`` and ``cached`` (the same training fed from one cached batch) → seconds of every
            round that counts; sides that were not timed are missing.
        ratio: time after / before; None where it was not timed.
        perfect: time with perfect loading / before; None where it was not measured.
        verdict: its own one: ``meets the threshold``, ``model-bound``, ``not shown``, ``undecided``, ``slower``; for
            all together that of the verification; empty where there is none.
        samples: taken from all loaders in one training before; 0 where that was not seen.
    """

    label: str
    seconds: dict[str, tuple[float, ...]]
    ratio: Interval | None
    perfect: Interval | None
    verdict: str
    samples: int


@dataclass(frozen=True)
class MeasureStory:
    """One measure on both sides; None where there was nothing to measure."""

    name: str
    title: str
    unit: str
    method: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class TargetStory:
    """A required figure: ``verdict`` is ``met``, ``not met`` or ``not measurable here``."""

    requirement: str
    target: str
    verdict: str
    why: str
    warning: bool


@dataclass(frozen=True)
class VerdictStory:
    """One verification.

    Attributes:
        verdict: ``faster``, ``faster, entry points undecided``, ``not shown to be faster``, ``model-bound``,
            ``slower``, ``not equivalent``, ``failed``.
        exit_code: of the command.
        reason: one sentence.
        threshold: share of the time that had to be saved, 0 to 1.
        total: all entry points together; None where nothing was timed.
        entries: each entry point.
        measures: what the instrumented training found.
        targets: required figures.
        differences: what is not the same training, one sentence each.
        notes: what could not be compared, or is amiss on both sides.
        smallest_p: per augmented entry point, the smallest adjusted p of the tests of its distribution.
        noticed: per augmented entry point, by how much a probability had to change to be noticed 9 times in 10.
        rounds: how many were made and count, which were disturbed, and why there were no more, as ``verify`` says it.
        waits_ms: side → waits for training batches, ascending, first batches left out.
        simulated: what was simulated, one sentence; None for nothing.
        before: what the side before is, such as ``the files before `apply`, from its journal``.
        machine: what it ran on, as ``verify`` says it.
        workload: what was trained and with which settings, as ``verify`` says it.
        tool: what verified it.
        created: when it ended, ISO 8601 in UTC; empty where it does not say.
        run: number of the run it is kept with; None when it was read from a file.
        changed_since: files that are not what was verified any more.
        output_tail: of a failed one, the end of what the backend's code printed.
        side: of a failed one, ``before`` or ``after``.
    """

    verdict: str
    exit_code: int
    reason: str
    threshold: float
    total: EntryStory | None
    entries: tuple[EntryStory, ...]
    measures: tuple[MeasureStory, ...]
    targets: tuple[TargetStory, ...]
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    smallest_p: dict[str, float]
    noticed: dict[str, float]
    rounds: str
    waits_ms: dict[str, tuple[float, ...]]
    simulated: str | None
    before: str
    machine: str
    workload: str
    tool: str
    created: str
    run: int | None = None
    changed_since: tuple[str, ...] = ()
    output_tail: str = ""
    side: str = ""


def read_verdict(data: bytes) -> VerdictStory:
    """The verdict in the JSON of ``verify``; ``run`` and ``changed_since`` are left for whoever knows the tree.

    Raises:
        ValueError: it is no such document; the message says why.
    """
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(whole, dict) or not isinstance(whole.get("verdict"), str) or "exit_code" not in whole:
        raise ValueError("it is some other document than verify writes")
    if whole.get("schema") != _SCHEMA:
        raise ValueError(f"its schema is {whole.get('schema')!r}, and this version of chirp-migrate reads {_SCHEMA}")
    try:
        return _verdict(whole)
    except KeyError as error:
        raise ValueError(f"{error} is missing") from None
    except (TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"it is not built as a verdict is: {error}") from None


def verified_digests(data: bytes) -> dict[str, str | None]:
    """SHA-256 of the files that were verified (None: was not there), by path; empty where the document does not say.

    Raises:
        ValueError: a path leads out of the tree.
    """
    files = json.loads(data).get("files") or {}
    return {checked_path(path): None if digest is None else str(digest) for path, digest in dict(files).items()}


def _verdict(whole: Mapping[str, Any]) -> VerdictStory:
    described = whole.get("described") or {}
    seconds = {side: dict(of) for side, of in (whole.get("seconds") or {}).items() if side in _SIDES}
    samples = _samples(whole.get("passes") or {})
    return VerdictStory(
        verdict=str(whole["verdict"]),
        exit_code=int(whole["exit_code"]),
        reason=str(whole["reason"]),
        threshold=float(whole.get("threshold") or 0.0),
        total=_total(whole, samples),
        entries=tuple(_entry(label, whole, seconds, samples.get(label, 0)) for label in whole.get("ratios") or {}),
        measures=_measures(whole.get("measures") or {}),
        targets=tuple(_target(one) for one in whole.get("targets") or ()),
        differences=tuple(str(one["message"]) for one in whole.get("differences") or ()),
        notes=tuple(str(note) for note in whole.get("notes") or ()),
        smallest_p={str(label): float(p) for label, p in (whole.get("smallest_adjusted_p") or {}).items()},
        noticed={
            str(label): max(float(one["share"]) for one in of.values())
            for label, of in (whole.get("noticed") or {}).items()
        },
        rounds=str(described.get("rounds") or ""),
        waits_ms=_waits(whole.get("measures") or {}),
        simulated=None if not whole.get("simulated") else str(whole["simulated"]["what"]),
        before=str(whole.get("before") or ""),
        machine=str(described.get("machine") or ""),
        workload=str(described.get("workload") or ""),
        tool=str(whole.get("tool") or ""),
        created=str(whole.get("created") or ""),
        output_tail=str(whole.get("output_tail") or ""),
        side=str(whole.get("side") or ""),
    )


def _total(whole: Mapping[str, Any], samples: Mapping[str, int]) -> EntryStory | None:
    ratio = _interval(whole.get("ratio"))
    if ratio is None:
        return None
    # A side that was left out of a round took no time in it.
    taken = {side: tuple(filter(None, map(float, of))) for side, of in (whole.get("total_seconds") or {}).items()}
    sums = {side: of for side, of in taken.items() if of}
    perfect = _interval(whole.get("perfect"))
    return EntryStory("all", sums, ratio, perfect, str(whole["verdict"]), sum(samples.values()))


def _entry(label: str, whole: Mapping[str, Any], seconds: _Seconds, samples: int) -> EntryStory:
    own = (whole.get("verdicts") or {}).get(label) or {}
    taken = {side: tuple(map(float, of[label])) for side, of in seconds.items() if of.get(label)}
    ratio, perfect = _interval(whole["ratios"][label]), _interval(own.get("perfect"))
    return EntryStory(label, taken, ratio, perfect, str(own.get("verdict") or ""), samples)


def _interval(entry: Any) -> Interval | None:
    if entry is None:
        return None
    found = Interval(*(float(entry[key]) for key in ("value", "low", "high")))
    if not (0 < found.low <= found.value <= found.high < math.inf):
        raise ValueError(f"{entry!r} is no ratio with an interval")
    return found


def _samples(passes: Mapping[str, Any]) -> dict[str, int]:
    """Samples that one training took from its loaders before, by entry point."""
    before = passes.get("before") or {}
    return {str(label): sum(int(one["samples"]) for one in records) for label, records in before.items()}


def _measures(measures: Mapping[str, Any]) -> tuple[MeasureStory, ...]:
    figures = measures.get("figures") or {}
    found = []
    for one in measures.get("definitions") or ():
        sides = [(figures.get(side) or {}).get(one["name"]) for side in ("before", "after")]
        if any(value is not None for value in sides):
            before, after = (None if value is None else float(value) for value in sides)
            name, title, unit, method = (str(one[key]) for key in ("name", "title", "unit", "method"))
            found.append(MeasureStory(name, title, unit, method, before, after))
    return tuple(found)


def _target(entry: Mapping[str, Any]) -> TargetStory:
    requirement, target, verdict, why = (str(entry[key]) for key in ("requirement", "target", "verdict", "why"))
    return TargetStory(requirement, target, verdict, why, bool(entry.get("warning")))


def _waits(measures: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Waits for training batches in milliseconds, ascending, without the first one of each walk: that is start-up."""
    found = {}
    for side, raw in (measures.get("raw") or {}).items():
        walks = [walk for entry in (raw.get("entries") or {}).values() for walk in entry["walks"]]
        waits = [1e3 * float(s) for walk in walks if walk["role"] == "train" for s in walk["waits_s"][1:]]
        if waits and side in _SIDES:
            found[side] = tuple(sorted(waits))
    return found
