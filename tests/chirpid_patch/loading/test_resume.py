"""A training stopped between two epochs goes on as if it had not been."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from originals import same
from torch.utils.data import TensorDataset

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory, WorkerSafeAugmentedDataset


def loader(**options: Any) -> BatchedDataLoader:
    generator = torch.Generator().manual_seed(1)
    base = TensorDataset(torch.rand(12, 1, 8, 9, generator=generator), torch.arange(12))
    dataset = WorkerSafeAugmentedDataset(base, {"spec_augment_params": {}, "gaussian_noise_params": {}})
    made = OptimalDataLoaderFactory.create_training_loader(dataset, 4, **options)
    assert isinstance(made, BatchedDataLoader)
    return made


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 2, "persistent_workers": True},
    ],
    ids=["here", "workers", "persistent", "persistent before"],
)
def test_resumed_epochs_are_those_of_the_uninterrupted_run(options: dict[str, Any]) -> None:
    torch.manual_seed(4)
    random.seed(4)
    whole = loader(**options)
    expected = []
    for epoch in range(4):
        if epoch == 2:
            saved = torch.get_rng_state(), random.getstate(), whole.state_dict()
        expected.append((list(whole), torch.rand(1)))
    whole.shutdown()

    resumed = loader(**options)
    torch.set_rng_state(saved[0])
    random.setstate(saved[1])
    resumed.load_state_dict(saved[2])
    assert same([(list(resumed), torch.rand(1)) for _ in range(2)], expected[2:])
    resumed.shutdown()


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(KeyError, match="epochs_begun"):
        loader().load_state_dict({"epoch": 3})
