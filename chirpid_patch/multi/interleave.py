"""The order in which several loaders take turns: pure functions of lengths, settings, seed and epoch.

The functions use no random generator: weighted turns are hashes of seed, epoch and step. So they are the same on every
machine, independent of the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from chirpid_patch.randomness.keyed_random import fold_in, uniforms

#: The loader's index at each step of an epoch.
Turns = npt.NDArray[np.int64]


class SamplingStrategy(str, Enum):
    """How several loaders take turns.

    SEQUENTIAL: one after the other, in order. ROUND_ROBIN: one batch of each loader in turn. WEIGHTED: in random order,
    with a frequency proportional to the weight of each loader.
    """

    SEQUENTIAL = "sequential"
    ROUND_ROBIN = "round_robin"
    WEIGHTED = "weighted"


@dataclass(frozen=True)
class Interleaving:
    """The turns of several loaders, from the checked settings of a ``MultiDataLoaderConfig``.

    ``steps`` is ``steps_per_epoch`` of the configuration, and ``cycle`` is ``cycle_short_loaders``.
    """

    strategy: SamplingStrategy
    weights: tuple[float, ...]
    cycle: bool
    steps: int | None
    seed: int

    def epoch_steps(self, lengths: Sequence[int | None]) -> int:
        """Return the number of batches of an epoch, as ``len`` of ``MultiDataLoader``.

        Args:
            lengths: number of batches of each loader; None: not known.

        Raises:
            TypeError: a necessary length is not known.
            ValueError: a loader that would be cycled has no batches.
        """
        is_weighted = self.strategy is SamplingStrategy.WEIGHTED
        read = [length for length, weight in zip(lengths, self.weights, strict=True) if weight > 0 or not is_weighted]
        if self.cycle and 0 in read:
            raise ValueError("a loader without batches cannot be cycled: omit it, or do not cycle short loaders")
        if self.cycle and self.steps is not None and self.strategy is not SamplingStrategy.SEQUENTIAL:
            return self.steps
        known = [length for length in read if length is not None]
        if len(known) < len(read):
            raise TypeError(
                "a loader does not know its length: set steps_per_epoch, cycle_short_loaders=True and a "
                "sampling_strategy other than SEQUENTIAL"
            )
        if not self.cycle:
            return sum(known) if self.steps is None else min(self.steps, sum(known))
        if self.steps is not None:
            return self.steps
        return max(known) * len(known) if self.strategy is SamplingStrategy.ROUND_ROBIN else sum(known)

    def turns(self, lengths: Sequence[int | None], epoch: int) -> Turns:
        """Yield the loader of each step of the epoch with this number; raise errors as ``epoch_steps``."""
        steps = self.epoch_steps(lengths)
        known = np.array([length or 0 for length in lengths])  # of those that are read
        loaders = np.arange(len(lengths))
        if self.strategy is SamplingStrategy.WEIGHTED:
            return (
                self._draw_loaders(self.weights, steps, epoch) if self.cycle else self._drawn_once(known, epoch)[:steps]
            )
        if self.strategy is SamplingStrategy.SEQUENTIAL:
            return np.resize(np.repeat(loaders, known), steps)
        if self.cycle:
            return np.resize(loaders, steps)
        rounds = np.concatenate([np.arange(length) for length in known])
        order: Turns = np.repeat(loaders, known)[np.argsort(rounds, kind="stable")]
        return order[:steps]

    def _draw_loaders(self, weights: Sequence[float], steps: int, epoch: int, stage: int = 0) -> Turns:
        """Return ``steps`` loaders drawn with replacement."""
        chances = np.asarray(weights, dtype=np.float64)
        bounds = np.cumsum(chances)
        key = fold_in(np.zeros(1, dtype=np.uint64), self.seed, epoch, stage)
        drawn = np.searchsorted(bounds, uniforms(key, steps)[0] * bounds[-1], side="right")
        # A number just below 1 may be rounded to the upper end.
        within: Turns = np.minimum(drawn, np.flatnonzero(chances)[-1]).astype(np.int64)
        return within

    def _drawn_once(self, lengths: npt.NDArray[np.int64], epoch: int) -> Turns:
        """Return the loaders drawn until each has yielded all its batches; an exhausted loader is not drawn again."""
        left = np.where(np.array(self.weights) > 0, lengths, 0)
        parts: list[Turns] = [np.empty(0, dtype=np.int64)]
        while left.any():
            weights = [weight if count else 0.0 for weight, count in zip(self.weights, left, strict=True)]
            drawn = self._draw_loaders(weights, int(left.sum()), epoch, stage=len(parts) - 1)
            ends = [np.flatnonzero(drawn == index)[count - 1 : count] for index, count in enumerate(left) if count]
            drawn = drawn[: min(int(end[0]) + 1 for end in ends if len(end))]
            left -= np.bincount(drawn, minlength=len(left))
            parts.append(drawn)
        return np.concatenate(parts)
