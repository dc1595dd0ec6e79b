"""Independent standard normal noise from 16 random bits a value.

The bits come from NumPy's SFC64 generator started from the sample's key; a table of 65,536 quantiles of the
normal distribution, rescaled to exactly unit variance, turns them into values within ±4.4. Every value is
drawn on its own (no pool of noise is reused), at about a third of the cost of ``torch.randn``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

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


def _bits(key: int, count: int) -> npt.NDArray[np.uint16]:
    generator = np.random.SFC64(0)
    words = np.array([key, 0, 0, 1], dtype=np.uint64)
    words[1:3] = words[0] ^ _SFC64_WORDS
    generator.state = {
        "bit_generator": "SFC64",
        "state": {"state": words},
        "has_uint32": 0,
        "uinteger": 0,
    }
    raw: npt.NDArray[np.uint64] = generator.random_raw(_WARM_UP_ROUNDS + (count + 3) // 4)[_WARM_UP_ROUNDS:]
    return raw.view(np.uint16)[:count]


def normal_noise(key: int, count: int, std: float) -> npt.NDArray[np.float32]:
    """``count`` independent values of N(0, std²), float32, wholly determined by the 64-bit ``key``."""
    return _scaled_quantiles(float(std)).take(_bits(key, count))
