"""Simulated: how often the interval holds the true ratio, for several kinds of noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chirp_migrate.verify.rounds import CONFIDENCE, MIN_ROUNDS, Looks
from chirp_migrate.verify.statistics import student_quantile

__all__ = ["NOISES", "Coverage", "cover"]

Noise = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]


def _astray(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """One process in seven takes 1.2 to 3 times as long, on either side."""

    def side() -> NDArray[np.float64]:
        hit = rng.random(shape) < 0.15
        return rng.normal(0, 0.03, shape) + hit * rng.uniform(math.log(1.2), math.log(3), shape)

    return side() - side()


def _two_speeds(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Each process is either fast or, as often, 10 % slower."""

    def side() -> NDArray[np.float64]:
        return np.where(rng.random(shape) < 0.5, math.log(1.1), 0.0) + rng.normal(0, 0.02, shape)

    return side() - side()


NOISES: dict[str, Noise] = {
    "normal": lambda rng, shape: rng.normal(0, 0.1, shape),
    "heavy tails (Student, 3 degrees)": lambda rng, shape: 0.1 * rng.standard_t(3, shape),
    "bounded (uniform)": lambda rng, shape: rng.uniform(-0.1, 0.1, shape),
    "one process in seven goes astray": _astray,
    "two speeds of a process": _two_speeds,
}
"""Noise in the logarithm of a round's ratio."""


@dataclass(frozen=True)
class Coverage:
    """How often the interval was right.

    Attributes:
        noise: one of :data:`NOISES`.
        looks: rounds and level of each look: the planned ones, then the only look when the budget ends with the
            fewest rounds.
        shares: what the simulation found.
    """

    noise: str
    looks: tuple[tuple[int, float], ...]
    shares: tuple[float, ...]


def cover(most: int, simulations: int, seed: int) -> list[Coverage]:
    """Simulate the interval of every look of a verification with ``most`` rounds at most."""
    planned = Looks(most)
    looks = [
        (rounds, planned.confidence(rounds, last=rounds == most))
        for rounds in range(1, most + 1)
        if rounds == most or planned.due(rounds)
    ]
    looks.append((MIN_ROUNDS, CONFIDENCE))
    found = []
    for name, noise in NOISES.items():
        rng = np.random.default_rng(seed)
        shares = []
        for rounds, level in looks:
            logs = noise(rng, (simulations, rounds))
            error = logs.std(axis=1, ddof=1) / math.sqrt(rounds)
            half = student_quantile(0.5 + level / 2, rounds - 1) * error
            shares.append(float(np.mean(np.abs(logs.mean(axis=1)) <= half)))
        found.append(Coverage(name, tuple(looks), tuple(shares)))
    return found
