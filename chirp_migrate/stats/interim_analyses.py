"""Plan interim analyses (decision points of a measurement), and compute the error probability of each analysis.

The measurement has rounds, which repeat the same timings.

Each interim analysis gets a share of the total error probability. The power family of spending functions (Kim & DeMets
1987, exponent 1.2) defines these shares. The share is nearly proportional to the number of rounds since the previous
analysis. With a larger exponent, early analyses would get much smaller shares, and their intervals would be very wide.
The reason is that Student's quantiles for a few rounds become very large if the error probability is small. If the time
budget ends the measurement early, the last analysis gets the shares of all analyses that did not take place.

There are two ways to compute the error probability of an analysis from the shares. The first way uses the joint
distribution of all analyses (Lan & DeMets 1983; algorithm of Armitage, McPherson & Rowe 1969). With the first way,
early analyses reduce the power of the last analysis only a little. The joint distribution is exact for means with a
normal distribution. For Student's quantiles, it is a common approximation (Jennison & Turnbull 2000, 4.4). The second
way uses the share of an analysis directly as its error probability. This way gives wider intervals, but is valid for
any dependence between the analyses.
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
"""Probability that the true value is beyond one given end of the interval, over all interim analyses together."""

MIN_ROUNDS = 3
"""Smallest number of rounds that a user may request. A variance from fewer rounds would be too uncertain."""

FIRST_ANALYSIS = 4
"""Number of rounds before the first interim analysis. With an even number, both versions began equally many rounds."""

_GROWTH = 2
"""Factor between the numbers of rounds of two successive analyses."""
_LAST_FACTOR = 1.5
"""The last analysis has at least this many times the rounds of the analysis before it."""
_SPENDING_EXPONENT = 1.2
_FAR = 8.5  # number of standard deviations beyond which the normal distribution is negligible


@dataclass(frozen=True)
class InterimAnalysis:
    """A point of a measurement at which the rounds (repetitions) so far are analysed.

    Attributes:
        rounds: number of rounds that are complete before the analysis.
        share: share of the total error probability that the analysis gets, 0 to 1.
    """

    rounds: int
    share: float


def planned_interim_analyses(max_rounds: int) -> tuple[InterimAnalysis, ...]:
    """Return the interim analyses of a measurement with at most ``max_rounds`` rounds (repetitions).

    Analyses follow rounds 4, 8, 16 and so on, and the last analysis follows round ``max_rounds``. An earlier analysis
    is omitted if the last analysis has less than 1.5 times as many rounds. For example, if ``max_rounds`` is 6, the
    analyses follow rounds 4 and 6; if ``max_rounds`` is 10, rounds 4 and 10.
    """
    max_rounds = max(max_rounds, MIN_ROUNDS)
    counts: list[int] = []
    following = FIRST_ANALYSIS
    # Skip an analysis that would be just before the last analysis, which would then get only a small share.
    while max_rounds >= _LAST_FACTOR * following:
        counts.append(following)
        following *= _GROWTH
    counts.append(max_rounds)
    spent = [0.0, *((count / max_rounds) ** _SPENDING_EXPONENT for count in counts)]
    return tuple(
        InterimAnalysis(count, after - before) for count, before, after in zip(counts, spent, spent[1:], strict=False)
    )


def error_probability_of_last_analysis(analyses: Sequence[InterimAnalysis]) -> float:
    """Return the error probability for the interval of the last analysis, from the joint distribution of all analyses.

    The function assumes that each earlier analysis spends exactly its share of the total error probability. With the
    returned error probability, the last analysis also spends exactly its share.

    Each round adds a value, such as the logarithm of its ratio, to a sum. The function models this sum as a Brownian
    motion that reaches time 1 at the last analysis. For each analysis, the function computes the distribution of this
    sum as points with probabilities. The distribution covers only the cases in which no earlier analysis came to a
    conclusion.
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
    """Return the nodes in [-1, 1] and the weights of a quadrature rule (Gauss-Legendre).

    The densities that are integrated are smooth, so 160 nodes give a precise result.
    """
    from numpy.polynomial.legendre import leggauss

    nodes, weights = leggauss(160)
    return nodes, weights
