"""Normal noise for samples, in three modes. The 64-bit key of a sample determines its noise completely.

* ``table``: independent values. SplitMix64 (Steele, Lea & Flood 2014), seeded with the key, generates 16 random bits
  for each value. The bits are a position in a table of 65,536 quantiles of the normal distribution. The table is scaled
  to a variance of exactly 1, and all its values are within ±4.4. Compiled C code adds the values to the samples without
  holding the interpreter lock. If the C code is missing, NumPy computes the same numbers.
* ``exact``: independent values from ``torch.Tensor.normal_``. PyTorch's CPU generator is seeded with the lowest 32 bits
  of the key.
* ``pooled``: values from a pool of noise that is computed once. Each sample gets a slice of the pool, and the key
  determines the position of the slice. The values are *not independent*, because the slices of two samples can overlap.
  ``pooled`` is the fastest mode.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chirpid_patch import native

NoiseMode = Literal["table", "exact", "pooled"]
NOISE_MODES: tuple[str, ...] = get_args(NoiseMode)

_TABLE_SIZE = 1 << 16
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@lru_cache(maxsize=1)
def _unit_quantiles() -> npt.NDArray[np.float64]:
    levels = (torch.arange(_TABLE_SIZE, dtype=torch.float64) + 0.5) / _TABLE_SIZE
    quantiles = torch.special.ndtri(levels)
    unit: npt.NDArray[np.float64] = (quantiles / quantiles.square().mean().sqrt()).numpy()
    return unit


@lru_cache(maxsize=8)
def scaled_quantiles(std: float) -> npt.NDArray[np.float32]:
    """Return the table of quantiles times ``std``, a float32 array of shape (65536,)."""
    return (_unit_quantiles() * std).astype(np.float32)


Values = npt.NDArray[np.float32]

#: Largest number of 64-bit words that are generated at once.
_WORDS_AT_ONCE = 1 << 16


class _NoiseBuffers(threading.local):
    """Arrays in which a thread computes noise. Allocating new arrays for each sample would be slow (page faults)."""

    def __init__(self) -> None:
        self.words = np.empty((2, 0), dtype=np.uint64)
        self.positions = np.empty(0, dtype=np.intp)
        self.values = np.empty(0, dtype=np.float32)

    def reserve(self, values: int) -> None:
        """Make the arrays large enough for the given number of noise values."""
        words = min((values + 3) // 4, _WORDS_AT_ONCE)
        if self.words.shape[1] < words:
            self.words = np.empty((2, words), dtype=np.uint64)
            self.positions = np.empty(4 * words, dtype=np.intp)
        if len(self.values) < values:
            self.values = np.empty(values, dtype=np.float32)


_scratch = _NoiseBuffers()


@lru_cache(maxsize=8)
def _generator_steps(words: int) -> npt.NDArray[np.uint64]:
    """Return the first ``words`` multiples of the increment of SplitMix64, a uint64 array of shape (words,).

    The sum of the seed and the multiple n is the state from which SplitMix64 computes its random word n.
    """
    steps: npt.NDArray[np.uint64] = np.arange(1, words + 1, dtype=np.uint64) * _GOLDEN
    return steps


def _independent_noise(key: int, std: float, values: Values) -> Values:
    scratch, table = _scratch, scaled_quantiles(std)
    scratch.reserve(len(values))
    for start in range(0, len(values), 4 * _WORDS_AT_ONCE):
        block = values[start : start + 4 * _WORDS_AT_ONCE]
        count = (len(block) + 3) // 4
        words, mixed = scratch.words[0, :count], scratch.words[1, :count]
        seed = np.array(key + start // 4 * int(_GOLDEN) & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
        np.add(_generator_steps(count), seed, out=words)
        for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            np.right_shift(words, np.uint64(shift), out=mixed)
            np.bitwise_xor(words, mixed, out=words)
            if multiplier > 1:
                np.multiply(words, np.uint64(multiplier), out=words)
        positions = scratch.positions[: len(block)]
        np.copyto(positions, words.astype("<u8", copy=False).view("<u2")[: len(block)])  # the lowest bits come first
        np.take(table, positions, out=block, mode="wrap")  # "wrap" checks no bounds
    return values


def _exact_noise(key: int, std: float, values: Values) -> Values:
    torch.from_numpy(values).normal_(0, std, generator=torch.Generator().manual_seed(key & 0xFFFFFFFF))
    return values


#: Smallest number of values in a pool of noise, and smallest number of values in the pool / values of a sample.
_SMALLEST_POOL = 1 << 21
_POOL_PER_SAMPLE = 8


@lru_cache(maxsize=2)
def _unit_pool(size: int) -> Values:
    return _independent_noise(size, 1.0, np.empty(size, dtype=np.float32))


@lru_cache(maxsize=4)
def _pool(size: int, std: float) -> Values:
    """Return ``size`` independent values with the distribution N(0, std²). Every process gets the same values."""
    pool: Values = _unit_pool(size) * np.float32(std)
    return pool


def noise_pool(count: int, std: float) -> Values:
    """Return the pool of noise for samples of ``count`` values. Callers must not write to the pool."""
    return _pool(1 << (max(_SMALLEST_POOL, _POOL_PER_SAMPLE * count) - 1).bit_length(), float(std))


def _pooled_noise(key: int, std: float, values: Values) -> Values:
    pool = noise_pool(len(values), std)
    start = key % (len(pool) - len(values) + 1)
    return pool[start : start + len(values)]


_NOISE_FUNCTIONS = {"table": _independent_noise, "exact": _exact_noise, "pooled": _pooled_noise}


def normal_noise(key: int, count: int, std: float, mode: str = "table", out: Values | None = None) -> Values:
    """Return ``count`` float32 values with the distribution N(0, std²). ``key`` determines the values completely.

    Args:
        key: the 64-bit key.
        count: number of values.
        std: standard deviation.
        mode: one of ``NOISE_MODES``; see the docstring of this module.
        out: array of ``count`` values for the result; None: a new array. The mode ``pooled`` ignores ``out`` and
            returns a slice of the pool. Callers must not write to this slice.
    """
    return _NOISE_FUNCTIONS[mode](key, float(std), np.empty(count, dtype=np.float32) if out is None else out)


def add_noise_(batch: Tensor, rows: Sequence[int], keys: npt.NDArray[np.uint64], std: float, mode: str) -> None:
    """Add noise to the given rows of ``batch`` in place, and clamp these rows to [0, 1].

    Args:
        batch: floating-point tensor (B, …).
        rows: indices of the rows that get noise.
        keys: the key of each row in ``rows``, a uint64 array of shape (len(rows),).
        std: standard deviation of the noise.
        mode: one of ``NOISE_MODES``.
    """
    if not rows:
        return
    values, numbers = batch[0].numel(), np.array(rows, dtype=np.int64)
    if mode == "table" and native.add_noise(batch, numbers, keys, scaled_quantiles(float(std))):
        return
    if mode == "pooled":
        pool = noise_pool(values, std)
        if native.add_noise_slices(batch, numbers, pool, keys % np.uint64(len(pool) - values + 1)):
            return
    _scratch.reserve(values)
    for row, key in zip(rows, keys.tolist(), strict=True):
        sample = batch[row]
        noise = normal_noise(key, values, std, mode, _scratch.values[:values])
        sample.add_(torch.from_numpy(noise).view(sample.shape)).clamp_(0, 1)
