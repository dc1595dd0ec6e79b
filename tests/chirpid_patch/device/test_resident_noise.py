"""Noise computed on the device: that of the CPU to the last bit, or as normal and as independent."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from devices import AWAY
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chirpid_patch.randomness.keyed_random import hash_into_keys
from chirpid_patch.transforms.device_noise import device_noise
from chirpid_patch.transforms.noise import normal_noise

devices = pytest.mark.parametrize("device", ["cpu", *AWAY])


def device_keys(keys: np.ndarray, device: str = "cpu") -> Tensor:
    return torch.from_numpy(keys.view(np.int64)).to(device)


@devices
@pytest.mark.parametrize("mode", ["table", "pooled"])
@settings(max_examples=25)
@given(
    keys=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4),
    count=st.integers(1, 70),
    std=st.floats(0, 10, width=32),
)
def test_independent_and_pooled_noise_is_the_cpus_to_the_last_bit(
    mode: str, device: str, keys: list[int], count: int, std: float
) -> None:
    there = device_noise(device_keys(np.array(keys, dtype=np.uint64), device), count, std, mode)
    assert there.dtype is torch.float32
    for noise, key in zip(there.cpu(), keys, strict=True):
        assert torch.equal(noise, torch.from_numpy(normal_noise(key, count, std, mode)))


@devices
def test_a_real_spectrograms_noise_is_the_cpus_to_the_last_bit(device: str) -> None:
    keys = np.array([2**64 - 1, 5], dtype=np.uint64)
    there = device_noise(device_keys(keys, device), 224 * 313, 0.02, "table").cpu()
    assert torch.equal(there[0], torch.from_numpy(normal_noise(2**64 - 1, 224 * 313, 0.02)))
    assert torch.equal(there[1], torch.from_numpy(normal_noise(5, 224 * 313, 0.02)))


def exact(count: int, device: str) -> Tensor:
    keys = hash_into_keys(np.zeros(64, dtype=np.uint64), np.arange(64))
    return device_noise(device_keys(keys, device), count, 1.0, "exact").double().cpu()


@devices
def test_exact_noise_is_normal(device: str) -> None:
    """Every hypothesis at about 1 in 100,000, from fixed keys: it passes or fails for good."""
    values = exact(2001, device).flatten()
    count = len(values)
    assert abs(values.mean()) < 4.5 / math.sqrt(count)
    assert abs(values.square().mean() - 1) < 4.5 * math.sqrt(2 / count)
    assert abs((values**3).mean()) < 4.5 * math.sqrt(15 / count)
    assert abs((values**4).mean() - 3) < 4.5 * math.sqrt(96 / count)
    assert values.abs().max() < 6.7
    distances = torch.special.ndtr(values.sort().values) - (torch.arange(count) + 0.5) / count
    assert distances.abs().max() * math.sqrt(count) < 2.5  # Kolmogorov and Smirnov


@devices
def test_exact_noise_is_independent_within_and_between_samples(device: str) -> None:
    values = exact(2000, device)
    limit = 4.5 / math.sqrt(values.numel())
    for lag in (1, 2, 3, 1000):  # values of one word lie 1000 apart
        assert abs((values[:, lag:] * values[:, :-lag]).mean()) < 1.5 * limit
    assert abs((values[1:] * values[:-1]).mean()) < 1.1 * limit
    assert abs((values[:, 1000:].square() * values[:, :1000].square()).mean() - 1) < 12 * limit


@devices
def test_exact_noise_belongs_to_the_key_and_not_to_the_batch(device: str) -> None:
    keys = np.array([3, 8, 2**63 + 1], dtype=np.uint64)
    together = device_noise(device_keys(keys, device), 31, 0.5, "exact")
    alone = device_noise(device_keys(keys[2:], device), 31, 0.5, "exact")
    assert torch.equal(together[2:], alone)
    assert torch.equal(device_noise(device_keys(keys[2:], device), 31, 1.0, "exact"), 2 * alone)
    assert len(set(together.flatten().tolist())) == together.numel()
