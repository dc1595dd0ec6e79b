"""The schedule of interim analyses, and the error probability of each conclusion.

Interim analyses are few. Each gets a share of the total error probability, by the power family of spending functions
(Kim & DeMets 1987, exponent 1.2): the share is nearly proportional to the new rounds, because Student's quantiles of a
few rounds rise steeply where the error is small. If the time budget ends the rounds early, the last analysis gets the
rest.

There are two ways to compute the error of a single conclusion from the share. The joint distribution of the analyses
(Lan & DeMets 1983; computed as by Armitage, McPherson & Rowe 1969) costs the last analysis little power. It is exact
for normal means, and applied to Student's quantiles as usual (Jennison & Turnbull 2000, 4.4). The sum of the errors is
valid for any dependence between the analyses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # importing NumPy takes a tenth of a second, and reading a document does not need it
    from numpy.typing import NDArray

__all__ = ["ERROR", "MIN_ROUNDS", "InterimAnalysis", "conclusion_error", "planned_analyses"]

ERROR = 0.025
"""Error probability of an end of an interval, over all interim analyses together."""

MIN_ROUNDS = 3
"""Rounds at the first interim analysis: fewer rounds have no useful spread."""

_GROWTH = 1.6
_ROOM = 1.25
_SPENDING = 1.2
_FAR = 8.5  # standard deviations beyond which the normal distribution is negligible


@dataclass(frozen=True)
class InterimAnalysis:
    """An interim analysis of the rounds.

    Attributes:
        rounds: number of rounds so far.
        share: its share of the total error probability of all analyses, 0 to 1.
    """

    rounds: int
    share: float


def planned_analyses(most: int) -> tuple[InterimAnalysis, ...]:
    """Return the interim analyses of up to ``most`` rounds (after 3 and 5 rounds for 5), with their shares."""
    most = max(most, MIN_ROUNDS)
    counts = [MIN_ROUNDS]
    while counts[-1] < most:
        following = math.ceil(counts[-1] * _GROWTH)
        # A last analysis soon after another would have little error probability left.
        counts.append(most if most < _ROOM * following else following)
    spent = [0.0, *((count / most) ** _SPENDING for count in counts)]
    return tuple(
        InterimAnalysis(count, after - before) for count, before, after in zip(counts, spent, spent[1:], strict=False)
    )


def conclusion_error(looks: Sequence[InterimAnalysis]) -> float:
    """Return the error probability of one conclusion of the last analysis, such that all keep to their shares.

    The sum of the rounds is a Brownian motion, at time 1 at the last analysis. Its distribution at an analysis, if no
    earlier bound was passed, is stored as points with probabilities.
    """
    import numpy as np
    from scipy import optimize, special

    points, weights, before, bound = np.zeros(1), np.ones(1), 0.0, 0.0
    for look in looks:
        time, error = look.rounds / looks[-1].rounds, look.share * ERROR
        spread, scale = math.sqrt(time - before), math.sqrt(time)

        def excess(bound: float) -> float:
            return float(weights @ special.ndtr((points - bound * scale) / spread)) - error  # noqa: B023

        bound = float(optimize.brentq(excess, -_FAR, _FAR))
        nodes, node_weights = _quadrature()
        low, high = -_FAR * scale, bound * scale
        reached = (low + high) / 2 + (high - low) / 2 * nodes
        distances = (reached[:, None] - points[None, :]) / spread
        density = np.exp(-(distances**2) / 2) @ weights / (spread * math.sqrt(2 * math.pi))
        points, weights, before = reached, density * node_weights * (high - low) / 2, time
    return float(special.ndtr(-bound))


@lru_cache(maxsize=1)
def _quadrature() -> tuple[NDArray[Any], NDArray[Any]]:
    """Return nodes on [-1, 1] and their weights.

    The densities are smooth, so a few nodes yield many digits.
    """
    from numpy.polynomial.legendre import leggauss

    nodes, weights = leggauss(160)
    return nodes, weights
