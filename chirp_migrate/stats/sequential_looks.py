"""Plan interim analyses (decision points of a measurement), and compute the error probability of each conclusion.

Each interim analysis gets a share of the total error probability, by the power family of spending functions (Kim &
DeMets 1987, exponent 1.2). The share is nearly proportional to the number of new rounds. A much smaller share would
make the interval of an early analysis very wide, because Student's quantiles of a few rounds rise steeply where the
error is small. If the time budget ends the rounds early, the last analysis gets all remaining shares.

The error probability of a conclusion is computed from the shares in one of two ways. The first way uses the joint
distribution of all analyses (Lan & DeMets 1983; algorithm of Armitage, McPherson & Rowe 1969), so that early analyses
cost the last analysis little power. The joint distribution is exact for normal means, and is usually also applied to
Student's quantiles (Jennison & Turnbull 2000, 4.4). The second way uses the share itself as the error probability,
which is valid for any dependence between the analyses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # importing NumPy takes a tenth of a second, and reading a document does not need it
    from numpy.typing import NDArray

ERROR = 0.025
"""Probability that, in any of the interim analyses, the true value is beyond a given end of the interval."""

MIN_ROUNDS = 3
"""Number of rounds before the first interim analysis. The variance of fewer rounds would be too uncertain."""

_GROWTH = 1.6
_ROOM = 1.25
_SPENDING = 1.2
_FAR = 8.5  # number of standard deviations beyond which the normal distribution is negligible


@dataclass(frozen=True)
class InterimAnalysis:
    """An interim analysis of the rounds.

    Attributes:
        rounds: number of rounds before the analysis.
        share: share of the total error probability that the analysis gets, 0 to 1.
    """

    rounds: int
    share: float


def planned_analyses(max_rounds: int) -> tuple[InterimAnalysis, ...]:
    """Return the interim analyses for at most ``max_rounds`` rounds. For 5 rounds: after 3 and after 5 rounds."""
    max_rounds = max(max_rounds, MIN_ROUNDS)
    counts = [MIN_ROUNDS]
    while counts[-1] < max_rounds:
        following = math.ceil(counts[-1] * _GROWTH)
        # If the last analysis followed soon after the previous analysis, the last analysis would get only a small
        # share.
        counts.append(max_rounds if max_rounds < _ROOM * following else following)
    spent = [0.0, *((count / max_rounds) ** _SPENDING for count in counts)]
    return tuple(
        InterimAnalysis(count, after - before) for count, before, after in zip(counts, spent, spent[1:], strict=False)
    )


def last_analysis_error(analyses: Sequence[InterimAnalysis]) -> float:
    """Return the error probability of the last analysis, for which all analyses use up exactly their shares.

    The sum of the rounds' values is a Brownian motion that reaches time 1 at the last analysis. For each analysis, the
    function computes the distribution of the sum as points with probabilities. The distribution contains only the cases
    in which no earlier analysis came to a conclusion.
    """
    import numpy as np
    from scipy import optimize, special

    points, weights, before, bound = np.zeros(1), np.ones(1), 0.0, 0.0
    for look in analyses:
        time, error = look.rounds / analyses[-1].rounds, look.share * ERROR
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
    """Return nodes on [-1, 1] and their weights for numerical integration.

    The densities are smooth, so a few nodes are enough for a precise result.
    """
    from numpy.polynomial.legendre import leggauss

    nodes, weights = leggauss(160)
    return nodes, weights
