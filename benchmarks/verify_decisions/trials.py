"""Many verifications from one recording: rounds drawn from the pool, decided by the code that `verify` decides with."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chirp_migrate.verify.rounds import CONFIDENCE, TimedRound, take_rounds
from chirp_migrate.verify.session import timings
from chirp_migrate.verify.statistics import paired_ratio, student_quantile
from chirp_migrate.verify.verdict import Verdict, decide, still_open

__all__ = ["THRESHOLD", "Rate", "Tally", "measured_ratio", "run_trials", "spread"]

THRESHOLD = 0.2


@dataclass(frozen=True)
class Rate:
    """How often something happened, with Wilson's 95 % interval (1927).

    Attributes:
        count, of: it happened ``count`` times in ``of`` trials.
    """

    count: int
    of: int

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.count / self.of

    def interval(self) -> tuple[float, float]:
        """Both ends, 0 to 1."""
        z = student_quantile(0.5 + CONFIDENCE / 2, 100_000)  # the normal distribution's to five digits
        middle = (self.share + z * z / (2 * self.of)) / (1 + z * z / self.of)
        half = z * math.sqrt(self.share * (1 - self.share) / self.of + (z / (2 * self.of)) ** 2) / (1 + z * z / self.of)
        return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Tally:
    """What came of the trials of one condition with so many rounds at most.

    Attributes:
        most: rounds at most.
        verdicts: how often each verdict came out.
        covered: how often the interval that was reported held the ratio of the whole pool.
        rounds: mean number of rounds made, the discarded ones included.
        discarded: mean number of rounds discarded.
    """

    most: int
    verdicts: dict[str, int]
    covered: int
    rounds: float
    discarded: float

    @property
    def trials(self) -> int:
        """Number of verifications."""
        return sum(self.verdicts.values())

    def rate(self, verdict: Verdict) -> Rate:
        """How often ``verdict`` came out."""
        return Rate(self.verdicts.get(verdict.text, 0), self.trials)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def measured_ratio(rounds: Sequence[TimedRound]) -> float:
    """Median of the whole pool's ratios after / before: what was really injected, seen through the noise."""
    return statistics.median(_seconds(each, "after") / _seconds(each, "before") for each in rounds)


def run_trials(rounds: Sequence[TimedRound], true_ratio: float, most: int, trials: int, seed: int) -> Tally:
    """Verify ``trials`` times, each time with rounds drawn from the pool with replacement, as many as it asks for.

    The rule decides after each look whether it wants more, discards disturbed rounds and asks for others, just as in
    a real verification; only the time budget is unlimited.
    """
    lot = random.Random(f"{seed}-{most}-{true_ratio}")
    verdicts: Counter[str] = Counter()
    covered, made, discarded = 0, 0, 0
    for _ in range(trials):
        taken = take_rounds(
            lambda _number, _labels: lot.choice(rounds),
            lambda some, confidence: still_open(*timings(some, confidence), THRESHOLD),
            most,
            budget_s=math.inf,
        )
        total, entries = timings(taken.used, taken.confidence)
        verdicts[decide(total, entries, THRESHOLD).verdict.text] += 1
        covered += total.ratio.low <= true_ratio <= total.ratio.high
        made += len(taken.made)
        discarded += taken.discarded
    return Tally(most, dict(verdicts), covered, made / trials, discarded / trials)


def spread(rounds: Sequence[TimedRound]) -> float:
    """Standard deviation of the logarithms of the pool's ratios: the noise of one round."""
    whole = paired_ratio([_seconds(each, "before") for each in rounds], [_seconds(each, "after") for each in rounds])
    return whole.error * math.sqrt(len(rounds))


def _seconds(each: TimedRound, side: str) -> float:
    return sum(each.seconds[side].values())
