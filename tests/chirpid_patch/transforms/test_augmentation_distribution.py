"""The augmentation is the original's in distribution: gates, mask widths and starts, noise.

All draws are seeded, so that a test passes or fails for good; tolerances are five standard errors or a
Kolmogorov-Smirnov bound of probability 1e-6.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from originals import gaussian_noise, seed_all, spec_augment

from chirpid_patch import GaussianNoise, SpecAugment
from chirpid_patch.randomness.keyed_random import hash_into_keys
from chirpid_patch.transforms.noise import normal_noise

N = 6000
F, T = 7, 12


def keys(count: int, seed: int = 0) -> Any:
    start = hash_into_keys(np.zeros(1, dtype=np.uint64), seed)
    return hash_into_keys(np.broadcast_to(start, count), np.arange(count))


def ks_distance(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """Two-sample Kolmogorov-Smirnov distance."""
    grid = np.sort(np.concatenate([left, right]))
    cdfs = (np.searchsorted(np.sort(one), grid, side="right") / len(one) for one in (left, right))
    first, second = cdfs
    return float(np.abs(first - second).max())


def ks_bound(n: int, m: int, alpha: float = 1e-6) -> float:
    """The distance two samples of one distribution exceed with probability ``alpha``."""
    return math.sqrt(-math.log(alpha / 2) / 2) * math.sqrt((n + m) / (n * m))


def mask_positions(masked: torch.Tensor) -> np.ndarray[Any, Any]:
    """(width, start) along the last axis for spectrograms of ones with one time mask, start -1 for none."""
    hidden = (masked == 0).all(dim=-2).reshape(len(masked), -1)
    widths = hidden.sum(1)
    starts = torch.where(widths > 0, hidden.int().argmax(1), -1)
    return torch.stack([widths, starts], dim=1).numpy()


@pytest.mark.parametrize("param", [4, 30], ids=["narrower than the axis", "wider than the axis"])
@pytest.mark.parametrize("axis", ["time", "frequency"])
def test_mask_widths_and_starts_are_distributed_as_the_originals(param: int, axis: str) -> None:
    p = 0.7
    time, freq = (param, 0) if axis == "time" else (0, param)
    ours = torch.ones(N, 1, F, T)
    SpecAugment(time_mask_param=time, freq_mask_param=freq, p=p).transform_batch_(ours, keys(N))
    random.seed(1)
    theirs = torch.stack([spec_augment(torch.ones(1, F, T), time, freq, 1, p) for _ in range(N)])
    if axis == "frequency":
        ours, theirs = ours.transpose(-1, -2), theirs.transpose(-1, -2)
    left, right = mask_positions(ours), mask_positions(theirs)
    # Compare every (width, start) cell, so that the dependence of start on width is compared too.
    size = max(F, T) + 2
    cells = [np.bincount(one[:, 0] * size + one[:, 1] + 1, minlength=size * size) for one in (left, right)]
    used = (cells[0] + cells[1]) > 0
    chi_square = float((((cells[0] - cells[1]) ** 2)[used] / (cells[0] + cells[1])[used]).sum())
    freedom = int(used.sum()) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)
    assert left[:, 0].max() == min(param, T if axis == "time" else F)


def test_several_masks_of_both_kinds_hide_as_much_as_the_originals() -> None:
    ours = torch.ones(N, F, T)
    augment = SpecAugment(5, 3, num_time_masks=2, num_freq_masks=2, p=1.0)
    augment.transform_batch_(ours, keys(N))
    random.seed(2)
    theirs = torch.stack([spec_augment(torch.ones(F, T), 5, 3, 2, 1.0) for _ in range(N)])
    hidden = [(1 - one).sum(dim=(-1, -2)).numpy() for one in (ours, theirs)]
    assert ks_distance(*hidden) < ks_bound(N, N)


@pytest.mark.parametrize("p", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("kind", [SpecAugment, GaussianNoise])
def test_the_gate_opens_with_probability_p(kind: Any, p: float) -> None:
    share = float(kind(p=p).applies(keys(20_000)).mean())
    assert abs(share - p) <= 5 * math.sqrt(p * (1 - p) / 20_000)


def test_noise_has_the_moments_of_a_standard_normal() -> None:
    noise = normal_noise(123, 2_000_000, 1.0).astype(np.float64)
    error = 5 / math.sqrt(len(noise))
    assert abs(noise.mean()) < error
    assert abs(noise.var() - 1) < error * math.sqrt(2)
    assert abs((noise**3).mean()) < error * math.sqrt(15)
    # 65,536 levels cut the tails at ±4.3: the fourth moment is 3 less at most 1 %.
    assert (noise**4).mean() == pytest.approx(3, abs=0.03 + error * math.sqrt(96))
    assert noise.dtype == np.float64 and np.abs(noise).max() < 4.5


def test_noise_follows_the_normal_distribution() -> None:
    noise = np.sort(normal_noise(5, 200_000, 1.0).astype(np.float64))
    normal = torch.special.ndtr(torch.from_numpy(noise)).numpy()
    distance = np.abs(normal - (np.arange(len(noise)) + 0.5) / len(noise)).max()
    assert distance < math.sqrt(-math.log(0.5e-6) / (2 * len(noise))) + 1 / 65_536


def test_noise_of_neighbouring_values_and_samples_is_uncorrelated() -> None:
    noise = np.stack([normal_noise(int(key), 20_000, 1.0) for key in keys(20)]).astype(np.float64)
    bound = 6 / math.sqrt(20_000)
    for lag in (1, 2, 3, 4, 5, 313):
        assert max(abs(np.corrcoef(row[:-lag], row[lag:])[0, 1]) for row in noise) < bound
    between = np.corrcoef(noise) - np.eye(20)
    squares = np.corrcoef(noise**2) - np.eye(20)
    assert np.abs(between).max() < bound and np.abs(squares).max() < bound


def test_noise_of_keys_that_differ_in_one_bit_is_uncorrelated() -> None:
    start = normal_noise(0, 20_000, 1.0)
    for bit in range(64):
        other = normal_noise(1 << bit, 20_000, 1.0)
        assert abs(np.corrcoef(start, other)[0, 1]) < 6 / math.sqrt(20_000)


def test_noisy_samples_are_distributed_as_the_originals() -> None:
    x = torch.rand(1, 40, 50, generator=torch.Generator().manual_seed(0))
    transform = GaussianNoise(std=0.3, p=1.0)
    ours = x.repeat(40, 1, 1, 1)
    transform.transform_batch_(ours, keys(40))
    seed_all(3)
    theirs = torch.stack([gaussian_noise(x, 0.3, 1.0) for _ in range(40)])
    assert float(ours.min()) == 0.0 and float(ours.max()) == 1.0
    left, right = (one.flatten().numpy() for one in (ours, theirs))
    assert ks_distance(left, right) < ks_bound(len(left), len(right))
    differences = [(one - x).flatten().numpy() for one in (ours, theirs)]
    assert ks_distance(*differences) < ks_bound(len(left), len(right))


def test_noise_repeats_exactly_with_its_key_and_scales_with_std() -> None:
    one = normal_noise(99, 1001, 0.02)
    assert one.dtype == np.float32 and len(one) == 1001
    assert np.array_equal(one, normal_noise(99, 1001, 0.02))
    assert np.array_equal(one[:10], normal_noise(99, 10, 0.02))
    assert np.allclose(normal_noise(99, 1001, 0.04), 2 * one)
    assert not np.array_equal(one, normal_noise(100, 1001, 0.02))
