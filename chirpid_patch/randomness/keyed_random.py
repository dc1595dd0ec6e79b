"""Random numbers that depend on the sample, and not on the worker that reads the sample.

Every random number is a hash of the values in a ``RandomKey`` (base seed of the loader, epoch, rank, sample index,
number of earlier occurrences of this index in the epoch, and depth), the transform, and the position of the random
number within the transform. So the augmentation of a sample in an epoch is the same for any number of workers, for any
batch size, and in a repeated run. The hash function is the finaliser of SplitMix64 (Steele, Lea & Flood 2014).
"""

from __future__ import annotations

import random
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
    """Apply the finaliser of SplitMix64, a bijection of 64-bit words, to each element."""
    mixed: Keys = words + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MULTIPLY_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLY_2
    mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed


def _mix_word(word: int) -> int:
    """Apply the same function as ``_mix`` to a single word."""
    mixed = (word + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def hash_into_keys(keys: Keys, *words: int | npt.NDArray[np.int64]) -> Keys:
    """Return new keys, which are hashes of ``keys`` and ``words``, as a uint64 array of shape (B,).

    Args:
        keys: uint64 array of shape (B,).
        *words: numbers to include in the hash, each an integer for all keys, or an int64 array (B,) with a number for
            each key.
    """
    for word in words:
        if isinstance(word, np.ndarray):
            keys = _mix(keys ^ word.astype(np.int64, copy=False).view(np.uint64))
        else:
            keys = _mix(keys ^ np.uint64(word & _MASK))
    return keys


def draw_random_keys(count: int) -> Keys:
    """Return ``count`` random keys from Python's ``random``.

    PyTorch seeds ``random`` in every worker, so workers and epochs have different keys. If the program calls
    ``random.seed``, the keys are repeatable. The function does not use PyTorch's generator.
    """
    return np.array([random.getrandbits(64) for _ in range(count)], dtype=np.uint64)


def uniform_numbers(keys: Keys, count: int) -> npt.NDArray[np.float64]:
    """Return uniformly distributed random numbers in [0, 1), each with 53 random bits.

    Args:
        keys: uint64 array of shape (B,).
        count: number of random numbers for each key.

    Returns:
        A float64 array of shape (B, ``count``).
    """
    counters = np.arange(1, count + 1, dtype=np.uint64)
    words = _mix(keys[:, None] ^ _mix(counters)[None, :])
    numbers: npt.NDArray[np.float64] = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


@dataclass(frozen=True, eq=False)
class RandomKey:
    """The values that determine the random numbers of a batch.

    The loader passes this key to datasets that augment samples.

    Attributes:
        seed: base seed of the loader.
        epoch: number of the epoch.
        rank: rank of this process.
        indices: sample indices from the loader's sampler, int64 of shape (B,).
        occurrences: number of earlier occurrences of each index in this epoch, int64 of shape (B,).
        depth: 0 for the outermost dataset that augments, 1 for a dataset that augments inside this dataset, and so on.
            So nested datasets have independent random numbers.
    """

    seed: int
    epoch: int
    rank: int
    indices: npt.NDArray[np.int64]
    occurrences: npt.NDArray[np.int64]
    depth: int = 0

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, positions: Any) -> RandomKey:
        """Return the random key of some samples of the batch.

        Args:
            positions: positions of the samples in the batch, as a list, a slice or an index array.
        """
        return replace(self, indices=self.indices[positions], occurrences=self.occurrences[positions])

    def deeper(self) -> RandomKey:
        """Return the key that an augmenting dataset passes to its inner dataset."""
        return replace(self, depth=self.depth + 1)

    def sample_keys(self) -> Keys:
        """Return a 64-bit key for each sample, as a uint64 array of shape (B,)."""
        run = 0
        for word in (self.seed, self.epoch, self.rank, self.depth):
            run = _mix_word(run ^ (word & _MASK))
        return hash_into_keys(np.full(self.indices.shape, run, dtype=np.uint64), self.indices, self.occurrences)
