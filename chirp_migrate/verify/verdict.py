"""Decide the verdict of a verification, and the verdict on each entry point (training function or script)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from chirp_migrate.console.text import format_percent
from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.stats.blocked_ratios import total_and_entry_ratios
from chirp_migrate.stats.interim_analyses import ERROR, InterimAnalysis, error_probability_of_last_analysis
from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.verify.options import MARGIN
from chirp_migrate.verify.timing.rounds import Rounds, TimedRound

_NAMED = 4

_NARROW = 0.05
"""More rounds run until the interval of the total ratio (time after / time before) is at most plus or minus this value.
"""


class Verdict(Enum):
    """The verdict of a verification: its text, its exit code, and its text for a single training function or script."""

    FASTER = ("faster", ExitCode.OK, "meets the threshold")
    INCONCLUSIVE = ("faster, entry points inconclusive", ExitCode.INCONCLUSIVE, "inconclusive")
    NOT_SHOWN = ("not shown to be faster", ExitCode.NOT_SHOWN, "not shown")
    MODEL_BOUND = ("model-bound", ExitCode.MODEL_BOUND, "model-bound")
    SLOWER = ("slower", ExitCode.SLOWER, "slower")
    NOT_EQUIVALENT = ("not equivalent", ExitCode.NOT_EQUIVALENT)
    FAILED = ("failed", ExitCode.WORKLOAD_FAILED)

    def __init__(self, text: str, exit_code: ExitCode, of_entry_point: str = "") -> None:
        self.text = text
        self.exit_code = exit_code
        self.of_entry_point = of_entry_point


@dataclass(frozen=True)
class Decision:
    """A verdict on the migration, with its reason in one sentence."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class CombinedTiming:
    """The combined timings of one entry point, or of all entry points together, over several measurements.

    Attributes:
        ratio: time after / time before the migration.
        zero_cost_ratio: time with zero-cost loading / time before the migration; None if zero-cost loading was not
            timed.
    """

    ratio: Ratio
    zero_cost_ratio: Ratio | None = None

    @property
    def headroom(self) -> float | None:
        """Return the share of the time before the migration that would be saved if loading took no time, 0 to 1."""
        return None if self.zero_cost_ratio is None else max(0.0, 1 - self.zero_cost_ratio.value)

    def at(self, low_error: float, high_error: float) -> CombinedTiming:
        """Return this timing with intervals for other error probabilities.

        Args:
            low_error: probability that the true value is below the interval, 0 to 1.
            high_error: probability that the true value is above the interval, 0 to 1.
        """
        zero_cost_ratio = None if self.zero_cost_ratio is None else self.zero_cost_ratio.at(low_error, high_error)
        return CombinedTiming(self.ratio.at(low_error, high_error), zero_cost_ratio)


class Judge:
    """Draws conclusions from the timings, such as that an entry point (training function or script) is slower.

    A conclusion never changes later.

    ``verify`` times both versions in rounds. After some of the rounds, an interim analysis computes intervals of the
    ratios (time after / time before). The lower end of an interval can prove that an entry point is slower, and a
    single slower entry point decides the verdict. So all lower ends share one error probability (Bonferroni's
    correction). The page docs/verify.md describes all conclusions and their error probabilities.

    Args:
        threshold: share of the training time that the migration must save for the verdict "faster", 0 to 1.
        margin: share of the original time by which an entry point may become slower, such as 0.05.
        strict: whether the verdict "faster" also requires timings that prove that no entry point is slower.

    Attributes:
        total: timing of all entry points together, with the interval that reports show; None if no entry point was
            timed often enough for an interval.
    """

    def __init__(self, threshold: float, margin: float = MARGIN, strict: bool = False) -> None:
        self._wanted = 1 - threshold
        self._slower = 1 + margin
        self._strict = strict
        self.total: CombinedTiming | None = None
        self._lines: dict[str | None, CombinedTiming] = {}
        # Conclusion on the total (key None) or an entry point: True for faster or not slower, False for slower.
        self._shown: dict[str | None, bool] = {}

    @property
    def entries(self) -> dict[str, CombinedTiming]:
        """Return a dictionary: label (short unique name) of an entry point → its time ratio (after / before).

        Each ratio has an interval. ``verify`` analyses the timings several times during the measurement, and each
        analysis replaces the intervals of the analysis before it. But after an analysis has come to a conclusion on an
        entry point, only analyses with the same conclusion replace the interval of this entry point.
        """
        return {label: timing for label, timing in self._lines.items() if label is not None}

    def run_interim_analysis(
        self, total: CombinedTiming | None, entries: Mapping[str, CombinedTiming], looks: Sequence[InterimAnalysis]
    ) -> frozenset[str]:
        """Decide from the timings so far which entry points (training functions or scripts) should be timed again.

        The arguments ``total`` and ``entries`` are the two results of :func:`combine_timings`.

        Args:
            total: timing of all entry points together; None without a timing.
            entries: dictionary, label of an entry point → its timing.
            looks: all earlier interim analyses, then the analysis that this call runs.

        Returns:
            The labels of the entry points that should be timed again; an empty set if no more timings are necessary.
        """
        seen: dict[str | None, CombinedTiming] = {} if total is None else {None: total}
        seen.update(entries)
        low_error, high_error = looks[-1].share * ERROR / (len(seen) + 1), error_probability_of_last_analysis(looks)
        for line, timing in seen.items():
            found = timing.at(low_error, high_error)
            shows = self._draw_conclusion(line, found)
            # If the new interval does not fit the earlier conclusion, keep the earlier interval.
            if self._shown.get(line) in (None, shows):
                self._lines[line] = found
                if line is None:
                    self.total = timing.at(high_error, high_error)
            if shows is not None:
                self._shown.setdefault(line, shows)
        return self._open_entry_points()

    def _draw_conclusion(self, line: str | None, timing: CombinedTiming) -> bool | None:
        if timing.ratio.wholly_below(self._wanted if line is None else self._slower):
            return True
        return False if timing.ratio.wholly_above(self._slower) else None

    def slower(self) -> list[str]:
        """Return the labels of the entry points that the timings prove to be slower by more than ``margin``."""
        return [label for label in self.entries if self._shown.get(label) is False]

    def inconclusive(self) -> list[str]:
        """Return the labels of the entry points for which timings do not prove whether the entry point is slower."""
        return [label for label in self.entries if label not in self._shown]

    def verdicts(self) -> dict[str, Verdict]:
        """Return a dictionary: label of an entry point → verdict on this entry point."""
        own = {label: self._verdict_if_not_slower(timing) for label, timing in self.entries.items()}
        own.update(dict.fromkeys(self.slower(), Verdict.SLOWER))
        own.update(dict.fromkeys(self.inconclusive(), Verdict.INCONCLUSIVE))
        return own

    def decide(self, differences: tuple[str, ...] = (), not_timed: int = 0) -> Decision:
        """Decide the verdict at the end of the timing.

        Args:
            differences: sentences on the differences between the trainings before and after the migration.
            not_timed: number of entry points without a timing.
        """
        if differences:
            return Decision(Verdict.NOT_EQUIVALENT, differences[0])
        total, claims, threshold, of = self.total, self._lines.get(None), 1 - self._wanted, len(self.entries)
        if total is None or claims is None:
            return Decision(Verdict.NOT_SHOWN, "too few rounds for a confidence interval: use a longer --time-budget")
        who = f"{of} of {of + not_timed} entry points together" if not_timed else "all entry points together"
        if of == 1 and not not_timed:
            who = "the training"
        together = f"{who}: {_percent(total.ratio)}, {format_percent(threshold)} less wanted"
        margin = format_percent(self._slower - 1)
        slower, inconclusive = self.slower(), self.inconclusive()
        if slower:
            takes = "takes" if len(slower) == 1 else "take"
            names = ", ".join(slower[:_NAMED]) + (f" and {len(slower) - _NAMED} more" if len(slower) > _NAMED else "")
            return Decision(Verdict.SLOWER, f"{names} {takes} over {margin} longer after the migration")
        if self._shown.get(None) is False:
            return Decision(Verdict.SLOWER, together)
        verdict = Verdict.FASTER if self._shown.get(None) else self._verdict_if_not_slower(claims)
        if verdict is Verdict.FASTER and inconclusive:
            count = f"{len(inconclusive)} of {of} entry points inconclusive"
            found = Verdict.INCONCLUSIVE if self._strict else Verdict.FASTER
            return Decision(
                found, f"{together}; {count}: the rounds do not show whether they take over {margin} longer"
            )
        if verdict is Verdict.FASTER:
            return Decision(verdict, f"{together}, and no entry point takes over {margin} longer")
        if total.headroom is None:
            return Decision(verdict, together)
        could_save = f"zero-cost loading would save {format_percent(total.headroom)}"
        if verdict is Verdict.MODEL_BOUND:
            return Decision(verdict, f"{could_save}, so no loader can save {format_percent(threshold)}; {together}")
        return Decision(verdict, f"{together}; {could_save}")

    def _open_entry_points(self) -> frozenset[str]:
        """Return the labels of the entry points that need more timings.

        The page docs/verify.md describes when the timing ends.
        """
        if False in self._shown.values():
            return frozenset()
        if self.total is None or not (self._shown.get(None) or self._is_verdict_final(self._lines[None])):
            return frozenset(self.entries)
        if self.total.ratio.high - self.total.ratio.low > 2 * _NARROW:
            return frozenset(self.entries)
        return frozenset(
            label for label in self.inconclusive() if self._strict or self.entries[label].ratio.value > self._slower
        )

    def _is_verdict_final(self, timing: CombinedTiming) -> bool:
        """Return whether the timings prove that the saving is too small, so that more rounds cannot lead to "faster".

        The verdict is then "model-bound" if even zero-cost loading (one batch from memory, again and again) saves too
        little time, else "not shown to be faster". So if zero-cost loading was timed, the result is True only if the
        timings also prove whether zero-cost loading saves enough time.
        """
        return timing.ratio.wholly_above(self._wanted) and (
            timing.zero_cost_ratio is None
            or timing.zero_cost_ratio.wholly_below(self._wanted)
            or timing.zero_cost_ratio.wholly_above(self._wanted)
        )

    def _verdict_if_not_slower(self, timing: CombinedTiming) -> Verdict:
        if timing.ratio.wholly_below(self._wanted):
            return Verdict.FASTER
        # Model-bound: even zero-cost loading would save less than the threshold.
        bound = timing.zero_cost_ratio is not None and timing.zero_cost_ratio.wholly_above(self._wanted)
        return Verdict.MODEL_BOUND if bound else Verdict.NOT_SHOWN


def judge_rounds(rounds: Rounds, threshold: float, margin: float, strict: bool) -> Judge:
    """Return a :class:`Judge` that has run all interim analyses (decision points of the measurement) of ``rounds``.

    The other arguments are the arguments of :class:`Judge`.
    """
    by = Judge(threshold, margin, strict)
    for number, look in enumerate(rounds.looks):
        by.run_interim_analysis(*combine_timings(rounds.made[: look.rounds]), rounds.looks[: number + 1])
    return by


def combine_timings(rounds: Sequence[TimedRound]) -> tuple[CombinedTiming | None, dict[str, CombinedTiming]]:
    """Combine the timings of all rounds, and return ratios (time after / time before the migration).

    Returns:
        Two values. The first value is the timing of all entry points (training functions or scripts) together, or None
        if no entry point was timed in two rounds. The second value is a dictionary: label of an entry point → its
        timing over all rounds.
    """

    def ratios(side: str) -> tuple[Ratio | None, dict[str, Ratio]]:
        pairs = [
            {label: (each.seconds["before"][label], seconds) for label, seconds in each.seconds[side].items()}
            for each in rounds
        ]
        return total_and_entry_ratios(pairs)

    total, entries = ratios("after")
    zero_cost_ratio, each_zero_cost = ratios("cached")
    together = None if total is None else CombinedTiming(total, zero_cost_ratio)
    return together, {label: CombinedTiming(ratio, each_zero_cost.get(label)) for label, ratio in entries.items()}


def _percent(total: Ratio) -> str:
    """Return the saved time with its interval, such as ``34.0 % less time (interval 31.2 to 36.5 %)``."""
    less = [100 * (1 - value) for value in (total.value, total.high, total.low)]
    if less[0] >= 0:
        return f"{less[0]:.1f} % less time (interval {less[1]:.1f} to {less[2]:.1f} %)"
    return f"{-less[0]:.1f} % more time (interval {-less[2]:.1f} to {-less[1]:.1f} %)"
