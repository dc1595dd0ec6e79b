"""Data loading as a backend wrote it before migration: what the runtime must equal."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset

from chirpid_patch.randomness.keyed_random import RandomKey


class StandardizedSubset(Dataset[Any]):
    """Standardises each sample as it is read, statistics kept as 0-dim tensors."""

    def __init__(self, original_dataset: Any, indices: Any, mean: Any, std: Any) -> None:
        self.dataset = original_dataset
        self.indices = indices
        self.mean = mean if torch.is_tensor(mean) else torch.tensor(mean, dtype=torch.float32)
        self.std = std if torch.is_tensor(std) else torch.tensor(std, dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, idx: Any) -> Any:
        x, y = self.dataset[self.indices[idx]]
        return (x - self.mean) / (self.std + 1e-8), y


def spec_augment(spec: Tensor, time_param: int, freq_param: int, masks: int, p: float) -> Tensor:
    """SpecAugment drawn from the global ``random``, mask value 0."""
    if random.random() > p:
        return spec
    spec = spec.clone()
    n_freq, n_time = spec.shape[-2:]
    for _ in range(masks):
        width = random.randint(0, min(time_param, n_time))
        start = random.randint(0, n_time - width)
        spec[..., start : start + width] = 0.0
    for _ in range(masks):
        width = random.randint(0, min(freq_param, n_freq))
        start = random.randint(0, n_freq - width)
        spec[..., start : start + width, :] = 0.0
    return spec


def gaussian_noise(x: Tensor, std: float, p: float) -> Tensor:
    """Noise drawn from torch's global generator, clamped to [0, 1]."""
    if random.random() > p:
        return x
    return torch.clamp(x + torch.randn_like(x) * std, 0, 1)


class PairDataset(Dataset[Any]):
    """A user's dataset that knows single samples only: x counts up with the index, y is a Python int."""

    def __init__(self, length: int, shape: tuple[int, ...] = (1, 2, 3)) -> None:
        self.length = length
        self.shape = shape

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self.length:
            raise IndexError(index)
        return torch.full(self.shape, float(index)), int(index)


class RandomPairDataset(PairDataset):
    """Samples that draw from every global generator, as user code in workers does."""

    def __getitem__(self, index: Any) -> Any:
        x, y = super().__getitem__(index)
        return x + torch.rand(1) + random.random() + float(np.random.rand()), y


def tensor_data(n: int, shape: tuple[int, ...] = (1, 4, 6), seed: int = 0) -> TensorDataset:
    """An in-memory dataset that leaves the global generators alone."""
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.rand((n, *shape), generator=generator), torch.randint(0, 5, (n,), generator=generator))


def seed_all(seed: int) -> None:
    """Seed the three global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def global_states() -> tuple[Any, ...]:
    """Comparable states of the three global generators."""
    return torch.get_rng_state().tolist(), pickle.dumps(np.random.get_state()), random.getstate()


def run(loader: DataLoader[Any], epochs: int = 2, seed: int = 3) -> tuple[list[Any], tuple[Any, ...]]:
    """All batches of some epochs, with draws between as in a training loop, and the final states."""
    seed_all(seed)
    seen = []
    for _ in range(epochs):
        for batch in loader:
            seen.append(batch)
            torch.rand(1)
    return seen, global_states()


class DrawsAsItGoes(Sampler[int]):
    """A sampler of the user's that draws from the global generator for every index."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        return (int(torch.randint(self.n, ())) for _ in range(self.n))


def same(left: Any, right: Any) -> bool:
    """Equal to the last bit, containers, dtypes and layouts included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Tensor):
        kinds = (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
        return kinds and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[name]) for name, value in left.items())
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def random_key(seed: int, epoch: int, indices: Sequence[int], occurrences: Sequence[int], rank: int = 0) -> RandomKey:
    """The key of a batch."""
    return RandomKey(seed, epoch, rank, np.asarray(indices, dtype=np.int64), np.asarray(occurrences, dtype=np.int64))
