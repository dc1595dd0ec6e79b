"""Ratios of two times from pairs in blocks: of each entry point, and of all entry points together.

A block is a round: a pair of processes, in which entry points are timed once in both versions, at nearly the same time.
Effects of a process are the same for all pairs of a round, so only rounds are independent. The interval of the total
uses the spread of rounds alone (a cluster-robust variance, each residual scaled for the mean it was subtracted from;
for rounds with all entry points this is Student's interval of the rounds' totals). An entry point that was timed once
gets the spread of the others. A few rounds are a poor estimate of the spread of one entry point, so the spread of all
entry points is added as if it came from a number of further rounds (a moderated variance, Smyth 2004).

A disturbed minute must not decide: logarithms are clipped to five standard deviations, estimated from medians, around
the median of their entry point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from chirp_migrate.stats.ratios import Ratio

__all__ = ["Pair", "blocked_ratios"]

Pair = tuple[float, float]
"""Seconds before and after."""

_CLIP = 5.0
_BORROWED = 4.0
"""Degrees of freedom of the spread of all entry points in the estimate for each entry point."""
_NORMAL = 1.4826
"""Standard deviation of a normal distribution by its median absolute deviation."""
_FINEST = 1e-3
"""Least spread, as a share of the time: clocks and schedulers are not more precise."""


@dataclass(frozen=True)
class _EntryLogarithms:
    """Logarithms of one entry point's ratios, by round, and their mean."""

    logs: dict[int, float]
    before_s: float

    @property
    def mean(self) -> float:
        return math.fsum(self.logs.values()) / len(self.logs)

    @property
    def squares(self) -> float:
        """Return the sum of squared deviations from the mean."""
        mean = self.mean
        return math.fsum((value - mean) ** 2 for value in self.logs.values())


def blocked_ratios(rounds: Sequence[Mapping[str, Pair]]) -> tuple[Ratio | None, dict[str, Ratio]]:
    """Return ratios after / before, with the data for their intervals.

    Args:
        rounds: for each round, entry point → seconds before and after. Rounds may lack entry points.

    Returns:
        The ratio of the sums over all entry points, and the ratio of each. A ratio is missing if nothing was timed
        twice, because an interval needs a spread.
    """
    labels = list(dict.fromkeys(label for each in rounds for label in each))
    found = {label: {n: each[label] for n, each in enumerate(rounds) if label in each} for label in labels}
    logs = {label: {n: math.log(after / before) for n, (before, after) in of.items()} for label, of in found.items()}
    entries = {
        label: _EntryLogarithms(of, median(before for before, _ in found[label].values()))
        for label, of in _clip_logarithms(logs).items()
    }
    freedom = sum(len(one.logs) - 1 for one in entries.values())
    blocks = {n for one in entries.values() for n in one.logs}
    if not freedom or len(blocks) < 2:
        return None, {}
    pooled = max(math.fsum(one.squares for one in entries.values()) / freedom, _FINEST**2)
    squares = math.fsum(one.squares for one in entries.values())
    each = {}
    for label, one in entries.items():
        of_others = freedom - (len(one.logs) - 1)
        if of_others or len(one.logs) > 1:
            others = max((squares - one.squares) / of_others, _FINEST**2) if of_others else 0.0
            each[label] = _moderate_ratio(one, others, min(_BORROWED, of_others))
    return _ratio_of_sums(list(entries.values()), pooled, len(blocks)), each


def _clip_logarithms(logs: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    middles = {label: median(of.values()) for label, of in logs.items()}
    away = [abs(value - middles[label]) for label, of in logs.items() if len(of) > 2 for value in of.values()]
    if not away:
        return {label: dict(of) for label, of in logs.items()}
    furthest = _CLIP * max(_NORMAL * median(away), _FINEST)
    clipped = {}
    for label, of in logs.items():
        own = _NORMAL * median(abs(value - middles[label]) for value in of.values())
        most = max(furthest, _CLIP * own)
        clipped[label] = {n: middles[label] + min(most, max(-most, value - middles[label])) for n, value in of.items()}
    return clipped


def _moderate_ratio(entry: _EntryLogarithms, others: float, borrowed: float) -> Ratio:
    """Return the ratio of one entry point; ``others`` is the variance of the other entry points."""
    count = len(entry.logs)
    freedom = borrowed + count - 1
    variance = max((borrowed * others + entry.squares) / freedom, _FINEST**2)
    return _ratio(entry.mean, math.sqrt(variance / count), count, freedom)


def _ratio_of_sums(entries: Sequence[_EntryLogarithms], pooled: float, blocks: int) -> Ratio:
    after = [one.before_s * math.exp(one.mean) for one in entries]
    shares = [value / math.fsum(after) for value in after]
    scores: dict[int, float] = {}  # of each round: by how much it moved the total
    once = 0.0
    for share, one in zip(shares, entries, strict=True):
        count = len(one.logs)
        if count == 1:  # it has no spread of its own
            once += share**2 * pooled
            continue
        for n, value in one.logs.items():
            left = (value - one.mean) * math.sqrt(count / (count - 1))
            scores[n] = scores.get(n, 0.0) + share / count * left
    spread = math.fsum(score**2 for score in scores.values()) + once
    log = math.log(math.fsum(after) / math.fsum(one.before_s for one in entries))
    return _ratio(log, max(math.sqrt(spread), _FINEST / math.sqrt(blocks)), blocks, blocks - 1)


def _ratio(log: float, error: float, rounds: int, freedom: float) -> Ratio:
    value = math.exp(log)
    return Ratio(value, value, value, rounds, log, error, None, freedom).at(0.025, 0.025)
