"""The schedule of interim analyses, and the error that each of their claims may have.

Looks are few. Each has its share of the errors that all of them together may make, by
the power family of spending functions (Kim & DeMets 1987, exponent 2): little for early looks, most for the last. The
clock may end the rounds early; the last look then has all that is left.

From the share follows the error of a single claim, in two ways. By the joint distribution of the looks (Lan & DeMets
1983; computed as by Armitage, McPherson & Rowe 1969) the last look loses little to those before it; that is exact for
normal means, and applied to Student's quantiles as usual (Jennison & Turnbull 2000, 4.4). Simply adding up is right
however the looks depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # NumPy takes a tenth of a second, and a document that is read needs none
    from numpy.typing import NDArray

__all__ = ["ERROR", "MIN_ROUNDS", "Look", "claim_error", "planned_looks"]

ERROR = 0.025
"""How often an end of an interval may be on the wrong side of the truth, over all looks together."""

MIN_ROUNDS = 3
"""Rounds at the first look: fewer have no useful spread."""

_GROWTH = 1.6
_ROOM = 1.25
_SPENDING = 2.0
_FAR = 8.5  # standard deviations beyond which a normal distribution has nothing


@dataclass(frozen=True)
class Look:
    """One interim analysis of the rounds.

    Attributes:
        rounds: that count so far.
        share: of the errors that all looks together may make, 0 to 1.
    """

    rounds: int
    share: float


def planned_looks(most: int) -> tuple[Look, ...]:
    """Return the interim analyses of up to ``most`` rounds: 3, 5 for 5, and their shares."""
    most = max(most, MIN_ROUNDS)
    counts = [MIN_ROUNDS]
    while counts[-1] < most:
        following = math.ceil(counts[-1] * _GROWTH)
        # A last look soon after another would have little left to err with.
        counts.append(most if most < _ROOM * following else following)
    spent = [0.0, *((count / most) ** _SPENDING for count in counts)]
    return tuple(Look(count, after - before) for count, before, after in zip(counts, spent, spent[1:], strict=False))


def claim_error(looks: Sequence[Look]) -> float:
    """Return how often a claim of the last of these looks may be wrong by itself, so that all keep to their shares.

    The sum of the rounds is a Brownian motion, at time 1 at the last look. Where it is at a look without having passed
    the bound of an earlier one is kept as points with their probabilities.
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
    """Nodes on [-1, 1] and their weights. The densities are smooth, so that few nodes give many digits."""
    from numpy.polynomial.legendre import leggauss

    nodes, weights = leggauss(160)
    return nodes, weights
