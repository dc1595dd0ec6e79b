"""Rows of a verification for reports, from its document: times, metrics, and waits for batches."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal

from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.verify.measures.metric_data import Measure
from chirp_migrate.verify.verify_report import VerifyReport

__all__ = [
    "EntryTimes",
    "all_together",
    "entry_times",
    "figures",
    "noticeable_change",
    "short_label",
    "tone_of_verdict",
    "waits_ms",
]

_SIDES = ("before", "after", "cached")
_TONES: dict[str, Literal["good", "open"]] = {
    "faster": "good",
    "faster, entry points inconclusive": "open",
    "not shown to be faster": "open",
    "model-bound": "open",
}
_SHORTER = (
    ("single_fold_training", "single"),
    ("k_fold_cross_validation", "k_fold"),
    ("_with_predefined_", " given "),
    ("_with_", " "),
)


@dataclass(frozen=True)
class EntryTimes:
    """One entry point of the training, or all together.

    Attributes:
        label: its name; ``all`` for all together.
        seconds: ``before``, ``after`` and ``cached`` (the same training fed from one cached batch) → seconds of every
            round that counts; versions that were not timed are missing.
        ratio: time after / before.
        zero_cost_ratio: time with zero-cost loading / time before; None if it was not measured.
        verdict: its own verdict; for all together, that of the verification; empty if there is none.
    """

    label: str
    seconds: dict[str, list[float]]
    ratio: Ratio
    zero_cost_ratio: Ratio | None
    verdict: str

    def median(self, side: str, missing: str) -> str:
        """Return the seconds of a version in the median round, with two decimals; ``missing`` if it was not timed."""
        return f"{statistics.median(self.seconds[side]):.2f}" if self.seconds.get(side) else missing


def short_label(label: str) -> str:
    """Return a label without the prefix that long labels have in common."""
    module, dot, name = label.partition(".")
    if not dot:
        return label
    name = name.removeprefix("TrainingEngine.")
    for word, shorter in _SHORTER:
        name = name.replace(word, shorter)
    return f"{module}.{name}"


def tone_of_verdict(verdict: str) -> Literal["good", "open", "bad"]:
    """Return whether a verdict is good, open or bad for a user who expects ``faster``."""
    return _TONES.get(verdict, "bad")


def all_together(report: VerifyReport) -> EntryTimes | None:
    """Return all entry points together; None if nothing was timed."""
    if report.ratio is None:
        return None
    # A version without a measurement in a round took no time in it.
    taken = {side: [s for s in of if s] for side, of in report.total_seconds.items() if any(of)}
    return EntryTimes("all", taken, report.ratio, report.zero_cost_ratio, report.verdict)


def entry_times(report: VerifyReport) -> list[EntryTimes]:
    """Return each entry point that was timed, in the order in which they ran."""
    rows = []
    for label, ratio in report.ratios.items():
        seconds = {side: of[label] for side, of in report.seconds.items() if of.get(label) and side in _SIDES}
        own = report.verdicts.get(label)
        rows.append(EntryTimes(label, seconds, ratio, own.zero_cost_ratio if own else None, own.verdict if own else ""))
    return rows


def figures(report: VerifyReport) -> list[tuple[Measure, float | None, float | None]]:
    """Yield each metric with a value in at least one version, with its values before and after (None without one)."""
    before, after = (report.measures.figures.get(side, {}) for side in ("before", "after"))
    rows = [(one, before.get(one.name), after.get(one.name)) for one in report.measures.definitions]
    return [row for row in rows if row[1:] != (None, None)]


def noticeable_change(report: VerifyReport, label: str) -> float | None:
    """Return the change of a probability of augmentation that is noticed 9 times in 10; None if it is not known."""
    return max((one.share for one in report.noticed.get(label, {}).values()), default=None)


def waits_ms(report: VerifyReport) -> dict[str, list[float]]:
    """Return, by version, the sorted waits for training batches in ms, without the first of each pass (start-up)."""
    found = {}
    for side, raw in report.measures.raw.items():
        walks = (walk for entry in raw.entries.values() for walk in entry.walks if walk.role == "train")
        waits = sorted(1e3 * seconds for walk in walks for seconds in walk.waits_s[1:])
        if waits and side in _SIDES:
            found[side] = waits
    return found
