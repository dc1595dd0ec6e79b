"""Random numbers that belong to a sample, not to a worker.

A counter-based generator: every number is a hash (SplitMix64's finaliser, Steele, Lea & Flood 2014) of its identity:
base seed of the loader, epoch, rank, sample index, occurrence of that index within the epoch, transform, draw number.
So the same sample of the same epoch gets the same augmentation for any number of workers, in any batch, and after a
replay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)


def _mix(words: Keys) -> Keys:
    """Return SplitMix64's finaliser of each element, a bijection of 64-bit words."""
    mixed: Keys = words + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MULTIPLY_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLY_2
    mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed


def _mix_word(word: int) -> int:
    """Return ``_mix`` of one word."""
    mixed = (word + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def fold_in(keys: Keys, *words: int | npt.NDArray[np.int64]) -> Keys:
    """Hash ``keys`` (B,) and further words into new keys.

    Words are integers of any size or sign, or int64 arrays (B,).
    """
    for word in words:
        if isinstance(word, np.ndarray):
            keys = _mix(keys ^ word.astype(np.int64, copy=False).view(np.uint64))
        else:
            keys = _mix(keys ^ np.uint64(word & _MASK))
    return keys


def fresh_keys(count: int) -> Keys:
    """Return ``count`` keys from Python's ``random``.

    The guide's augmentation uses the same generator. PyTorch seeds it in every worker, so workers and epochs differ,
    and ``random.seed`` makes a run repeat. The function does not use PyTorch's generator.
    """
    return np.array([random.getrandbits(64) for _ in range(count)], dtype=np.uint64)


def uniforms(keys: Keys, draws: int) -> npt.NDArray[np.float64]:
    """Return uniform numbers in [0, 1) with 53 random bits: shape (B, draws) for keys of shape (B,)."""
    counters = np.arange(1, draws + 1, dtype=np.uint64)
    words = _mix(keys[:, None] ^ _mix(counters)[None, :])
    numbers: npt.NDArray[np.float64] = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


@dataclass(frozen=True, eq=False)
class RandomKey:
    """The identity of the random numbers of one batch, passed from the loader to augmenting datasets.

    Attributes:
        indices: sample indices from the loader's sampler, int64 of shape (B,).
        occurrences: how often each index occurred before in this epoch, int64 of shape (B,).
        depth: number of augmenting wrappers passed so far, so that nested wrappers use independent numbers.
    """

    seed: int
    epoch: int
    rank: int
    indices: npt.NDArray[np.int64]
    occurrences: npt.NDArray[np.int64]
    depth: int = 0

    @classmethod
    def of(
        cls,
        seed: int,
        epoch: int,
        indices: Sequence[int],
        occurrences: Sequence[int],
        *,
        rank: int = 0,
    ) -> RandomKey:
        """Return the key of a batch from plain sequences of equal length."""
        if len(indices) != len(occurrences):
            raise ValueError(f"{len(indices)} indices but {len(occurrences)} occurrences")
        return cls(seed, epoch, rank, np.asarray(indices, dtype=np.int64), np.asarray(occurrences, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, positions: Any) -> RandomKey:
        """Return the key of the samples at ``positions`` (any index of an array that keeps it 1-d)."""
        return replace(self, indices=self.indices[positions], occurrences=self.occurrences[positions])

    def deeper(self) -> RandomKey:
        """Return the key for the dataset inside an augmenting wrapper."""
        return replace(self, depth=self.depth + 1)

    def sample_keys(self) -> Keys:
        """Return one 64-bit key for each sample: uint64 of shape (B,)."""
        run = 0
        for word in (self.seed, self.epoch, self.rank, self.depth):
            run = _mix_word(run ^ (word & _MASK))
        return fold_in(np.full(self.indices.shape, run, dtype=np.uint64), self.indices, self.occurrences)


def keys_for(key: RandomKey | None, count: int) -> Keys:
    """Return the sample keys of ``key``, or new ones for ``count`` samples without a key."""
    return fresh_keys(count) if key is None else key.sample_keys()
