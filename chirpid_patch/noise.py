"""Normal noise for one sample, wholly determined by its 64-bit key, in three modes.

``table``
    Independent values from 16 random bits each. The bits come from NumPy's SFC64 generator started from the key; a
    table of 65,536 quantiles of the normal distribution, rescaled to exactly unit variance, turns them into values
    within ±4.4. About a third of the cost of ``torch.randn``.
``exact``
    Independent values from ``torch.Tensor.normal_``. PyTorch's CPU generator takes 32 bits of the key as its seed.
``pooled``
    A stretch, at a random place, of noise that was drawn once. *Not independent*: two samples can share part of
    their noise, shifted. Costs no more than adding it.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

NoiseMode = Literal["table", "exact", "pooled"]
NOISE_MODES: tuple[str, ...] = get_args(NoiseMode)

_LEVELS = 1 << 16
_WARM_UP_ROUNDS = 12  # what SFC64's author prescribes after setting the state from a seed
_SFC64_WORDS = np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], dtype=np.uint64)


@lru_cache(maxsize=1)
def _unit_quantiles() -> npt.NDArray[np.float64]:
    levels = (torch.arange(_LEVELS, dtype=torch.float64) + 0.5) / _LEVELS
    quantiles = torch.special.ndtri(levels)
    unit: npt.NDArray[np.float64] = (quantiles / quantiles.square().mean().sqrt()).numpy()
    return unit


@lru_cache(maxsize=8)
def _scaled_quantiles(std: float) -> npt.NDArray[np.float32]:
    """The table times ``std``: float32 of shape (65536,), so that scaling costs nothing for each value."""
    return (_unit_quantiles() * std).astype(np.float32)


#: Values drawn at a time: what is needed for them stays in a core's cache.
_BLOCK = 1 << 15


Values = npt.NDArray[np.float32]


class _Scratch(threading.local):
    """What a thread draws noise with. Made for each sample anew, it would cost as much again in page faults."""

    def __init__(self) -> None:
        self.generator = np.random.SFC64(0)
        self.positions = np.empty(_BLOCK, dtype=np.intp)
        self.values = np.empty(0, dtype=np.float32)


_scratch = _Scratch()


def scratch_values(count: int) -> Values:
    """Room for ``count`` values, the same for each call in a thread."""
    if len(_scratch.values) < count:
        _scratch.values = np.empty(count, dtype=np.float32)
    return _scratch.values[:count]


def _independent_noise(key: int, std: float, values: Values) -> Values:
    words = np.array([key, 0, 0, 1], dtype=np.uint64)
    words[1:3] = words[0] ^ _SFC64_WORDS
    generator = _scratch.generator
    generator.state = {
        "bit_generator": "SFC64",
        "state": {"state": words},
        "has_uint32": 0,
        "uinteger": 0,
    }
    generator.random_raw(_WARM_UP_ROUNDS, output=False)
    table = _scaled_quantiles(std)
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        positions = _scratch.positions[: len(block)]
        bits = generator.random_raw((len(block) + 3) // 4).view(np.uint16)
        np.copyto(positions, bits[: len(block)])
        np.take(table, positions, out=block, mode="wrap")  # "wrap" checks no bounds
    return values


def _exact_noise(key: int, std: float, values: Values) -> Values:
    torch.from_numpy(values).normal_(0, std, generator=torch.Generator().manual_seed(key & 0xFFFFFFFF))
    return values


#: A pool holds at least so many values, and so many times the values of one sample.
_SMALLEST_POOL = 1 << 22
_POOL_PER_SAMPLE = 8


@lru_cache(maxsize=2)
def _pool(size: int, std: float) -> Values:
    """``size`` independent values of N(0, std²), the same in every process."""
    return _independent_noise(size, std, np.empty(size, dtype=np.float32))


def _pooled_noise(key: int, std: float, values: Values) -> Values:
    count = len(values)
    needed = max(_SMALLEST_POOL, _POOL_PER_SAMPLE * count)
    pool = _pool(1 << (needed - 1).bit_length(), std)
    start = key % (len(pool) - count + 1)
    return pool[start : start + count]


_DRAW = {"table": _independent_noise, "exact": _exact_noise, "pooled": _pooled_noise}


def normal_noise(key: int, count: int, std: float, mode: str = "table", out: Values | None = None) -> Values:
    """``count`` values of N(0, std²), float32, wholly determined by the 64-bit ``key``.

    ``mode`` is one of ``NOISE_MODES``, described at the top of this module. The values are in ``out`` where it is
    given, except pooled ones, which are a part of the pool and must not be written to.
    """
    return _DRAW[mode](key, float(std), np.empty(count, dtype=np.float32) if out is None else out)
