"""Compute the ratio (time after / time before the migration) of each entry point, and of the total time.

An entry point is a training function or script. The times come from rounds. In each round, two processes run at nearly
the same time. One process trains the version before the migration, and the other process trains the migrated version.
Each process times each entry point at most once. A slow process slows down all entry points of its round, so only
different rounds are independent. The interval of the total ratio therefore uses the variance between rounds. This
variance is cluster-robust: the difference between each logarithm and the mean of its entry point is multiplied by
``sqrt(n / (n - 1))``, where n is the number of rounds that timed the entry point. If every round times all entry
points, each round has one value, which is the mean of the logarithms of its ratios, weighted by the share of each entry
point in the total time. The interval is then Student's interval for the mean of these values. If an entry point was
timed only once, its own variance is unknown. The module then uses the variance of the other entry points.

With few rounds, the variance of a single entry point is a poor estimate. The module therefore combines this variance
with the variance of all other entry points. The variance of the other entry points has the weight that four additional
rounds of this entry point would have, or a smaller weight if the other entry points have few rounds (a moderated
variance, Smyth 2004).

To limit the effect of outliers, the module clips the logarithm of each ratio to at most five standard deviations from
the median of the entry point. The median absolute deviation estimates this standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from chirp_migrate.stats.ratios import Ratio

Pair = tuple[float, float]
"""Seconds of the same entry point before and after the migration."""

_CLIP = 5.0
_BORROWED = 4.0
"""Largest weight of the other entry points' variance in the variance of one entry point, in degrees of freedom."""
_NORMAL = 1.4826
"""Factor from the median absolute deviation to the standard deviation of a normal distribution."""
_FINEST = 1e-3
"""Smallest standard deviation of a time, as a share of this time. Clocks and schedulers are not more precise."""


@dataclass(frozen=True)
class _EntryLogarithms:
    """The logarithms of the time ratios of one entry point (a training function or script).

    Attributes:
        logs: dictionary, number of a round of the measurement → natural logarithm of (time after / time before the
            migration) in this round.
        before_s: median of the times before the migration, in seconds.
    """

    logs: dict[int, float]
    before_s: float

    @property
    def mean(self) -> float:
        return math.fsum(self.logs.values()) / len(self.logs)

    @property
    def squares(self) -> float:
        """Return the sum of the squared differences between the logarithms of the time ratios and their mean."""
        mean = self.mean
        return math.fsum((value - mean) ** 2 for value in self.logs.values())


def total_and_entry_ratios(rounds: Sequence[Mapping[str, Pair]]) -> tuple[Ratio | None, dict[str, Ratio]]:
    """Return the ratios (time after / time before the migration), with their intervals.

    Args:
        rounds: one dictionary for each round of the measurement: label of an entry point (training function or script)
            → (seconds before, seconds after the migration). An entry point may be missing in some rounds.

    Returns:
        The ratio of the total times of all entry points, and a dictionary with the ratio of each entry point. If no
        entry point was timed in at least two rounds, the result is ``(None, {})``, because one round has no variance.
    """
    labels = list(dict.fromkeys(label for each in rounds for label in each))
    found = {label: {n: each[label] for n, each in enumerate(rounds) if label in each} for label in labels}
    logs = {label: {n: math.log(after / before) for n, (before, after) in of.items()} for label, of in found.items()}
    entries = {
        label: _EntryLogarithms(of, median(before for before, _ in found[label].values()))
        for label, of in _clip_logarithms(logs).items()
    }
    freedom = sum(len(one.logs) - 1 for one in entries.values())
    if not freedom:
        return None, {}
    squares = math.fsum(one.squares for one in entries.values())
    pooled = max(squares / freedom, _FINEST**2)
    each = {}
    for label, one in entries.items():
        of_others = freedom - (len(one.logs) - 1)
        others = max((squares - one.squares) / of_others, _FINEST**2) if of_others else 0.0
        each[label] = _moderate_ratio(one, others, min(_BORROWED, of_others))
    blocks = {n for one in entries.values() for n in one.logs}
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
    """Return the ratio of one entry point, with an interval from the moderated variance.

    Args:
        entry: the logarithms of the entry point.
        others: variance of the logarithms around their means, over all other entry points.
        borrowed: weight of ``others`` in the moderated variance, in degrees of freedom. With a weight of 4, ``others``
            has as much influence as 4 additional rounds of the entry point.
    """
    count = len(entry.logs)
    freedom = borrowed + count - 1
    variance = max((borrowed * others + entry.squares) / freedom, _FINEST**2)
    return _ratio(entry.mean, math.sqrt(variance / count), count, freedom)


def _ratio_of_sums(entries: Sequence[_EntryLogarithms], pooled: float, blocks: int) -> Ratio:
    after = [one.before_s * math.exp(one.mean) for one in entries]
    shares = [value / math.fsum(after) for value in after]
    scores: dict[int, float] = {}  # number of a round → effect of the round on the logarithm of the total
    once = 0.0
    for share, one in zip(shares, entries, strict=True):
        count = len(one.logs)
        if count == 1:  # a single time has no variance
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
    return Ratio(value, value, value, rounds, log, error, freedom).at(0.025, 0.025)
