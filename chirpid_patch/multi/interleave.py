"""The order in which several loaders take turns.

The order depends only on the lengths of the loaders, the settings, the seed and the epoch. A random order is computed
from hashes of seed, epoch and step, without random generators. So the order is the same on every machine and for any
number of workers.
"""

from __future__ import annotations

import math
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
    reads one batch of each loader in turn. WEIGHTED chooses a random loader for each batch, with probabilities in
    proportion to the weights of the loaders.
    """

    SEQUENTIAL = "sequential"
    ROUND_ROBIN = "round_robin"
    WEIGHTED = "weighted"


@dataclass
class MultiDataLoaderConfig:
    """The settings of a ``MultiDataLoader``.

    Attributes:
        sampling_strategy: the order in which the loaders take turns: a ``SamplingStrategy`` or its value, such as
            "weighted".
        dataloader_weights: for WEIGHTED, the weight of each loader. The probability of a loader is proportional to its
            weight. A loader with the weight 0 is not read. None: all loaders have the same weight.
        dataloader_names: the name of each loader; None: "loader_0", "loader_1", …. Names must be different.
        cycle_short_loaders: whether a loader without further batches starts again. If the loader shuffles, the order is
            then new. The epoch ends after as many batches as ``MultiDataLoader.__len__`` returns. If False, each batch
            of a loader occurs once in an epoch, unless ``steps_per_epoch`` ends the epoch earlier, or the loader has
            the weight 0 with WEIGHTED.
        steps_per_epoch: number of batches in an epoch. With None, the lengths of the loaders determine this number (see
            ``MultiDataLoader.__len__``).
        seed: seed of the random turns of WEIGHTED. Each epoch has different turns.
    """

    sampling_strategy: SamplingStrategy | str = SamplingStrategy.SEQUENTIAL
    dataloader_weights: Sequence[float] | None = None
    dataloader_names: Sequence[str] | None = None
    cycle_short_loaders: bool = False
    steps_per_epoch: int | None = None
    seed: int = 0

    def names(self, count: int) -> list[str]:
        """Return the names of ``count`` loaders.

        Raises:
            ValueError: the number of names is not ``count``, or two names are equal.
        """
        if self.dataloader_names is None:
            return [f"loader_{index}" for index in range(count)]
        names = list(self.dataloader_names)
        if len(names) != count:
            raise ValueError(f"dataloader_names has {len(names)} names for {count} loaders: pass one name per loader")
        if len(set(names)) < count:
            raise ValueError(f"dataloader_names contains a name twice: {', '.join(names)}")
        return names

    def _checked(self, count: int) -> tuple[SamplingStrategy, tuple[float, ...]]:
        """Return the strategy, and the weights of ``count`` loaders.

        Raises:
            ValueError: a setting is out of range, or the number of weights is not ``count``.
        """
        try:
            strategy = SamplingStrategy(self.sampling_strategy)
        except ValueError:
            known = ", ".join(repr(one.value) for one in SamplingStrategy)
            raise ValueError(f"sampling_strategy is {self.sampling_strategy!r}: use one of {known}") from None
        given = [1.0] * count if self.dataloader_weights is None else self.dataloader_weights
        weights = tuple(float(weight) for weight in given)
        if len(weights) != count:
            raise ValueError(
                f"dataloader_weights has {len(weights)} weights for {count} loaders: pass one weight per loader"
            )
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
            raise ValueError(f"all dataloader_weights must be 0 or more, and one above 0, not {list(weights)}")
        if self.steps_per_epoch is not None and self.steps_per_epoch < 1:
            raise ValueError(f"steps_per_epoch must be 1 or more, or None, not {self.steps_per_epoch}")
        return strategy, weights

    def epoch_steps(self, lengths: Sequence[int | None]) -> int:
        """Return the number of batches in an epoch (see ``MultiDataLoader.__len__``).

        Args:
            lengths: number of batches of each loader; None for a loader without a length.

        Raises:
            TypeError: the number of batches depends on a loader that has no length.
            ValueError: a setting is out of range or does not fit the number of loaders. The error also occurs if
                ``cycle_short_loaders`` is True and a loader has no batches. With WEIGHTED, loaders with the weight 0
                may have no batches.
        """
        strategy, weights = self._checked(len(lengths))
        steps, cycle, may_skip = self.steps_per_epoch, self.cycle_short_loaders, strategy is SamplingStrategy.WEIGHTED
        read = [length for length, weight in zip(lengths, weights, strict=True) if weight > 0 or not may_skip]
        if cycle and 0 in read:
            raise ValueError(
                "a loader without batches cannot be repeated (cycle_short_loaders=True): omit the loader, or pass "
                "cycle_short_loaders=False"
            )
        if cycle and steps is not None and strategy is not SamplingStrategy.SEQUENTIAL:
            return steps
        known = [length for length in read if length is not None]
        if len(known) < len(read):
            raise TypeError(
                "a loader has no length: set steps_per_epoch, cycle_short_loaders=True and a sampling_strategy other "
                "than SEQUENTIAL"
            )
        if not cycle:
            return sum(known) if steps is None else min(steps, sum(known))
        if steps is not None:
            return steps
        return max(known) * len(known) if strategy is SamplingStrategy.ROUND_ROBIN else sum(known)

    def turns(self, lengths: Sequence[int | None], epoch: int) -> Turns:
        """Return the index of the loader for each step of the epoch with the number ``epoch``.

        ``lengths`` and the errors are the same as for ``epoch_steps``.
        """
        steps, (strategy, weights) = self.epoch_steps(lengths), self._checked(len(lengths))
        known = np.array([length or 0 for length in lengths])  # 0 for unknown lengths is not used below
        loaders = np.arange(len(lengths))
        if strategy is SamplingStrategy.WEIGHTED:
            return (
                self._draw_loaders(weights, steps, epoch)
                if self.cycle_short_loaders
                else self._draw_until_all_are_read(weights, known, epoch)[:steps]
            )
        if strategy is SamplingStrategy.SEQUENTIAL:
            return np.resize(np.repeat(loaders, known), steps)
        if self.cycle_short_loaders:
            return np.resize(loaders, steps)
        rounds = np.concatenate([np.arange(length) for length in known])
        order: Turns = np.repeat(loaders, known)[np.argsort(rounds, kind="stable")]
        return order[:steps]

    def _draw_loaders(self, weights: Sequence[float], steps: int, epoch: int, stage: int = 0) -> Turns:
        """Choose ``steps`` loaders at random, with replacement, and return the indices of the loaders.

        Calls for the same epoch must pass different values of ``stage``, because equal values lead to equal choices.
        """
        chances = np.asarray(weights, dtype=np.float64)
        bounds = np.cumsum(chances)
        key = hash_into_keys(np.zeros(1, dtype=np.uint64), self.seed, epoch, stage)
        drawn = np.searchsorted(bounds, uniform_numbers(key, steps)[0] * bounds[-1], side="right")
        # Rounding may turn a random number just below 1 into 1, and the result would then be no index of a loader.
        within: Turns = np.minimum(drawn, np.flatnonzero(chances)[-1]).astype(np.int64)
        return within

    def _draw_until_all_are_read(self, weights: Sequence[float], lengths: npt.NDArray[np.int64], epoch: int) -> Turns:
        """Choose loaders until every loader has yielded all its batches, and return the indices of the chosen loaders.

        A loader without further batches is not chosen again, and a loader with the weight 0 is never chosen.
        """
        left = np.where(np.array(weights) > 0, lengths, 0)
        parts: list[Turns] = [np.empty(0, dtype=np.int64)]
        while left.any():
            open_weights = [weight if count else 0.0 for weight, count in zip(weights, left, strict=True)]
            drawn = self._draw_loaders(open_weights, int(left.sum()), epoch, stage=len(parts) - 1)
            ends = [np.flatnonzero(drawn == index)[count - 1 : count] for index, count in enumerate(left) if count]
            drawn = drawn[: min(int(end[0]) + 1 for end in ends if len(end))]
            left -= np.bincount(drawn, minlength=len(left))
            parts.append(drawn)
        return np.concatenate(parts)
