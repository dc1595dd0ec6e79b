"""In which order several loaders take their turns: pure functions of lengths, settings, seed and epoch (R-001).

Nothing here draws from a random generator: weighted turns are hashes of seed, epoch and step, the same on every
machine and whatever the workers do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from chirpid_patch.randomness.keyed_random import derive, uniforms

#: The loader's index at each step of an epoch.
Turns = npt.NDArray[np.int64]


class SamplingStrategy(str, Enum):
    """How several loaders take turns.

    SEQUENTIAL: one after the other, in order.
    ROUND_ROBIN: a batch of each in turn.
    WEIGHTED: drawn at random, each loader as often as its weight says.
    ALTERNATING: in a pattern that repeats, such as two batches of the first and one of the second.
    """

    SEQUENTIAL = "sequential"
    ROUND_ROBIN = "round_robin"
    WEIGHTED = "weighted"
    ALTERNATING = "alternating"


@dataclass(frozen=True)
class Interleaving:
    """Which loader has its turn when.

    Attributes:
        strategy: how turns are taken.
        weights: for WEIGHTED, how often each loader is drawn, in any unit. One of weight 0 is not read.
        pattern: for ALTERNATING, loaders by index, such as (0, 0, 1). One that is not in it is not read.
        cycle: loaders that are used up begin again, until the epoch is over.
        steps: batches of an epoch; None as ``epoch_steps`` says.
        seed: of the weighted draws.
    """

    strategy: SamplingStrategy
    weights: tuple[float, ...]
    pattern: tuple[int, ...]
    cycle: bool
    steps: int | None
    seed: int

    def shares(self) -> list[float]:
        """How often each loader has its turn, adding up to 1, while none is used up; equal for SEQUENTIAL."""
        counts: Sequence[float] = [1.0] * len(self.weights)
        if self.strategy is SamplingStrategy.WEIGHTED:
            counts = self.weights
        elif self.strategy is SamplingStrategy.ALTERNATING:
            counts = [float(self.pattern.count(index)) for index in range(len(self.weights))]
        return [count / math.fsum(counts) for count in counts]

    def epoch_steps(self, lengths: Sequence[int | None]) -> int:
        """Batches of an epoch of loaders so long (None: not known).

        Without ``cycle`` every batch once, and ``steps`` at most. With it, ``steps``; where these are not given,
        ROUND_ROBIN and ALTERNATING repeat their pattern until every loader was read to its end at least once, and
        SEQUENTIAL and WEIGHTED take as many steps as there are batches.

        Raises:
            TypeError: the lengths do not tell.
            ValueError: a loader that would be read again and again has no batches.
        """
        read = [length for length, share in zip(lengths, self.shares(), strict=True) if share > 0]
        if self.cycle and 0 in read:
            raise ValueError("a loader without batches cannot be cycled: leave it out, or do not cycle short loaders")
        if self.cycle and self.steps is not None and self.strategy is not SamplingStrategy.SEQUENTIAL:
            return self.steps
        known = [length for length in read if length is not None]
        if len(known) < len(read):
            raise TypeError(
                "a loader does not know its length: set steps_per_epoch, cycle_short_loaders=True and a "
                "sampling_strategy other than SEQUENTIAL"
            )
        if self.cycle and self.steps is not None:
            return self.steps
        if self.cycle and self.strategy in (SamplingStrategy.ROUND_ROBIN, SamplingStrategy.ALTERNATING):
            pattern = self._pattern()
            lasting = _known(lengths)
            return max(math.ceil(lasting[index] / pattern.count(index)) for index in pattern) * len(pattern)
        return sum(known) if self.steps is None else min(self.steps, sum(known))

    def turns(self, lengths: Sequence[int | None], epoch: int) -> Turns:
        """The loader of each step of the epoch with this number. Raises as ``epoch_steps``."""
        steps = self.epoch_steps(lengths)
        if self.strategy is SamplingStrategy.WEIGHTED:
            return self._drawn(steps, epoch) if self.cycle else self._drawn_once(_known(lengths), epoch)[:steps]
        if self.strategy is SamplingStrategy.SEQUENTIAL:
            return np.resize(np.repeat(np.arange(len(lengths)), _known(lengths)), steps)
        if self.cycle:
            return np.resize(np.array(self._pattern(), dtype=np.int64), steps)
        return self._pattern_once(_known(lengths))[:steps]

    def _pattern(self) -> tuple[int, ...]:
        return self.pattern if self.strategy is SamplingStrategy.ALTERNATING else tuple(range(len(self.weights)))

    def _pattern_once(self, lengths: Sequence[int]) -> Turns:
        """The pattern repeated, without the turns of loaders that are used up."""
        pattern = self._pattern()
        loaders, places = [], []
        for index in sorted(set(pattern)):
            slots = np.flatnonzero(np.array(pattern) == index)
            batch = np.arange(lengths[index])
            loaders.append(np.full(lengths[index], index, dtype=np.int64))
            places.append(batch // len(slots) * len(pattern) + slots[batch % len(slots)])
        return np.concatenate(loaders)[np.argsort(np.concatenate(places))]

    def _drawn(self, steps: int, epoch: int, weights: Sequence[float] | None = None, stage: int = 0) -> Turns:
        """``steps`` loaders drawn with replacement."""
        chances = np.asarray(self.weights if weights is None else weights, dtype=np.float64)
        bounds = np.cumsum(chances)
        key = derive(np.zeros(1, dtype=np.uint64), self.seed, epoch, stage)
        drawn = np.searchsorted(bounds, uniforms(key, steps)[0] * bounds[-1], side="right")
        # A number just below 1 may be rounded to the upper end.
        within: Turns = np.minimum(drawn, np.flatnonzero(chances)[-1]).astype(np.int64)
        return within

    def _drawn_once(self, lengths: Sequence[int], epoch: int) -> Turns:
        """Loaders drawn until each has given its batches; one that is used up is drawn no longer."""
        left = np.array([length if weight > 0 else 0 for length, weight in zip(lengths, self.weights, strict=True)])
        parts: list[Turns] = []
        while left.any():
            weights = [weight if count else 0.0 for weight, count in zip(self.weights, left, strict=True)]
            drawn = self._drawn(int(left.sum()), epoch, weights, stage=len(parts))
            ends = [np.flatnonzero(drawn == index)[count - 1 : count] for index, count in enumerate(left) if count]
            drawn = drawn[: min(int(end[0]) + 1 for end in ends if len(end))]
            left -= np.bincount(drawn, minlength=len(left))
            parts.append(drawn)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _known(lengths: Sequence[int | None]) -> list[int]:
    """Lengths of loaders that are read; of others, which may not know theirs, 0."""
    return [length or 0 for length in lengths]
