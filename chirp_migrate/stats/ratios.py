"""Compute ratios of times with confidence intervals, adjust p-values of many tests, and compare two samples.

The times are measured in rounds, each of which measures both times of a ratio once. The interval of a ratio is
Student's confidence interval for the mean of ``log(after / before)`` over all rounds. The interval is exact if these
logarithms have a normal distribution. A bootstrap interval from only a few rounds would be too narrow, because
resampling a few values cannot show the tails of the distribution.
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
"""A difference counts as detectable if the probability that the test finds this difference is at least this value."""


class Ratio(msgspec.Struct, frozen=True):
    """A ratio of two times, such as (time after / time before the migration), with its confidence interval.

    Attributes:
        value: geometric mean of the measured ratios; a value below 1 means faster than before.
        low: lower end of the interval.
        high: upper end of the interval.
        rounds: number of pairs of times from which the ratio was computed.
        mean_log: mean of the natural logarithms of the ratios; None if this value is not known, as in documents of
            early versions of this program.
        error: standard error of ``mean_log``; None if ``mean_log`` is None.
        freedom: degrees of freedom of Student's distribution, from which the interval is computed; None stands for
            ``rounds - 1``.
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
            raise ValueError(
                f"the ratio {self.value} must be above 0 and inside its interval [{self.low}, {self.high}]"
            )

    @property
    def saved(self) -> tuple[float, float, float]:
        """Return the saved share of the time before the migration, with its interval, as (value, low, high).

        The share is negative if the time after the migration is longer.
        """
        return 1 - self.value, 1 - self.high, 1 - self.low

    @property
    def speed_up(self) -> tuple[float, float, float]:
        """Return the speed-up (time before / time after the migration) with its interval, as (value, low, high)."""
        return 1 / self.value, 1 / self.high, 1 / self.low

    def wholly_above(self, bound: float) -> bool:
        """Return whether the whole interval is greater than ``bound``."""
        return self.low > bound

    def wholly_below(self, bound: float) -> bool:
        """Return whether the whole interval is less than or equal to ``bound``."""
        return self.high <= bound

    def at(self, low_error: float, high_error: float) -> Ratio:
        """Return the same ratio with an interval for the given error probabilities.

        Args:
            low_error: probability, 0 to 1, that the true ratio is below the lower end of the interval.
            high_error: probability, 0 to 1, that the true ratio is above the upper end of the interval.
        """
        assert self.mean_log is not None and self.error is not None, "`mean_log` and `error` are missing in the ratio"
        freedom = self.rounds - 1 if self.freedom is None else self.freedom
        down, up = (student_quantile(1 - share, freedom) * self.error for share in (low_error, high_error))
        low, high = (math.exp(min(_FAR, max(-_FAR, end))) for end in (self.mean_log - down, self.mean_log + up))
        return msgspec.structs.replace(self, low=low, high=high)


def paired_ratio(before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Return the ratio (time after / time before) of times that were measured in pairs.

    Args:
        before: seconds before the migration, one value for each measurement.
        after: seconds after the migration, in the same order. Each value was measured together with the value of
            ``before`` at the same index.
        confidence: probability that the interval contains the true ratio, between 0 and 1. The default is 0.95.

    Raises:
        ValueError: there are fewer than two pairs, the two sequences differ in length, or a time is not positive.
    """
    if len(before) != len(after) or len(before) < 2:
        raise ValueError("a ratio with an interval needs two or more pairs of times (before and after the migration)")
    if min(*before, *after) <= 0:
        raise ValueError("each time in seconds must be above 0")
    import numpy as np

    logs = np.log(np.asarray(after, dtype=np.float64) / np.asarray(before, dtype=np.float64))
    mean = float(logs.mean())
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    half = student_quantile(0.5 + confidence / 2, len(logs) - 1) * error
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs), mean, error)


@lru_cache(maxsize=4096)
def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution with ``freedom`` degrees of freedom."""
    from scipy.stats import t  # takes half a second, and most commands need no statistics

    return float(t.ppf(probability, freedom))


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of several tests for the number of tests (Holm 1979).

    A test is significant if its adjusted p-value is at most alpha. The probability of at least one false alarm in all
    tests is then at most alpha.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def ks_p_value(first: ArrayLike, second: ArrayLike) -> float:
    """Return the p-value of the Kolmogorov-Smirnov test of whether two samples have the same distribution.

    The p-value comes from the asymptotic distribution of the test statistic. Equal values (ties) can make the p-value
    too large, but not too small. The p-value can also be too large, but not too small, if value number i of one sample
    depends on value number i of the other sample, for example because both come from the same spectrogram. So ties and
    such pairs can hide a difference, but cannot cause more false alarms.

    Raises:
        ValueError: a sample is empty.
    """
    from scipy.stats import ks_2samp

    return float(ks_2samp(first, second, method="asymp").pvalue)


def detectable_difference(first_count: int, second_count: int, alpha: float) -> float:
    """Return the smallest difference of two distributions that the test :func:`ks_p_value` finds in 9 of 10 cases.

    The difference is the largest distance between the two distribution functions, from 0 to 1. For example, 0.1 means
    that 40 % of the first sample and 50 % of the second sample are below some value. The function assumes that the
    distance is largest near the median. This is the least favourable case, because a share of 0.5 varies most by
    chance. If the samples are too small to find any difference, the result is 1.0.

    Args:
        first_count: number of values in the first sample.
        second_count: number of values in the second sample.
        alpha: limit for the p-value, between 0 and 1. A test with a p-value below this limit finds a difference.
    """
    from scipy.stats import kstwo, norm

    both = first_count * second_count / (first_count + second_count)
    found = float(kstwo.isf(alpha, max(1, round(both)))) + float(norm.ppf(POWER)) * math.sqrt(0.25 / both)
    return min(1.0, found)
