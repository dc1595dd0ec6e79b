"""Several loaders read as one: whose turn it is, what is drawn, one budget of workers."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from originals import PairDataset, same, seed_all
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
)

from chirpid_patch import (
    BatchedDataLoader,
    OptimalDataLoaderFactory,
    worker_init_fn,
)
from chirpid_patch.multi.multi_loader import LoaderBatch, MultiDataLoader, MultiDataLoaderConfig, SamplingStrategy
from chirpid_patch.multi.worker_budget import create_multi_dataloaders, divide_workers

SEQUENTIAL, ROUND_ROBIN, WEIGHTED = SamplingStrategy


def numbers(first: int, count: int) -> TensorDataset:
    """Samples that are their own number."""
    return TensorDataset(torch.arange(first, first + count), torch.arange(count))


def plain(*counts: int, **options: Any) -> list[DataLoader[Any]]:
    """A loader for each count of single samples; the first has 0, 1, …, the second 100, 101, …"""
    return [DataLoader(numbers(100 * place, count), **options) for place, count in enumerate(counts)]


def turns(config: MultiDataLoaderConfig, *counts: int) -> list[int]:
    """The loader of each step of the first epoch."""
    loader = MultiDataLoader(plain(*counts), config)
    order = [batch.dataloader_idx for batch in loader]
    assert len(order) == len(loader)
    return order


# --- whose turn it is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"sampling_strategy": SEQUENTIAL}, "aaab"),
        ({"sampling_strategy": SEQUENTIAL, "cycle_short_loaders": True}, "aaab"),
        ({"sampling_strategy": SEQUENTIAL, "steps_per_epoch": 2}, "aa"),
        ({"sampling_strategy": SEQUENTIAL, "steps_per_epoch": 6, "cycle_short_loaders": True}, "aaabaa"),
        ({"sampling_strategy": ROUND_ROBIN}, "abaa"),
        ({"sampling_strategy": ROUND_ROBIN, "cycle_short_loaders": True}, "ababab"),
        ({"sampling_strategy": ROUND_ROBIN, "steps_per_epoch": 5, "cycle_short_loaders": True}, "ababa"),
        ({"sampling_strategy": ROUND_ROBIN, "steps_per_epoch": 9}, "abaa"),
        ({"sampling_strategy": "weighted", "dataloader_weights": (0, 1)}, "b"),
    ],
)  # fmt: skip
def test_turns_of_a_loader_of_three_batches_and_one_of_one(settings: dict[str, Any], expected: str) -> None:
    assert "".join("ab"[index] for index in turns(MultiDataLoaderConfig(**settings), 3, 1)) == expected


def test_weighted_turns_come_as_often_as_the_weights_say() -> None:
    config = MultiDataLoaderConfig(WEIGHTED, [3.0, 0.0, 1.0], cycle_short_loaders=True, steps_per_epoch=4000)
    counts = Counter(turns(config, 5, 5, 5))
    assert counts[1] == 0
    assert abs(counts[0] - 3000) < 5 * (4000 * 0.75 * 0.25) ** 0.5


@pytest.mark.parametrize("seed", range(5))
def test_weighted_turns_without_cycling_give_every_batch_once(seed: int) -> None:
    loader = MultiDataLoader(plain(7, 2, 4), MultiDataLoaderConfig(WEIGHTED, [1, 5, 1], seed=seed))
    seen = sorted(int(batch[0]) for _, _, batch in loader)
    assert seen == [*range(7), 100, 101, *range(200, 204)]


def test_weighted_turns_differ_from_epoch_to_epoch_and_by_seed_and_repeat() -> None:
    def orders(seed: int) -> list[list[int]]:
        loader = MultiDataLoader(plain(20, 20), MultiDataLoaderConfig(WEIGHTED, seed=seed))
        return [[batch.dataloader_idx for batch in loader] for _ in range(3)]

    first = orders(1)
    assert first == orders(1) != orders(2)
    assert first[0] != first[1] != first[2]


def test_a_cycled_round_robin_reaches_the_end_of_every_loader() -> None:
    loader = MultiDataLoader(plain(2, 5, 3), MultiDataLoaderConfig(ROUND_ROBIN, cycle_short_loaders=True))
    seen = {int(batch[0]) for _, _, batch in loader}
    assert seen == {0, 1, *range(100, 105), 200, 201, 202}
    assert len(loader) == 15


# --- what is read -----------------------------------------------------------------------------------------------


def test_batches_come_with_index_and_name() -> None:
    config = MultiDataLoaderConfig(ROUND_ROBIN, dataloader_names=["day", "night"])
    first, second = list(MultiDataLoader(plain(1, 1), config))
    assert first._fields == LoaderBatch._fields == ("dataloader_idx", "dataloader_name", "batch")
    assert (first.dataloader_idx, first.dataloader_name, int(first.batch[0])) == (0, "day", 0)
    assert (second.dataloader_idx, second.dataloader_name, int(second.batch[0])) == (1, "night", 100)
    assert [batch.dataloader_name for batch in MultiDataLoader(plain(1, 1))] == ["loader_0", "loader_1"]


def test_a_short_loader_begins_again_with_a_new_shuffle() -> None:
    torch.manual_seed(0)
    loaders = [*plain(30), DataLoader(numbers(100, 10), shuffle=True)]
    config = MultiDataLoaderConfig(ROUND_ROBIN, cycle_short_loaders=True)
    short = [int(batch[0]) for index, _, batch in MultiDataLoader(loaders, config) if index == 1]
    passes = [short[start : start + 10] for start in (0, 10, 20)]
    assert all(sorted(one) == list(range(100, 110)) for one in passes)
    assert passes[0] != passes[1] != passes[2]


def test_distributed_samplers_are_told_each_time_their_loader_begins() -> None:
    def share(rank: int) -> list[list[int]]:
        sampler: Any = DistributedSampler(numbers(0, 8), num_replicas=2, rank=rank, seed=3)
        short = OptimalDataLoaderFactory.create_training_loader(numbers(0, 8), 1, sampler=sampler)
        config = MultiDataLoaderConfig(ROUND_ROBIN, cycle_short_loaders=True)
        loader = MultiDataLoader([short, *plain(8)], config)
        return [[int(batch[0]) for index, _, batch in loader if index == 0] for _ in range(2)]

    ranks = [share(0), share(1)]
    epochs = list(zip(*ranks, strict=True))
    passes = [left[half : half + 4] + right[half : half + 4] for left, right in epochs for half in (0, 4)]
    assert all(sorted(one) == list(range(8)) for one in passes)
    assert len({tuple(one) for one in passes}) == 4


def test_the_global_generators_move_as_the_loaders_move_them() -> None:
    def loaders() -> list[DataLoader[Any]]:
        seed_all(5)
        return plain(2, 3, shuffle=True)

    config = MultiDataLoaderConfig(WEIGHTED, seed=9)
    order = [batch.dataloader_idx for batch in MultiDataLoader(loaders(), config)]
    drawn = torch.rand(1), np.random.rand(), random.random()
    alone = loaders()
    for index in dict.fromkeys(order):  # in the order of their first turns
        list(alone[index])
    assert drawn == (torch.rand(1), np.random.rand(), random.random())


def test_workers_change_neither_the_turns_nor_the_batches() -> None:
    def epoch(workers: int) -> list[LoaderBatch]:
        seed_all(2)
        create = OptimalDataLoaderFactory.create_training_loader
        loaders = [create(PairDataset(9), 2, num_workers=workers), create(PairDataset(4), 2, num_workers=workers)]
        with MultiDataLoader(loaders, MultiDataLoaderConfig(WEIGHTED, cycle_short_loaders=True, seed=4)) as loader:
            return list(loader)

    assert same(epoch(0), epoch(1))


class Stream(IterableDataset[int]):
    """Samples without a length."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_a_loader_without_a_length_needs_the_steps_of_an_epoch() -> None:
    loaders = [DataLoader(Stream()), *plain(2)]
    with pytest.raises(TypeError, match="steps_per_epoch"):
        MultiDataLoader(loaders)
    config = MultiDataLoaderConfig(ROUND_ROBIN, cycle_short_loaders=True, steps_per_epoch=8)
    batches = [batch for index, _, batch in MultiDataLoader(loaders, config) if index == 0]
    assert torch.cat(batches).tolist() == [0, 1, 2, 0]


class Overstated(Stream):
    """Says that it has more than it has."""

    def __len__(self) -> int:
        return 5


def test_a_loader_that_ends_early_is_left_out_or_begins_again() -> None:
    loaders = [DataLoader(Overstated()), *plain(5)]
    once = [batch.dataloader_idx for batch in MultiDataLoader(loaders, MultiDataLoaderConfig(ROUND_ROBIN))]
    assert Counter(once) == {0: 3, 1: 5}
    cycled = MultiDataLoaderConfig(ROUND_ROBIN, cycle_short_loaders=True)
    assert Counter(batch.dataloader_idx for batch in MultiDataLoader(loaders, cycled)) == {0: 5, 1: 5}


def test_a_loader_without_batches() -> None:
    loaders = [DataLoader(numbers(0, 0)), *plain(2)]
    assert [batch.dataloader_idx for batch in MultiDataLoader(loaders)] == [1, 1]
    with pytest.raises(ValueError, match="a loader without batches cannot be repeated"):
        MultiDataLoader(loaders, MultiDataLoaderConfig(ROUND_ROBIN, cycle_short_loaders=True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampling_strategy": "random"}, "use one of 'sequential', 'round_robin', 'weighted'"),
        ({"dataloader_names": ["one"]}, "1 names for 2 loaders"),
        ({"dataloader_names": ["one", "one"]}, "a name twice"),
        ({"dataloader_weights": [1.0]}, "1 weights for 2 loaders"),
        ({"dataloader_weights": [0.0, 0.0]}, "must be 0 or more, and one above 0"),
        ({"dataloader_weights": [1.0, float("nan")]}, "must be 0 or more, and one above 0"),
        ({"dataloader_weights": []}, "0 weights for 2 loaders"),
        ({"steps_per_epoch": 0}, "steps_per_epoch must be 1 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiDataLoader(plain(1, 1), MultiDataLoaderConfig(**settings))


def test_no_loaders_are_refused() -> None:
    with pytest.raises(ValueError, match="loader"):
        MultiDataLoader([])


# --- workers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needs", "workers", "most", "expected"),
    [
        ([32, 32], 4, None, [2, 2]),
        ([32, 32, 32], 4, None, [2, 1, 1]),
        ([32, 8], 5, None, [4, 1]),
        ([320, 8], 3, None, [2, 1]),
        ([8, 32, 16], 2, None, [0, 1, 1]),
        ([32, 8], 1, None, [1, 0]),  # the document's max(1, 1 // 2) would start two
        ([32, 0, 8], 4, None, [3, 0, 1]),
        ([32, 32], 4, [1, 4], [1, 3]),
        ([32, 32], 4, [1, 1], [1, 1]),
        ([32, 32], 0, None, [0, 0]),
        ([0, 0], 4, None, [0, 0]),
    ],
)
def test_workers_go_where_there_is_most_to_do(
    needs: list[float], workers: int, most: list[int] | None, expected: list[int]
) -> None:
    assert divide_workers(needs, workers, most) == expected


def test_a_budget_below_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        create_multi_dataloaders({"day": (PairDataset(4), 2)}, num_workers=-1)


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chirpid_patch.machine.cpus.usable_cpus", lambda: 4)


def test_the_documents_call(four_cpus: None) -> None:
    loaders, config = create_multi_dataloaders(
        {"day": (PairDataset(40), 8), "night": (PairDataset(12), 4), "cached": (numbers(0, 8), 4)},
        batch_sizes=None,
        num_workers=4,
    )
    assert config.sampling_strategy is SamplingStrategy.WEIGHTED
    assert config.dataloader_weights == [1.0, 1.0, 1.0] and config.cycle_short_loaders
    assert config.dataloader_names == ["day", "night", "cached"]
    assert all(isinstance(loader, BatchedDataLoader) for loader in loaders)
    assert [loader.num_workers for loader in loaders] == [2, 1, 0]  # of four CPUs one is left to the training
    assert [loader.persistent_workers for loader in loaders] == [True, True, False]
    assert [loader.batch_size for loader in loaders] == [8, 4, 4] and all(loader.drop_last for loader in loaders)
    with MultiDataLoader(loaders, config) as loader:
        assert len(list(loader)) == len(loader) == 5 + 3 + 2


def test_without_workers_the_loaders_are_legal_too() -> None:
    loaders, config = create_multi_dataloaders({"day": PairDataset(4), "night": PairDataset(6)}, 2, num_workers=0)
    assert [loader.num_workers for loader in loaders] == [0, 0]
    assert len(list(MultiDataLoader(loaders, config))) == 5


def test_an_iterable_dataset_gets_one_worker(four_cpus: None) -> None:
    loaders, _ = create_multi_dataloaders({"stream": Stream(), "day": PairDataset(4)}, [16, 2], num_workers=4)
    assert [loader.num_workers for loader in loaders] == [1, 2]


@pytest.mark.parametrize("batch_sizes", [4, [4, 4], {"day": 4, "night": 4}])
def test_batch_sizes_may_be_given_apart(batch_sizes: Any) -> None:
    loaders, _ = create_multi_dataloaders({"day": numbers(0, 8), "night": (numbers(0, 8), 2)}, batch_sizes)
    assert [loader.batch_size for loader in loaders] == [4, 2]


def test_datasets_and_batch_sizes_are_needed() -> None:
    with pytest.raises(ValueError, match="datasets_dict"):
        create_multi_dataloaders({}, 4)
    with pytest.raises(ValueError, match="'night'"):
        create_multi_dataloaders({"day": numbers(0, 8), "night": numbers(0, 8)}, {"day": 4})


def test_a_dataset_smaller_than_its_batch_still_trains() -> None:
    loaders, config = create_multi_dataloaders({"few": numbers(0, 3), "many": numbers(100, 8)}, 4)
    batches = [batch for name, batch in ((one.dataloader_name, one.batch) for one in MultiDataLoader(loaders, config))]
    assert len(batches) == 3


def test_validation_sees_every_sample_once_and_in_order() -> None:
    loaders, config = create_multi_dataloaders({"day": numbers(0, 5), "night": numbers(100, 3)}, 2, is_training=False)
    seen = torch.cat([batch[0] for _, _, batch in MultiDataLoader(loaders, config)])
    assert seen.tolist() == [0, 1, 2, 3, 4, 100, 101, 102]


def test_a_seed_makes_epochs_independent_of_the_global_generators() -> None:
    def epochs(seed: int, outside: int) -> list[Any]:
        seed_all(outside)
        loaders, config = create_multi_dataloaders({"a": numbers(0, 9), "b": numbers(0, 9)}, 1, seed=seed)
        loader = MultiDataLoader(loaders, config)
        return [[(one.dataloader_idx, int(one.batch[0])) for one in loader] for _ in range(2)]

    first = epochs(1, outside=1)
    assert first == epochs(1, outside=2) != epochs(2, outside=1)
    orders = [[number for index, number in first[0] if index == place] for place in range(2)]
    assert orders[0] != orders[1]


def test_shutdown_ends_the_workers(four_cpus: None) -> None:
    datasets = {"a": PairDataset(8), "b": PairDataset(8)}
    # With something to do in each worker process they start at once, whatever the loop is like.
    loaders, config = create_multi_dataloaders(datasets, 2, num_workers=2, worker_init_fn=worker_init_fn)
    loader = MultiDataLoader(loaders, config)
    others = set(multiprocessing.active_children())
    assert len(list(loader)) == len(loader)
    kept = set(multiprocessing.active_children()) - others
    assert len(kept) == 2
    loader.shutdown()
    assert not kept & set(multiprocessing.active_children())
    with loader:
        assert len(list(loader)) == len(loader)
    assert set(multiprocessing.active_children()) <= others
