"""The rule by which a configuration is picked; docs/tune.md states it. Pure: rates in, standings out.

The best configuration is the one with the highest mean rate. Every other one is compared with it round by round, which
takes out what slowed both down: the ratio of the two rates of a round, averaged as logarithms, with Student's interval.
A configuration is level with the best if that ratio is at least 0.95. Picked is the smallest that is level: fewest
worker processes, then fewest threads, then fewest batches ahead. Rounds go on until the pick could not well change, or
time is up: the intervals of the pick and of all that is smaller lie wholly on one side of 0.95, and no larger
configuration may be so much faster than the best that the pick would fall below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chirp_migrate.stats.ratios import Ratio, paired_ratio
from chirp_migrate.tune.document import Candidate, Measured, Place

__all__ = ["TOLERANCE", "Standing", "mean_rate", "pick", "settled", "standings", "within"]

TOLERANCE = 0.05
"""Share of the best throughput that a smaller configuration may be short of."""

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Standing:
    """One configuration beside the best.

    Attributes:
        measured: the configuration and its raw values.
        rate: its throughput in samples a second, the geometric mean of the rounds; None where it failed.
        ratio: its rate / the best one's, paired by round; None for the best itself and after a single round.
        place: the outcome.
        settled: whether the interval of ``ratio`` lies wholly on one side of the bound.
    """

    measured: Measured
    rate: Ratio | None
    ratio: Ratio | None
    place: Place
    settled: bool

    @property
    def candidate(self) -> Candidate:
        """The configuration."""
        return self.measured.candidate


def mean_rate(rates: Sequence[float]) -> Ratio:
    """Geometric mean of positive rates, with Student's interval of the mean of their logarithms; of one, no width.

    Raises:
        ValueError: there is none, or one is not positive.
    """
    if not rates or min(rates) <= 0:
        raise ValueError("a mean rate needs at least one rate, all of them positive")
    if len(rates) == 1:
        return Ratio(rates[0], rates[0], rates[0], 1)
    return paired_ratio([1.0] * len(rates), rates, _CONFIDENCE)


def standings(measured: Sequence[Measured]) -> list[Standing]:
    """Each configuration beside the best, in the order given.

    Rounds are paired by their number: one that was given up after some rounds is compared over those, and cannot be the
    best.
    """
    working = [one for one in measured if one.rates and one.error is None]
    rounds = max((len(one.rates) for one in working), default=0)
    to_the_end = [one for one in working if len(one.rates) == rounds]
    best = max(to_the_end, key=lambda one: mean_rate(one.rates).value, default=None)
    return [_standing(one, best) for one in measured]


def _standing(one: Measured, best: Measured | None) -> Standing:
    if best is None or one.error is not None or not one.rates:
        return Standing(one, None, None, Place.FAILED, True)
    rate = mean_rate(one.rates)
    if one is best:
        return Standing(one, rate, None, Place.BEST, True)
    rounds = min(len(one.rates), len(best.rates))
    bound = 1 - TOLERANCE
    if rounds < 2:
        place = Place.LEVEL if one.rates[0] >= bound * best.rates[0] else Place.BELOW
        return Standing(one, rate, None, place, False)
    ratio = paired_ratio(best.rates[:rounds], one.rates[:rounds], _CONFIDENCE)
    place = Place.LEVEL if ratio.value >= bound else Place.BELOW
    return Standing(one, rate, ratio, place, ratio.low >= bound or ratio.high < bound)


def pick(found: Sequence[Standing]) -> Standing | None:
    """The smallest configuration that is the best or level with it; None where all failed."""
    level = [one for one in found if one.place in (Place.BEST, Place.LEVEL)]
    return min(level, key=lambda one: one.candidate.size, default=None)


def settled(found: Sequence[Standing]) -> bool:
    """Whether no further round could well change the pick."""
    chosen = pick(found)
    return chosen is None or all(_is_settled(one, chosen) for one in found)


def _is_settled(one: Standing, chosen: Standing) -> bool:
    if one.place in (Place.BEST, Place.FAILED) or one.settled:
        return True
    larger = one.candidate.size > chosen.candidate.size
    return larger and one.ratio is not None and one.ratio.high < 1 / (1 - TOLERANCE)


def within(measured: Sequence[Measured], most_workers: int) -> list[Measured]:
    """Those with at most so many workers."""
    return [one for one in measured if one.candidate.num_workers <= most_workers]
