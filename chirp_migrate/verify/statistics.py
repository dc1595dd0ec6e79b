"""From seconds to statements: ratios with an interval, corrections for many questions, two-sample tests.

A ratio is judged on the logarithms of the rounds' paired ratios ``after / before``. With the few rounds that a
user waits for, a bootstrap interval is too narrow (resampling five values cannot show the tails), so the interval
is Student's, which is exact for normal logarithms. Nothing here looks at a result to decide when to stop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["Ratio", "holm", "ks_p_value", "paired_ratio", "student_cdf", "student_quantile"]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """A time ratio after / before: below 1 is faster.

    Attributes:
        value: geometric mean over the rounds.
        low, high: ends of the confidence interval.
        rounds: number of pairs.
        mean_log: mean of the logarithms.
        error: standard error of ``mean_log``.
        confidence: level of the interval, 0 to 1.
    """

    value: float
    low: float
    high: float
    rounds: int
    mean_log: float
    error: float
    confidence: float = CONFIDENCE

    def wholly_above(self, bound: float) -> bool:
        """Whether the whole interval lies above ``bound``."""
        return self.low > bound

    def wholly_below(self, bound: float) -> bool:
        """Whether the whole interval lies at or below ``bound``."""
        return self.high <= bound

    def p_above(self, bound: float) -> float:
        """One-sided p-value for "the ratio is not above ``bound``"; small means it is above."""
        distance = self.mean_log - math.log(bound)
        if self.error == 0.0:
            return 0.0 if distance > 0 else 1.0
        return 1.0 - student_cdf(distance / self.error, self.rounds - 1)


def paired_ratio(before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Ratio of paired times (seconds, one of each per round).

    Args:
        confidence: level of the interval.

    Raises:
        ValueError: fewer than two pairs, unequal numbers, or a time that is not positive.
    """
    if len(before) != len(after) or len(before) < 2:
        raise ValueError("a ratio with an interval needs the same number of times on both sides, at least two")
    if min(*before, *after) <= 0:
        raise ValueError("times must be positive")
    logs = np.log(np.asarray(after, dtype=np.float64) / np.asarray(before, dtype=np.float64))
    mean = float(logs.mean())
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    half = student_quantile(0.5 + confidence / 2, len(logs) - 1) * error
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs), mean, error, confidence)


def student_cdf(t: float, freedom: int) -> float:
    """Distribution function of Student's t for whole degrees of freedom (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    if freedom < 1:
        raise ValueError("Student's distribution needs at least one degree of freedom")
    theta = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(theta)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    inside = math.sin(theta) * total  # probability between -t and t, for even degrees of freedom
    if odd:
        inside = 2 / math.pi * (theta + inside)
    return 0.5 + inside / 2


@lru_cache(maxsize=1024)
def student_quantile(probability: float, freedom: int) -> float:
    """The t below which ``probability`` (0.5 to just under 1) lies, by bisection."""
    if not 0.5 <= probability < 1:
        raise ValueError("probability must be at least 0.5 and below 1")
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, freedom) < probability else (low, middle)
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979): comparing each to alpha keeps the chance of any false alarm below alpha."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def ks_p_value(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sample Kolmogorov-Smirnov test: p-value for "both samples come from one distribution".

    The limiting distribution is used (Smirnov 1948). Ties, and samples that come in similar pairs, as the same
    spectrograms on both sides do, make the p-value too large, never too small.

    Raises:
        ValueError: a sample is empty.
    """
    a, b = np.sort(np.asarray(first, dtype=np.float64)), np.sort(np.asarray(second, dtype=np.float64))
    if len(a) == 0 or len(b) == 0:
        raise ValueError("the Kolmogorov-Smirnov test needs two samples that are not empty")
    points = np.concatenate([a, b])
    share_a = np.searchsorted(a, points, side="right") / len(a)
    share_b = np.searchsorted(b, points, side="right") / len(b)
    distance = float(np.abs(share_a - share_b).max())
    x = distance * math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    if x < 0.2:  # the series below needs many terms here, and the probability is 1 to twelve digits
        return 1.0
    terms = [math.copysign(math.exp(-2 * (k * x) ** 2), 1 if k % 2 else -1) for k in range(1, 101)]
    return min(1.0, max(0.0, 2 * math.fsum(terms)))
