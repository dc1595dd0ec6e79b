"""Many verifications of 16 entry points, decided by the code that `verify` decides with. The seconds are simulated."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from chirp_migrate.verify.options import MARGIN
from chirp_migrate.verify.timing.rounds import TimedRound, take_rounds
from chirp_migrate.verify.verdict import Judge, Verdict, timings

__all__ = ["AT_MARGIN", "ENTRY_POINTS", "SCENARIOS", "Rate", "Scenario", "Tally", "made_up", "recorded", "run_trials"]

ENTRY_POINTS = 16
THRESHOLD = 0.2
MOST = 20
_ZERO_COST = 0.3  # time with zero-cost loading / time before
_DRIFT = 0.02  # of the noise of one time, what changes slowly
_DISTURBED = 0.1

#: Logarithms of one verification's noise: (rounds, side, entry point), and the share of the CPUs others used.
Noise = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Scenario:
    """True time ratios after / before of the entry points, which all take as long before."""

    name: str
    ratios: tuple[float, ...]


def _scenarios() -> tuple[Scenario, ...]:
    one_slower = [
        Scenario(f"one {percent} % slower, 15 twice as fast", (1 + percent / 100, *[0.5] * (ENTRY_POINTS - 1)))
        for percent in (5, 10, 20)
    ]
    saved = [Scenario(f"all {percent} % less", (1 - percent / 100,) * ENTRY_POINTS) for percent in (10, 19, 21, 30, 50)]
    return (Scenario("A/A", (1.0,) * ENTRY_POINTS), *one_slower, *saved)


SCENARIOS = _scenarios()
AT_MARGIN = Scenario("one just over 5 % slower, 15 twice as fast", (1 + MARGIN + 1e-6, *[0.5] * (ENTRY_POINTS - 1)))
"""The hardest case for "not slower": one entry point hardly more slower than is told apart from equal."""


@dataclass(frozen=True)
class Rate:
    """How often something happened, with Wilson's 95 % interval.

    Attributes:
        count, of: it happened ``count`` times in ``of`` trials.
    """

    count: int
    of: int

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.count / self.of

    def interval(self) -> tuple[float, float]:
        """Both ends, 0 to 1."""
        ends = binomtest(self.count, self.of).proportion_ci(method="wilson")
        return float(ends.low), float(ends.high)


@dataclass(frozen=True)
class Tally:
    """What came of the trials of one scenario.

    Attributes:
        verdicts: how often each verdict came out.
        rounds: mean number of rounds made.
        unnamed: how often it was called faster without naming an entry point that is slower than the margin allows.
    """

    verdicts: dict[str, int]
    rounds: float
    unnamed: int

    @property
    def unnamed_rate(self) -> Rate:
        """How often an entry point that is slower passed unnamed."""
        return Rate(self.unnamed, sum(self.verdicts.values()))

    def rate(self, *verdicts: Verdict) -> Rate:
        """How often one of these came out."""
        return Rate(sum(self.verdicts.get(each.text, 0) for each in verdicts), sum(self.verdicts.values()))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def made_up(noise: float, drift: float = _DRIFT) -> Noise:
    """Normal noise of one time (standard deviation of its logarithm).

    The machine's speed walks by 3 % from round to round on both sides, ``drift`` of the noise of a side changes slowly
    (correlation 0.5 from round to round), and in one round of ten others use the CPUs and the noise is doubled.
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


def recorded(pool: Sequence[TimedRound]) -> Noise:
    """Noise of recorded rounds: a run of consecutive ones from a random place, the first following the last.

    Each recorded entry point is centred: its mean ratio becomes 1. Entry points beyond the recorded ones take their
    noise from rounds half a recording away.
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


def run_trials(scenario: Scenario, noise: Noise, rounds: int, trials: int, seed: int) -> Tally:
    """Verify so many times with so many rounds of all entry points, at most."""
    rng = np.random.default_rng(seed)
    labels = [f"entry_{number}" for number in range(ENTRY_POINTS)]
    slower = {label for label, ratio in zip(labels, scenario.ratios, strict=True) if ratio > 1 + MARGIN + 1e-7}
    verdicts: Counter[str] = Counter()
    made, unnamed = 0, 0
    for _ in range(trials):
        logs, others = noise(rng)
        before = np.exp(logs[:, 0])
        after = np.exp(logs[:, 1]) * scenario.ratios
        cached = np.exp(logs[:, 1]) * _ZERO_COST

        def make(number: int, some: frozenset[str] | None, _until: float) -> TimedRound:
            columns = [column for column, label in enumerate(labels) if some is None or label in some]
            seconds = {
                side: {labels[column]: float(of[number, column]) for column in columns}
                for side, of in (("before", before), ("after", after), ("cached", cached))  # noqa: B023
            }
            return TimedRound(seconds, float(others[number]), 0.0)  # noqa: B023

        judge = Judge(THRESHOLD)
        taken = take_rounds(make, lambda some, looks: judge.look(*timings(some), looks), rounds, math.inf)  # noqa: B023
        verdict = judge.decide().verdict
        verdicts[verdict.text] += 1
        unnamed += verdict is Verdict.FASTER and not slower <= set(judge.inconclusive())
        made += len(taken.made)
    return Tally(dict(verdicts), made / trials, unnamed)
