"""Loaders of one rank, made here for each rank in turn. Real ranks are in ``test_distributed_ranks.py``."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import PairDataset, global_states, same, seed_all, tensor_data
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory, WorkerSafeAugmentedDataset
from chirpid_patch.distributed.epochs import RankEpochs
from chirpid_patch.distributed.sampling import RankShare, evaluation_sampler
from chirpid_patch.recipes.optimized_loader import create_optimized_dataloader, get_optimal_num_workers

Factory = OptimalDataLoaderFactory
EVALUATE = [Factory.create_validation_loader, Factory.create_test_loader]
BecomeRank = Callable[[int, int], None]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> BecomeRank:
    """Lets this process be a rank as torchrun starts it."""

    def as_torchrun_says(rank: int, world_size: int) -> None:
        for variable, value in (("RANK", rank), ("WORLD_SIZE", world_size), ("LOCAL_WORLD_SIZE", world_size)):
            monkeypatch.setenv(variable, str(value))

    return as_torchrun_says


def numbered(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def augmented(count: int = 12) -> WorkerSafeAugmentedDataset:
    parameters = {"spec_augment_params": {"p": 1.0}, "gaussian_noise_params": {"p": 1.0}}
    return WorkerSafeAugmentedDataset(tensor_data(count), parameters)


def numbers(loader: Any) -> list[int]:
    return [int(number) for (batch,) in loader for number in batch]


class Draws(Dataset[Any]):
    """Samples that are one draw from each global generator."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(1, dtype=torch.float64))


def draws(loader: Any) -> list[float]:
    return [float(draw) for batch in loader for part in batch for draw in part]


class TestTraining:
    @pytest.mark.parametrize(("samples", "ranks"), [(12, 2), (12, 3), (7, 2), (8, 3), (2, 3)])
    def test_ranks_have_equally_many_batches_and_all_samples_between_them(
        self, samples: int, ranks: int, become: BecomeRank
    ) -> None:
        seen, lengths = Counter[int](), set()
        for rank in range(ranks):
            become(rank, ranks)
            loader = Factory.create_training_loader(numbered(samples), 2, distributed=True)
            own = numbers(loader)
            lengths.add((len(loader), len(own)))
            seen.update(own)
        assert len(lengths) == 1
        assert sorted(seen) == list(range(samples))
        assert seen.total() - samples == -samples % ranks  # repeated, so that no rank waits for another in vain

    def test_drop_last_leaves_out_what_not_every_rank_can_have(self, become: BecomeRank) -> None:
        seen: list[int] = []
        for rank in range(3):
            become(rank, 3)
            loader = Factory.create_training_loader(numbered(16), 2, drop_last=True, distributed=True)
            assert len(loader) == 2
            seen += numbers(loader)
        assert len(seen) == len(set(seen)) == 12

    def test_order_differs_between_epochs_and_repeats_with_the_seed(self, become: BecomeRank) -> None:
        become(1, 2)

        def epochs(seed: int) -> list[list[int]]:
            loader = Factory.create_training_loader(numbered(40), 4, distributed=True, seed=seed)
            return [numbers(loader) for _ in range(3)]

        first = epochs(1)
        assert len({tuple(epoch) for epoch in first}) == 3
        seed_all(99)  # of which nothing depends
        assert epochs(1) == first
        assert epochs(2) != first

    def test_epochs_are_those_of_pytorchs_sampler_told_the_epoch(self, become: BecomeRank) -> None:
        become(0, 2)
        loader = create_optimized_dataloader(numbered(20), 3, seed=4)
        plain: DistributedSampler[Any] = DistributedSampler(numbered(20), 2, 0, seed=4, drop_last=True)
        for epoch in range(3):
            plain.set_epoch(epoch)
            assert numbers(loader) == list(plain)[:9]

    def test_the_callers_set_epoch_is_obeyed(self, become: BecomeRank) -> None:
        become(0, 2)
        counted = create_optimized_dataloader(numbered(20), 3)
        expected = [numbers(counted) for _ in range(5)]

        loader = create_optimized_dataloader(numbered(20), 3)
        seen = []
        for epoch in (0, 1, 1, 4, 3):
            if isinstance(loader.sampler, DistributedSampler):  # as in the guide
                loader.sampler.set_epoch(epoch)
            seen.append(numbers(loader))
        assert seen == [expected[epoch] for epoch in (0, 1, 1, 4, 3)]
        assert numbers(loader) == expected[4]  # and from there it counts on

    def test_a_look_at_a_batch_is_no_epoch_and_changes_none(self, become: BecomeRank) -> None:
        become(0, 2)

        def epochs(looks: int) -> list[Any]:
            loader = create_optimized_dataloader(augmented(), 2)
            found = []
            for _ in range(2):
                for _ in range(looks):
                    next(iter(loader))
                found.append(list(loader))
            return found

        assert same(epochs(looks=2), epochs(looks=0))

    def test_an_epoch_broken_off_is_one_and_iterations_within_another_have_its_epoch(self, become: BecomeRank) -> None:
        become(0, 2)
        make = partial(Factory.create_training_loader, numbered(20), 3, distributed=True)
        counted = make()
        first, second, third = ([batch.tolist() for (batch,) in counted] for _ in range(3))
        loader = make()
        for count, (batch,) in enumerate(loader):
            assert batch.tolist() == first[count]
            if count == 1:
                break
        pairs = [(left.tolist(), right.tolist()) for (left,), (right,) in zip(loader, loader, strict=True)]
        assert pairs == list(zip(second, second, strict=True))
        assert [batch.tolist() for (batch,) in loader] == third

    @pytest.mark.parametrize(
        "options",
        [{}, {"prefetch_threads": 1}, {"num_workers": 2, "persistent_workers": True}],
        ids=["here", "threads", "persistent before"],
    )
    def test_resumed_epochs_are_those_of_the_uninterrupted_run(
        self, options: dict[str, Any], become: BecomeRank
    ) -> None:
        become(1, 2)
        whole = Factory.create_training_loader(augmented(), 2, distributed=True, seed=3, **options)
        assert isinstance(whole, BatchedDataLoader)
        epochs = [list(whole) for _ in range(2)]
        state = whole.state_dict()
        epochs += [list(whole) for _ in range(2)]

        told = Factory.create_training_loader(augmented(), 2, distributed=True, seed=3, **options)
        assert isinstance(told.sampler, DistributedSampler)
        told.sampler.set_epoch(2)
        restored = Factory.create_training_loader(augmented(), 2, distributed=True, seed=3, **options)
        assert isinstance(restored, BatchedDataLoader)
        restored.load_state_dict(state)
        for loader in (told, restored):
            assert same([list(loader) for _ in range(2)], epochs[2:])

    @pytest.mark.parametrize("persistent", [False, True])
    def test_resumed_workers_augment_as_the_uninterrupted_ones(self, persistent: bool, become: BecomeRank) -> None:
        become(1, 2)

        def loader(workers: int) -> BatchedDataLoader[Any]:
            made = Factory.create_training_loader(
                augmented(), 2, distributed=True, persistent_workers=persistent, num_workers=1
            )
            assert isinstance(made, BatchedDataLoader)
            made.in_process = not workers  # samples in memory need none
            assert made.worker_processes == workers
            return made

        here = loader(0)
        epochs = [list(here) for _ in range(3)]
        with loader(1) as resumed:
            resumed.sampler.set_epoch(1)  # type: ignore[attr-defined]
            assert same([list(resumed) for _ in range(2)], epochs[1:])

    def test_a_sampler_of_the_callers_own_is_kept_and_told_the_epoch(self, become: BecomeRank) -> None:
        become(0, 2)
        sampler: DistributedSampler[Any] = DistributedSampler(numbered(20), 2, 0, seed=8)
        loader = Factory.create_training_loader(numbered(20), 4, sampler=sampler, distributed=True)
        assert loader.sampler is sampler
        assert numbers(loader) != numbers(loader)

    def test_trap_03_no_rank_has_an_epoch_without_samples(self, become: BecomeRank) -> None:
        become(0, 2)
        assert len(numbers(Factory.create_training_loader(numbered(6), 4, distributed=True))) == 3
        become(2, 3)
        with pytest.warns(UserWarning, match=r"drop_last=True would drop all 2 samples, because there are 3 ranks"):
            loader = Factory.create_training_loader(numbered(2), 1, drop_last=True, distributed=True)
        assert len(numbers(loader)) == 1

    def test_without_optimisation_pytorchs_own_loader_has_the_ranks_samples(self, become: BecomeRank) -> None:
        become(1, 2)
        loader = Factory.create_training_loader(numbered(9), 2, distributed=True, optimize=False)
        assert type(loader) is DataLoader
        assert isinstance(loader.sampler, DistributedSampler)
        assert len(numbers(loader)) == 5


class TestEvaluation:
    @settings(max_examples=60)
    @given(samples=st.integers(0, 30), ranks=st.integers(1, 9), shuffle=st.booleans())
    def test_every_sample_is_on_exactly_one_rank(self, samples: int, ranks: int, shuffle: bool) -> None:
        samplers = [
            evaluation_sampler(numbered(samples), RankShare(rank, ranks, 0), shuffle=shuffle) for rank in range(ranks)
        ]
        own = [list(sampler) for sampler in samplers]
        assert [len(sampler) for sampler in samplers] == [len(part) for part in own]
        assert sorted(index for part in own for index in part) == list(range(samples))
        assert max(map(len, own)) - min(map(len, own)) <= 1

    @pytest.mark.parametrize("create", EVALUATE)
    def test_trap_02_nothing_is_dropped_and_nothing_padded(self, create: Any, become: BecomeRank) -> None:
        seen = []
        for rank in range(3):
            become(rank, 3)
            with pytest.warns(UserWarning, match="validation and test read every sample"):
                loader = create(numbered(7), 2, drop_last=True, distributed=True)
            assert len(loader) == len(list(loader))
            seen.append(numbers(loader))
        assert seen == [[0, 3, 6], [1, 4], [2, 5]]

    def test_the_guides_function_makes_it(self, become: BecomeRank) -> None:
        become(1, 2)
        loader = create_optimized_dataloader(numbered(5), 2, is_training=False)
        assert [numbers(loader) for _ in range(2)] == [[1, 3]] * 2

    def test_threads_may_load_a_ranks_samples_ahead(self, become: BecomeRank) -> None:
        become(0, 2)
        loader = Factory.create_validation_loader(numbered(40), 2, distributed=True, prefetch_threads=2)
        assert "2 prefetch threads" in loader.decision  # type: ignore[attr-defined]
        assert numbers(loader) == list(range(0, 40, 2))


class TestOneRank:
    def test_the_guides_own_call_works_without_a_device(self) -> None:
        loader = create_optimized_dataloader(
            tensor_data(10), batch_size=4, is_training=True, num_workers=4, world_size=0, rank=0
        )
        assert isinstance(loader, BatchedDataLoader)
        assert isinstance(loader.sampler, RandomSampler)
        assert [len(y) for _, y in loader] == [4, 4]
        loader = create_optimized_dataloader(tensor_data(10), batch_size=4, is_training=False, num_workers=4)
        assert isinstance(loader.sampler, SequentialSampler)
        assert [len(y) for _, y in loader] == [4, 4, 2]

    def test_it_repeats_with_the_seed_and_leaves_the_global_generators_alone(self) -> None:
        def epochs(seed: int) -> list[Any]:
            before = global_states()
            loader = create_optimized_dataloader(augmented(), 4, seed=seed)
            found = [list(loader) for _ in range(2)]
            assert global_states() == before
            return found

        first = epochs(1)
        seed_all(99)
        assert same(epochs(1), first)
        assert not same(epochs(2), first)
        assert not same(first[0], first[1])

    def test_a_call_that_does_not_ask_is_the_same_training_under_torchrun(self, become: BecomeRank) -> None:
        become(1, 2)
        seed_all(3)
        loader = Factory.create_training_loader(numbered(9), 2)
        assert type(loader) is BatchedDataLoader
        found = numbers(loader), global_states()
        seed_all(3)
        assert (numbers(DataLoader(numbered(9), 2, shuffle=True)), global_states()) == found


class TestWhichRank:
    def test_the_launchers_rank_corrects_the_guides_rank_0(self, become: BecomeRank) -> None:
        become(1, 2)
        with pytest.warns(UserWarning, match="rank=0 was passed, but this process is rank 1 of 2"):
            loader = create_optimized_dataloader(numbered(8), 2, is_training=False, world_size=2, rank=0)
        assert numbers(loader) == [1, 3, 5, 7]

    @pytest.mark.parametrize("rank", [1, -1])
    def test_a_rank_that_one_process_does_not_have_is_pointed_out(self, rank: int) -> None:
        with pytest.warns(UserWarning, match=f"rank={rank} was passed, but this process is rank 0 of 1"):
            loader = Factory.create_validation_loader(numbered(4), 2, distributed=True, rank=rank)
        assert numbers(loader) == [0, 1, 2, 3]

    def test_a_part_of_the_ranks_may_share_a_dataset(self, become: BecomeRank) -> None:
        become(5, 8)  # of two groups of four, say
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loader = Factory.create_validation_loader(numbered(8), 2, distributed=True, world_size=4, rank=1)
        assert numbers(loader) == [1, 5]

    def test_ranks_that_no_launcher_tells_of_are_pointed_out(self) -> None:
        with pytest.warns(UserWarning, match="reads only the samples of rank 2"):
            loader = Factory.create_validation_loader(numbered(8), 2, distributed=True, world_size=4, rank=2)
        assert numbers(loader) == [2, 6]

    @pytest.mark.parametrize(
        ("options", "message"),
        [({"world_size": 4}, "also pass rank"), ({"world_size": 4, "rank": 4}, "out of range for 4 ranks")],
    )
    def test_ranks_that_cannot_be_are_refused(self, options: dict[str, int], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Factory.create_training_loader(numbered(8), 2, distributed=True, **options)

    def test_one_rank_may_be_asked_for_among_many(self, become: BecomeRank) -> None:
        become(1, 2)
        loader = create_optimized_dataloader(numbered(4), 2, is_training=False, world_size=1)
        assert numbers(loader) == [0, 1, 2, 3]


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sampler": [1, 2]}, ValueError, "omit sampler and batch_sampler"),
        ({"batch_sampler": BatchSampler(range(4), 2, False)}, ValueError, "omit sampler and batch_sampler"),
        ({"generator": torch.Generator()}, ValueError, "pass seed instead of generator"),
        ({"dataset": Endless()}, TypeError, "IterableDataset"),
        ({"distributed": False, "seed": 1, "rank": 0}, TypeError, "rank and seed without distributed=True"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be_shared_is_refused_whatever_the_number_of_ranks(
    options: dict[str, Any], error: type[Exception], message: str, ranks: int, become: BecomeRank
) -> None:
    become(0, ranks)
    arguments = {"dataset": numbered(4), "distributed": True, **options}
    with pytest.raises(error, match=message):
        Factory.create_training_loader(arguments.pop("dataset"), 2, **arguments)


def test_a_rank_loader_needs_a_ranks_sampler() -> None:
    with pytest.raises(TypeError, match=r"DistributedSampler.*SequentialSampler"):
        BatchedDataLoader(numbered(4), batch_size=2, epochs=RankEpochs(0, 0))


class TestWorkerBudget:
    @pytest.mark.parametrize(
        ("cpus", "ranks", "workers"), [(64, 8, 4), (64, 1, 4), (8, 4, 2), (2, 2, 1), (2, 4, 0), (1, 1, 1)]
    )
    def test_ranks_divide_the_cpus_that_may_be_used(
        self, cpus: int, ranks: int, workers: int, become: BecomeRank, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        become(0, ranks)
        monkeypatch.setattr("chirpid_patch.recipes.optimized_loader.usable_cpus", lambda: cpus)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
        assert get_optimal_num_workers() == workers
        assert get_optimal_num_workers("cpu") == 0

    @pytest.mark.parametrize(("devices", "ranks", "workers"), [(8, 8, 4), (8, 1, 32), (1, 8, 4), (8, 4, 8)])
    def test_there_are_4_for_each_device_of_the_rank(
        self, devices: int, ranks: int, workers: int, become: BecomeRank, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        become(0, ranks)
        monkeypatch.setattr("chirpid_patch.recipes.optimized_loader.usable_cpus", lambda: 1000)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
        assert get_optimal_num_workers() == workers

    @pytest.mark.parametrize(("cpus", "ranks", "workers"), [(16, 4, 3), (16, 1, 8), (4, 4, 0), (2, 4, 0)])
    @pytest.mark.filterwarnings("ignore:This DataLoader will create")
    def test_the_factory_leaves_each_rank_a_cpu_for_its_training(
        self, cpus: int, ranks: int, workers: int, become: BecomeRank, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        become(0, ranks)
        monkeypatch.setattr("chirpid_patch.machine.cpus.usable_cpus", lambda: cpus)
        assert Factory.get_optimal_config(5000, has_augmentation=True)["num_workers"] == workers
        monkeypatch.setattr(
            "chirpid_patch.recipes.optimized_loader.cpus_for_loading", lambda: max(0, cpus // ranks - 1)
        )
        loader: Any = create_optimized_dataloader(PairDataset(1000), 2, num_workers=20)
        assert loader.worker_processes == min(20, max(0, cpus // ranks - 1))
        exact: Any = Factory.create_training_loader(PairDataset(1000), 2, num_workers=20, distributed=True)
        assert exact.worker_processes == 20
