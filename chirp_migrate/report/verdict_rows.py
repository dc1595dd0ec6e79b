"""Read times, metrics and waits for batches from the result of ``verify``, for reports."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal

from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.verify.metrics import Metric
from chirp_migrate.verify.timing.rounds import SIDES
from chirp_migrate.verify.verify_report import VerifyReport

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
    """The times of one entry point (a training function or script), or of all entry points together.

    Attributes:
        label: short unique name of the entry point; ``all together`` for all entry points together.
        seconds: dictionary, version (``before``, ``after``, or ``cached`` for zero-cost loading) → seconds of the full
            training in each round. For all entry points together, each list has one value: the sum of the median times
            of the entry points. Versions that were not timed are missing.
        ratio: time after / time before the migration, with its confidence interval over all rounds.
        zero_cost_ratio: time with zero-cost loading / time before the migration; None if zero-cost loading was not
            timed.
        verdict: verdict on the entry point; "" if the entry point has no verdict. For all entry points together, the
            value is the verdict of the whole verification.
    """

    label: str
    seconds: dict[str, list[float]]
    ratio: Ratio
    zero_cost_ratio: Ratio | None
    verdict: str

    def median(self, side: str, missing: str) -> str:
        """Return the median time of a version in seconds, as text with two decimals.

        Args:
            side: the version, such as ``before``.
            missing: the result for a version without times.
        """
        return f"{statistics.median(self.seconds[side]):.2f}" if self.seconds.get(side) else missing


def short_label(label: str) -> str:
    """Return a shorter form of the label of a training.

    Words that occur in many labels are removed or shortened. For example, ``train.k_fold_cross_validation`` becomes
    ``train.k_fold``.
    """
    module, dot, name = label.partition(".")
    if not dot:
        return label
    name = name.removeprefix("TrainingEngine.")
    for word, shorter in _SHORTER:
        name = name.replace(word, shorter)
    return f"{module}.{name}"


def tone_of_verdict(verdict: str) -> Literal["good", "open", "bad"]:
    """Return "good", "open" (not decided) or "bad" for a verdict. This word determines the colour of the verdict."""
    return _TONES.get(verdict, "bad")


def total_times(report: VerifyReport) -> EntryTimes | None:
    """Return the times of all entry points together; None if nothing was timed."""
    if report.ratio is None:
        return None
    taken = {side: [seconds] for side in SIDES if (seconds := report.rounds.total_seconds(side))}
    return EntryTimes("all together", taken, report.ratio, report.zero_cost_ratio, report.verdict)


def entry_point_times(report: VerifyReport) -> list[EntryTimes]:
    """Return the times of each timed entry point, in the order in which the entry points ran."""
    rows = []
    for label, ratio in report.ratios.items():
        seconds = {side: of for side in SIDES if (of := report.rounds.seconds(side, label))}
        own = report.verdicts.get(label)
        rows.append(EntryTimes(label, seconds, ratio, own.zero_cost_ratio if own else None, own.verdict if own else ""))
    return rows


def measured_metrics(report: VerifyReport) -> list[tuple[Metric, float | None, float | None]]:
    """Return (metric, value before, value after the migration) for each metric with at least one value."""
    before, after = (report.measures.figures.get(side, {}) for side in ("before", "after"))
    rows = [(one, before.get(one.name), after.get(one.name)) for one in report.measures.definitions]
    return [row for row in rows if row[1:] != (None, None)]


def batch_waits_ms(report: VerifyReport) -> dict[str, list[float]]:
    """Return a dictionary: version → sorted waits for training batches, in ms.

    The waits for the first batch of each iteration over a loader are missing.
    """
    found = {}
    for side in ("before", "after"):
        visits = (visit for each in report.rounds.made for visit in each.visits_of(side).values())
        if waits := sorted(1e3 * seconds for visit in visits for seconds in visit.waits_s):
            found[side] = waits
    return found
