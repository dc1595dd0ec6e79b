"""The order in which several loaders take turns.

The order depends only on the lengths of the loaders, the settings, the seed and the epoch. Instead of random
generators, the functions use hashes of seed, epoch and step. So the order is the same on every machine and for any
number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from chirpid_patch.randomness.keyed_random import hash_into_keys, uniform_numbers

#: For each step of an epoch, the index of the loader that yields the batch.
Turns = npt.NDArray[np.int64]


class SamplingStrategy(str, Enum):
    """The order in which several loaders take turns.

    SEQUENTIAL reads all batches of the first loader, then all batches of the second loader, and so on. ROUND_ROBIN
    reads one batch of each loader in turn. WEIGHTED chooses a random loader for each batch, in proportion to the
    weights of the loaders.
    """

    SEQUENTIAL = "sequential"
    ROUND_ROBIN = "round_robin"
    WEIGHTED = "weighted"


@dataclass(frozen=True)
class Interleaving:
    """The checked settings of a ``MultiDataLoaderConfig``. The methods compute the turns of the loaders.

    Attributes:
        strategy: the order in which the loaders take turns.
        weights: weight of each loader.
        cycle: ``cycle_short_loaders`` of the configuration.
        steps: ``steps_per_epoch`` of the configuration.
        seed: seed of the weighted turns.
    """

    strategy: SamplingStrategy
    weights: tuple[float, ...]
    cycle: bool
    steps: int | None
    seed: int

    def epoch_steps(self, lengths: Sequence[int | None]) -> int:
        """Return the number of batches in an epoch (see ``MultiDataLoader.__len__``).

        Args:
            lengths: number of batches of each loader; None for a loader without a length.

        Raises:
            TypeError: the number depends on a loader that has no length.
            ValueError: ``cycle`` is True, and a loader that takes turns has no batches.
        """
        is_weighted = self.strategy is SamplingStrategy.WEIGHTED
        read = [length for length, weight in zip(lengths, self.weights, strict=True) if weight > 0 or not is_weighted]
        if self.cycle and 0 in read:
            raise ValueError("a loader without batches cannot be cycled: omit the loader or cycle_short_loaders")
        if self.cycle and self.steps is not None and self.strategy is not SamplingStrategy.SEQUENTIAL:
            return self.steps
        known = [length for length in read if length is not None]
        if len(known) < len(read):
            raise TypeError(
                "a loader has no length: set steps_per_epoch, cycle_short_loaders=True and a sampling_strategy other "
                "than SEQUENTIAL"
            )
        if not self.cycle:
            return sum(known) if self.steps is None else min(self.steps, sum(known))
        if self.steps is not None:
            return self.steps
        return max(known) * len(known) if self.strategy is SamplingStrategy.ROUND_ROBIN else sum(known)

    def turns(self, lengths: Sequence[int | None], epoch: int) -> Turns:
        """Return the index of the loader for each step of the epoch with the number ``epoch``.

        For ``lengths`` and errors, see ``epoch_steps``.
        """
        steps = self.epoch_steps(lengths)
        known = np.array([length or 0 for length in lengths])  # 0 for unknown lengths is not used below
        loaders = np.arange(len(lengths))
        if self.strategy is SamplingStrategy.WEIGHTED:
            return (
                self._draw_loaders(self.weights, steps, epoch)
                if self.cycle
                else self._draw_until_all_are_read(known, epoch)[:steps]
            )
        if self.strategy is SamplingStrategy.SEQUENTIAL:
            return np.resize(np.repeat(loaders, known), steps)
        if self.cycle:
            return np.resize(loaders, steps)
        rounds = np.concatenate([np.arange(length) for length in known])
        order: Turns = np.repeat(loaders, known)[np.argsort(rounds, kind="stable")]
        return order[:steps]

    def _draw_loaders(self, weights: Sequence[float], steps: int, epoch: int, stage: int = 0) -> Turns:
        """Choose a loader for each of ``steps`` steps, with replacement, and return the indices of the loaders.

        Calls for the same epoch must pass different values of ``stage``, because equal values lead to equal choices.
        """
        chances = np.asarray(weights, dtype=np.float64)
        bounds = np.cumsum(chances)
        key = hash_into_keys(np.zeros(1, dtype=np.uint64), self.seed, epoch, stage)
        drawn = np.searchsorted(bounds, uniform_numbers(key, steps)[0] * bounds[-1], side="right")
        # Rounding may turn a number just below 1 into 1, and no loader has this number.
        within: Turns = np.minimum(drawn, np.flatnonzero(chances)[-1]).astype(np.int64)
        return within

    def _draw_until_all_are_read(self, lengths: npt.NDArray[np.int64], epoch: int) -> Turns:
        """Choose loaders until every loader has yielded all its batches, and return the indices of the chosen loaders.

        A loader without further batches is not chosen again.
        """
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
