"""Normal noise that is computed on a device; the 64-bit key of a sample determines its noise completely.

``table`` and ``pooled`` noise equals that of ``transforms.noise`` to the last bit: SplitMix64 is arithmetic of 64-bit
integers, which wrap around in PyTorch's int64 as they do in uint64. ``exact`` noise of ``transforms.noise`` comes from
PyTorch's CPU generator, whose values no device repeats. This module computes Box and Muller's transform of SplitMix64's
bits instead: also independent values of N(0, std²), within ±6.7 std, but different values.
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
from chirpid_patch.transforms.off_cpu import send

# SplitMix64's constants as signed numbers, and the bits that a logical shift to the right leaves.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_ROUNDS = ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)))
_LAST_SHIFT = 31
#: Number of values that get noise at once: temporary values take about 20 bytes for each.
_NOISE_AT_A_TIME = 1 << 23


def _words(keys: Tensor, count: int) -> Tensor:
    """Return the first ``count`` words of SplitMix64 for each key: int64 (R,) to int64 (R, count)."""
    words = keys[:, None] + torch.arange(1, count + 1, device=keys.device) * _GOLDEN
    for shift, multiplier in _ROUNDS:
        words.bitwise_xor_(_shift_right(words, shift)).mul_(multiplier)
    return words.bitwise_xor_(_shift_right(words, _LAST_SHIFT))


def _shift_right(words: Tensor, places: int) -> Tensor:
    return (words >> places).bitwise_and_((1 << (64 - places)) - 1)


def _table_noise(keys: Tensor, count: int, std: float) -> Tensor:
    # Four positions a word, its lowest bits first: CUDA devices are little-endian. As signed numbers the upper half of
    # the positions are negative, and count from the table's end.
    positions = _words(keys, (count + 3) // 4).view(torch.int16)[:, :count]
    return _table(std, keys.device)[positions.long()]


@lru_cache(maxsize=8)
def _table(std: float, device: torch.device) -> Tensor:
    return _cached_on_device(torch.from_numpy(scaled_quantiles(std)), device)


def _exact_noise(keys: Tensor, count: int, std: float) -> Tensor:
    words = _words(keys, (count + 1) // 2)
    # Two numbers of 32 bits a word: one in (0, 1], one in [0, 1).
    radius = ((_shift_right(words, 32) + 1).float() * 2.0**-32).log_().mul_(-2).sqrt_().mul_(std)
    angle = (words & 0xFFFFFFFF).float() * (2 * math.pi * 2.0**-32)
    return torch.cat([radius * angle.cos(), radius * angle.sin()], 1)[:, :count]


def _pooled_noise(keys: Tensor, count: int, std: float) -> Tensor:
    pool = _device_pool(count, std, keys.device)
    # The key as an unsigned number, modulo the number of places to start from.
    places = len(pool) - count + 1
    starts = (keys.remainder(places) + (keys < 0) * ((1 << 64) % places)).remainder_(places)
    return pool[starts[:, None] + torch.arange(count, device=keys.device)]


@lru_cache(maxsize=2)
def _device_pool(count: int, std: float, device: torch.device) -> Tensor:
    return _cached_on_device(torch.from_numpy(noise_pool(count, std)), device)


def _cached_on_device(values: Tensor, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return values.to(device)


_DRAW: dict[str, Callable[[Tensor, int, float], Tensor]] = {
    "table": _table_noise,
    "exact": _exact_noise,
    "pooled": _pooled_noise,
}


def device_noise(keys: Tensor, count: int, std: float, mode: str) -> Tensor:
    """Return ``count`` values of N(0, std²) for each key, on the device of the keys: int64 (R,) to float32 (R, count).

    The keys are 64-bit numbers in the int64 of the same bits; ``mode`` is one of ``NOISE_MODES``.
    """
    return _DRAW[mode](keys, count, float(std))


def add_device_noise_(batch: Tensor, rows: Sequence[int], keys: npt.NDArray[np.uint64], std: float, mode: str) -> None:
    """Add noise as ``noise.add_noise_`` does, on the device of ``batch``."""
    count = batch[0].numel() if len(rows) else 0
    if not count:
        return
    at_a_time = max(1, _NOISE_AT_A_TIME // count)
    for first in range(0, len(rows), at_a_time):
        some = slice(first, first + at_a_time)
        numbers = np.stack([np.array(rows[some], dtype=np.int64), keys[some].view(np.int64)])
        places, there = send(torch.from_numpy(numbers), batch.device)
        noise = device_noise(there, count, std, mode)
        noisy = batch.index_select(0, places)
        noisy.add_(noise.view(noisy.shape)).clamp_(0, 1)
        batch.index_copy_(0, places, noisy)
