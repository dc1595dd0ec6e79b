"""Compute ratios of times with intervals, correct p-values for many tests, and compare two samples.

The interval of a ratio is Student's interval of the logarithms of ``after / before`` in all rounds. The interval is
exact if the logarithms have a normal distribution. A bootstrap interval of only a few rounds would be too narrow,
because resampling five values cannot show the tails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:  # importing NumPy takes a tenth of a second, and reading a document does not need it
    from numpy.typing import ArrayLike

CONFIDENCE = 0.95

_FAR = 500.0  # limit for logarithms, so that `exp` does not overflow

POWER = 0.9
"""A difference counts as detectable if a test finds the difference with this probability."""


class Ratio(msgspec.Struct, frozen=True):
    """A ratio of times, such as time after / time before, with its interval.

    Attributes:
        value: geometric mean over the rounds; a value below 1 means faster.
        low, high: ends of the interval.
        rounds: number of pairs of times.
        mean_log, error: mean of the logarithms, and standard error of the mean; None in documents of early versions.
        freedom: degrees of freedom of Student's distribution for the interval; None for ``rounds - 1``.
    """

    value: float
    low: float
    high: float
    rounds: int = 0
    mean_log: float | None = None
    error: float | None = None
    freedom: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.value <= self.high < math.inf:
            raise ValueError(f"{self.value} in [{self.low}, {self.high}] is not a positive ratio inside its interval")

    @property
    def saved(self) -> tuple[float, float, float]:
        """Return the saved share of the time before, with interval, as (value, low, high).

        The saved share is negative if the time after is longer than the time before.
        """
        return 1 - self.value, 1 - self.high, 1 - self.low

    @property
    def speed_up(self) -> tuple[float, float, float]:
        """Return time before / time after, with interval, as (value, low, high)."""
        return 1 / self.value, 1 / self.high, 1 / self.low

    def wholly_above(self, bound: float) -> bool:
        """Return whether the whole interval is above ``bound``."""
        return self.low > bound

    def wholly_below(self, bound: float) -> bool:
        """Return whether the whole interval is at or below ``bound``."""
        return self.high <= bound

    def at(self, low_error: float, high_error: float) -> Ratio:
        """Return the ratio with an interval for other error probabilities.

        Args:
            low_error: probability, 0 to 1, that the true ratio is below the lower end of the interval.
            high_error: probability, 0 to 1, that the true ratio is above the upper end of the interval.
        """
        assert self.mean_log is not None and self.error is not None, "an early version wrote no `mean_log` and `error`"
        freedom = self.rounds - 1 if self.freedom is None else self.freedom
        down, up = (student_quantile(1 - share, freedom) * self.error for share in (low_error, high_error))
        low, high = (math.exp(min(_FAR, max(-_FAR, end))) for end in (self.mean_log - down, self.mean_log + up))
        return msgspec.structs.replace(self, low=low, high=high)


def paired_ratio(before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Return the ratio of times that were measured in pairs.

    Args:
        before, after: seconds of each round.
        confidence: confidence level of the interval, 0 to 1.

    Raises:
        ValueError: there are fewer than two pairs, the numbers of times differ, or a time is not positive.
    """
    if len(before) != len(after) or len(before) < 2:
        raise ValueError("a ratio with an interval needs the same number of times in both versions, at least two")
    if min(*before, *after) <= 0:
        raise ValueError("times must be positive")
    import numpy as np

    logs = np.log(np.asarray(after, dtype=np.float64) / np.asarray(before, dtype=np.float64))
    mean = float(logs.mean())
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    half = student_quantile(0.5 + confidence / 2, len(logs) - 1) * error
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs), mean, error)


@lru_cache(maxsize=4096)
def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's distribution with ``freedom`` degrees of freedom."""
    from scipy.stats import t  # takes half a second, and most commands need no statistics

    return float(t.ppf(probability, freedom))


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for the number of tests (Holm 1979).

    If every adjusted p-value is compared with a level alpha, the probability of at least one false alarm is at most
    alpha.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def ks_p_value(first: ArrayLike, second: ArrayLike) -> float:
    """Return the p-value of the Kolmogorov-Smirnov test for equal distributions of two samples.

    The p-value comes from the asymptotic distribution of the test. Equal values and pairs of similar values can make
    the p-value too large, but never too small.

    Raises:
        ValueError: a sample is empty.
    """
    from scipy.stats import ks_2samp

    return float(ks_2samp(first, second, method="asymp").pvalue)


def detectable_difference(first_count: int, second_count: int, alpha: float) -> float:
    """Return the smallest difference of two distributions that :func:`ks_p_value` finds in 9 of 10 cases.

    A difference is the change of the share of values (0 to 1) below some point. If the samples are too small to find
    any difference, the result is 1.0. The function assumes that half of the values are below the point, because a share
    of 0.5 varies most by chance.

    Args:
        first_count, second_count: sizes of the two samples.
        alpha: the p-value below which the test finds a difference.
    """
    from scipy.stats import kstwo, norm

    both = first_count * second_count / (first_count + second_count)
    found = float(kstwo.isf(alpha, max(1, round(both)))) + float(norm.ppf(POWER)) * math.sqrt(0.25 / both)
    return min(1.0, found)
