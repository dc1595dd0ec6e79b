"""Simulate the times of many verifications of 16 entry points, and decide each with the code of `verify`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from chirp_migrate.verify.options import MARGIN
from chirp_migrate.verify.timing.rounds import TimedRound, run_rounds
from chirp_migrate.verify.verdict import Judge, Verdict, combine_timings

__all__ = [
    "AT_MARGIN",
    "ENTRY_POINTS",
    "SCENARIOS",
    "Rate",
    "Tally",
    "recorded_noise",
    "run_trials",
    "synthetic_noise",
]

ENTRY_POINTS = 16
THRESHOLD = 0.2
MOST = 20
_ZERO_COST = 0.3  # time with zero-cost loading / time before
_DRIFT = 0.02  # share of the noise of one time that changes slowly
_DISTURBED = 0.1

#: Logarithms of a verification's noise, of shape (rounds, versions, entry points), and CPU shares of other processes.
Noise = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def _ratios(first: float, others: float | None = None) -> tuple[float, ...]:
    return (first, *[first if others is None else others] * (ENTRY_POINTS - 1))


#: Name of a simulated migration in the tables → true ratio of times (after / before) of each entry point. Before the
#: migration, all entry points take equally long.
SCENARIOS = {
    "A/A": _ratios(1.0),
    **{f"one {percent} % slower, 15 twice as fast": _ratios(1 + percent / 100, 0.5) for percent in (5, 10, 20)},
    **{f"all {percent} % less": _ratios(1 - percent / 100) for percent in (10, 19, 21, 30, 50)},
}
AT_MARGIN = _ratios(1 + MARGIN + 1e-6, 0.5)
"""The hardest case for the decision "not slower": one entry point is slower by just more than the margin."""


@dataclass(frozen=True)
class Rate:
    """How often an event occurred, with Wilson's 95 % interval.

    Attributes:
        count: number of trials in which the event occurred.
        of: number of all trials.
    """

    count: int
    of: int

    @property
    def share(self) -> float:
        """Return the share of trials, 0 to 1."""
        return self.count / self.of

    def interval(self) -> tuple[float, float]:
        """Return both ends of the interval, 0 to 1."""
        ends = binomtest(self.count, self.of).proportion_ci(method="wilson")
        return float(ends.low), float(ends.high)


@dataclass(frozen=True)
class Tally:
    """The results of the trials of one scenario.

    Attributes:
        verdicts: verdict → number of trials.
        rounds: mean number of rounds.
        unnamed: number of trials with the verdict *faster*, and with a slower entry point that the report does not
            name.
    """

    verdicts: dict[str, int]
    rounds: float
    unnamed: int

    @property
    def unnamed_rate(self) -> Rate:
        """Return how often a slower entry point was not named."""
        return Rate(self.unnamed, sum(self.verdicts.values()))

    def rate(self, *verdicts: Verdict) -> Rate:
        """Return how often one of these verdicts occurred."""
        return Rate(sum(self.verdicts.get(each.text, 0) for each in verdicts), sum(self.verdicts.values()))


def synthetic_noise(noise: float, drift: float = _DRIFT) -> Noise:
    """Return a function that draws normal noise for a verification.

    The speed of the machine changes by 3 % from round to round, equally in both versions. In one of ten rounds, other
    processes use the CPUs, and the noise is doubled.

    Args:
        noise: standard deviation of the logarithm of one time.
        drift: standard deviation of the part of the noise that changes slowly (correlation 0.5 from round to round).
    """

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        rounds = 2 * MOST + 8
        others = np.where(rng.random(rounds) < _DISTURBED, 0.3, 0.01)
        shape = (rounds, 2, ENTRY_POINTS)
        white = rng.normal(0, math.sqrt(noise**2 - drift**2), shape) * np.where(others > 0.1, 2.0, 1.0)[:, None, None]
        slow = rng.normal(0, drift, shape)
        for number in range(1, rounds):
            slow[number] = 0.5 * slow[number - 1] + math.sqrt(0.75) * slow[number]
        speed = np.cumsum(rng.normal(0, 0.03, rounds))[:, None, None]
        return white + slow + speed, others

    return draw


def recorded_noise(pool: Sequence[TimedRound]) -> Noise:
    """Return a function that draws the noise of recorded rounds.

    The function draws consecutive rounds from a random position. After the last recorded round, it continues with the
    first round. The mean ratio of each recorded entry point is divided out. If a verification has more entry points
    than the recording, the other entry points use the noise of rounds half a recording away.
    """
    labels = sorted(pool[0].seconds["before"])
    logs = np.log([[[each.seconds[side][label] for label in labels] for side in ("before", "after")] for each in pool])
    logs -= logs.mean(axis=0)
    others = np.array([each.others or 0.0 for each in pool])

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        numbers = (rng.integers(len(pool)) + np.arange(2 * MOST + 8)) % len(pool)
        both = np.concatenate([logs[numbers], logs[(numbers + len(pool) // 2) % len(pool)]], axis=2)
        columns = np.concatenate([rng.permutation(len(labels)), len(labels) + rng.permutation(len(labels))])
        return both[:, :, columns[:ENTRY_POINTS]], others[numbers]

    return draw


def run_trials(ratios: tuple[float, ...], noise: Noise, rounds: int, trials: int, seed: int) -> Tally:
    """Run ``trials`` verifications with at most ``rounds`` rounds of all entry points, and count the results."""
    rng = np.random.default_rng(seed)
    labels = [f"entry_{number}" for number in range(ENTRY_POINTS)]
    slower = {label for label, ratio in zip(labels, ratios, strict=True) if ratio > 1 + MARGIN + 1e-7}
    verdicts: Counter[str] = Counter()
    made, unnamed = 0, 0
    for _ in range(trials):
        logs, others = noise(rng)
        before = np.exp(logs[:, 0])
        after = np.exp(logs[:, 1]) * ratios
        cached = np.exp(logs[:, 1]) * _ZERO_COST

        def make(number: int, some: frozenset[str] | None, _until: float) -> TimedRound:
            columns = [column for column, label in enumerate(labels) if some is None or label in some]
            seconds = {
                side: {labels[column]: float(of[number, column]) for column in columns}
                for side, of in (("before", before), ("after", after), ("cached", cached))  # noqa: B023
            }
            return TimedRound(seconds, float(others[number]), 0.0)  # noqa: B023

        judge = Judge(THRESHOLD)
        taken = run_rounds(
            make,
            lambda some, looks: judge.run_interim_analysis(*combine_timings(some), looks),  # noqa: B023
            rounds,
            math.inf,
        )
        verdict = judge.decide().verdict
        verdicts[verdict.text] += 1
        unnamed += verdict is Verdict.FASTER and not slower <= set(judge.inconclusive())
        made += len(taken.made)
    return Tally(dict(verdicts), made / trials, unnamed)
