"""What a dataset wraps, and whether it augments."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from chirp_migrate.training.watch.nested_datasets import nested_class_names, unaugmented_dataset
from chirp_migrate.training.watch.samples import has_random_samples
from chirpid_patch import WorkerSafeAugmentedDataset


class Noisy(Dataset[Any]):
    """Samples of another dataset with noise."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        x, y = self.inner[index]
        return x + torch.rand_like(x), y


class Alone(Dataset[Any]):
    """Noise; without noise, each sample takes ``seconds``."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.read = 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> torch.Tensor:
        self.read += 1
        time.sleep(self.seconds)
        return torch.zeros(2) if self.seconds else torch.rand(2)


class ByName(Dataset[Any]):
    """Samples by name, not by number."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, name: str) -> int:
        return {"a": 1, "b": 2}[name]


def test_what_varies_and_what_it_is_made_of() -> None:
    base = TensorDataset(torch.rand(8, 1, 6, 5), torch.arange(8))
    augmented = WorkerSafeAugmentedDataset(Subset(base, range(8)), training=True)
    assert has_random_samples(base, default_collate) is False
    assert has_random_samples(augmented, default_collate) is True
    assert has_random_samples(ByName(), default_collate) is None
    assert nested_class_names(augmented) == "WorkerSafeAugmentedDataset > Subset > TensorDataset"
    switched = unaugmented_dataset(augmented, default_collate)
    assert switched is not None and switched is not augmented and augmented.training
    assert torch.equal(switched[3][0], base[3][0])
    twice = Noisy(Noisy(base))
    assert unaugmented_dataset(twice, default_collate) is base
    assert unaugmented_dataset(Alone(), default_collate) is None


@pytest.mark.parametrize(("longest_s", "read"), [(0.0, 1), (60.0, 18)])
def test_slow_samples_are_read_only_for_a_while(longest_s: float, read: int) -> None:
    slow = Alone(seconds=1e-3)
    assert has_random_samples(slow, default_collate, longest_s) is False and slow.read == read
