"""A loader's state, taken anywhere: another loader goes on with the next batch, as the first would have."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from originals import DrawsAsItGoes, PairDataset, RandomPairDataset, global_states, same, seed_all, tensor_data
from torch.utils.data import DataLoader

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory, WorkerSafeAugmentedDataset


def augmented(base: Any) -> WorkerSafeAugmentedDataset:
    return WorkerSafeAugmentedDataset(base, {"time_mask_param": 2, "p": 0.7})


def ranked(samples: Any, **options: Any) -> Any:
    return OptimalDataLoaderFactory.create_training_loader(
        augmented(samples), 2, distributed=True, rank=1, world_size=2, seed=4, **options
    )


LOADERS: dict[str, Callable[[], Any]] = {
    "in memory": lambda: BatchedDataLoader(augmented(tensor_data(13)), batch_size=2, shuffle=True),
    "threads": lambda: BatchedDataLoader(
        augmented(tensor_data(13)), batch_size=2, shuffle=True, num_workers=2, in_process=True, prefetch_threads=2
    ),
    "as kept workers drew": lambda: BatchedDataLoader(
        augmented(tensor_data(13)), batch_size=2, shuffle=True, num_workers=2, persistent_workers=True, in_process=True
    ),
    "samples that draw": lambda: BatchedDataLoader(RandomPairDataset(13), batch_size=2, shuffle=True),
    "a sampler that draws": lambda: BatchedDataLoader(PairDataset(13), batch_size=2, sampler=DrawsAsItGoes(13)),
    "workers": lambda: BatchedDataLoader(augmented(PairDataset(13)), batch_size=2, shuffle=True, num_workers=2),
    "kept workers": lambda: BatchedDataLoader(
        augmented(PairDataset(13)), batch_size=2, shuffle=True, num_workers=2, persistent_workers=True
    ),
    "workers kept by choice": lambda: BatchedDataLoader(
        augmented(PairDataset(13)), batch_size=2, shuffle=True, num_workers=2, keep_workers=True
    ),
    "a generator": lambda: BatchedDataLoader(
        PairDataset(13), batch_size=2, shuffle=True, num_workers=1, generator=torch.Generator().manual_seed(5)
    ),
    "a rank": lambda: ranked(tensor_data(26)),
    "a rank with workers": lambda: ranked(PairDataset(26), num_workers=1),
}


def rest(loader: Any, batches: Any) -> list[Any]:
    """What a training sees from here on: this epoch's batches, the next epoch's, and its own draws."""
    seen = []
    for epoch in (batches, loader):
        for batch in epoch:
            seen.append((batch, torch.rand(1).item()))
    return seen


@pytest.mark.parametrize(
    ("begun", "taken"),
    [
        (3, 4),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, 0), (1, 4), (3, 1), (3, 7))),
        *(pytest.param(*one, marks=[pytest.mark.slow, pytest.mark.exhaustive]) for one in ((1, 1), (1, 7), (3, 0))),
    ],
)
@pytest.mark.parametrize("kind", LOADERS)
def test_the_rest_of_an_epoch_is_what_would_have_come(kind: str, begun: int, taken: int) -> None:
    seed_all(2)
    with LOADERS[kind]() as loader:
        for _ in range(begun - 1):
            list(loader)
        batches = iter(loader)
        for _ in range(taken):
            next(batches)
            torch.rand(1)
        file = io.BytesIO()
        torch.save({"loader": loader.state_dict(), "own": own_state(loader)}, file)
        outside = torch.get_rng_state(), np.random.get_state(), random.getstate()
        expected = rest(loader, batches), global_states()

    seed_all(99)
    with LOADERS[kind]() as resumed:
        file.seek(0)
        state = torch.load(file, weights_only=True)
        resumed.load_state_dict(state["loader"])
        if state["own"] is not None:
            resumed.generator.set_state(state["own"])
        torch.set_rng_state(outside[0])
        np.random.set_state(outside[1])
        random.setstate(outside[2])
        # An epoch of which all was taken is over: the next one is the first of the new loader.
        batches = () if "taken" not in state["loader"] else iter(resumed)
        assert same(rest(resumed, batches), expected[0])
        assert global_states() == expected[1]


def own_state(loader: DataLoader[Any]) -> Any:
    """The state of a generator of the caller's, which is his to keep."""
    return None if loader.generator is None else loader.generator.get_state()


def test_batches_without_an_order_are_refused() -> None:
    with BatchedDataLoader(PairDataset(9), num_workers=2, in_order=False) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(ValueError, match="in_order=False"):
            loader.state_dict()
        list(batches)
        assert "taken" not in loader.state_dict()


def test_an_epoch_broken_off_and_dropped_is_over() -> None:
    loader = BatchedDataLoader(PairDataset(9))
    for _ in loader:
        break
    assert loader.state_dict() == {"epochs_begun": 1, "base_seed": None}


def test_the_state_of_something_else_is_refused() -> None:
    with pytest.raises(KeyError):
        BatchedDataLoader(PairDataset(3)).load_state_dict({"model": 1})
