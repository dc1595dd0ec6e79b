"""Normal noise that is computed on a device. The 64-bit key of a sample determines its noise completely.

The modes are the modes of ``transforms.noise``, which computes noise on the CPU. In the modes ``table`` and ``pooled``,
both modules compute the same noise, to the last bit. A device can compute the same bits, because SplitMix64 uses only
64-bit integers, and PyTorch's int64 overflows in the same way as NumPy's uint64.

In the mode ``exact``, the noise has other values than in ``transforms.noise``, because no device can repeat the values
of PyTorch's CPU generator. In this module, the mode ``exact`` applies the Box-Muller transform to the bits of
SplitMix64. The values are independent, and have the distribution N(0, std²), but never exceed ±6.7 std, because the
smallest uniform number that the Box-Muller transform gets is 2**-32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chirpid_patch.transforms.noise import noise_pool, scaled_quantiles
from chirpid_patch.transforms.off_cpu import send_to_device

# The constants of SplitMix64 as signed numbers, and the numbers of bits by which SplitMix64 shifts.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_ROUNDS = ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)))
_LAST_SHIFT = 31
#: Largest number of values to which noise is added at once. For each value, temporary tensors take about 20 bytes.
_NOISE_AT_A_TIME = 1 << 23


def _words(keys: Tensor, count: int) -> Tensor:
    """Return the first ``count`` 64-bit words that SplitMix64 generates for each key, as an int64 tensor (R, count).

    ``keys`` is an int64 tensor (R,).
    """
    words = keys[:, None] + torch.arange(1, count + 1, device=keys.device) * _GOLDEN
    for shift, multiplier in _ROUNDS:
        words.bitwise_xor_(_shift_right(words, shift)).mul_(multiplier)
    return words.bitwise_xor_(_shift_right(words, _LAST_SHIFT))


def _shift_right(words: Tensor, places: int) -> Tensor:
    return (words >> places).bitwise_and_((1 << (64 - places)) - 1)


def _table_noise(keys: Tensor, count: int, std: float) -> Tensor:
    # Each word contains four positions in the table. The lowest bits are the first position, because CUDA devices are
    # little-endian. Read as signed numbers, positions in the upper half of the table are negative, and negative indices
    # count from the end of the table.
    positions = _words(keys, (count + 3) // 4).view(torch.int16)[:, :count]
    return _table(std, keys.device)[positions.long()]


@lru_cache(maxsize=8)
def _table(std: float, device: torch.device) -> Tensor:
    return _cached_on_device(torch.from_numpy(scaled_quantiles(std)), device)


def _exact_noise(keys: Tensor, count: int, std: float) -> Tensor:
    words = _words(keys, (count + 1) // 2)
    # Each word contains two numbers of 32 bits: one in (0, 1], and one in [0, 1).
    radius = ((_shift_right(words, 32) + 1).float() * 2.0**-32).log_().mul_(-2).sqrt_().mul_(std)
    angle = (words & 0xFFFFFFFF).float() * (2 * math.pi * 2.0**-32)
    return torch.cat([radius * angle.cos(), radius * angle.sin()], 1)[:, :count]


def _pooled_noise(keys: Tensor, count: int, std: float) -> Tensor:
    pool = _device_pool(count, std, keys.device)
    # Compute the key as an unsigned number, modulo the number of possible starts.
    places = len(pool) - count + 1
    starts = (keys.remainder(places) + (keys < 0) * ((1 << 64) % places)).remainder_(places)
    return pool[starts[:, None] + torch.arange(count, device=keys.device)]


@lru_cache(maxsize=2)
def _device_pool(count: int, std: float, device: torch.device) -> Tensor:
    return _cached_on_device(torch.from_numpy(noise_pool(count, std)), device)


def _cached_on_device(values: Tensor, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return values.to(device)


_NOISE_FUNCTIONS: dict[str, Callable[[Tensor, int, float], Tensor]] = {
    "table": _table_noise,
    "exact": _exact_noise,
    "pooled": _pooled_noise,
}


def device_noise(keys: Tensor, count: int, std: float, mode: str) -> Tensor:
    """Return ``count`` values with the distribution N(0, std²) for each key, on the device of ``keys``.

    Args:
        keys: the 64-bit keys as an int64 tensor (R,). A key of 2**63 or more is a negative number with the same bits.
        count: number of values for each key.
        std: standard deviation.
        mode: one of ``NOISE_MODES``.

    Returns:
        A float32 tensor (R, count).
    """
    return _NOISE_FUNCTIONS[mode](keys, count, float(std))


def add_device_noise_(batch: Tensor, rows: Sequence[int], keys: npt.NDArray[np.uint64], std: float, mode: str) -> None:
    """Add noise to the given rows of ``batch``, as ``noise.add_noise_`` does, on the device of ``batch``."""
    count = batch[0].numel() if len(rows) else 0
    if not count:
        return
    at_a_time = max(1, _NOISE_AT_A_TIME // count)
    for first in range(0, len(rows), at_a_time):
        some = slice(first, first + at_a_time)
        numbers = np.stack([np.array(rows[some], dtype=np.int64), keys[some].view(np.int64)])
        places, there = send_to_device(torch.from_numpy(numbers), batch.device)
        noise = device_noise(there, count, std, mode)
        noisy = batch.index_select(0, places)
        noisy.add_(noise.view(noisy.shape)).clamp_(0, 1)
        batch.index_copy_(0, places, noisy)
