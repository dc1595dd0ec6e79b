"""A migrated loader gives the original's batches, bit for bit, and leaves every generator as it would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import (
    PairDataset,
    RandomPairDataset,
    StandardizedSubset,
    global_states,
    run,
    same,
    seed_all,
    tensor_data,
)
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory, WorkerSafeStandardizedDataset

Factory = OptimalDataLoaderFactory


def old_and_new(n: int) -> tuple[Any, Any]:
    data, indices = tensor_data(n), np.random.RandomState(n).permutation(n)
    return (
        StandardizedSubset(data, indices, 0.3, 0.2),
        WorkerSafeStandardizedDataset(data, indices, torch.tensor(0.3), torch.tensor(0.2)),
    )


@settings(max_examples=60)
@given(
    n=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    seed=st.integers(0, 2**40),
)
def test_without_workers(n: int, batch_size: int, shuffle: bool, drop_last: bool, seed: int) -> None:
    drop_last = drop_last and n >= batch_size  # the factory keeps a lone short batch, see test_traps.py
    old, new = old_and_new(n)
    expected = run(DataLoader(old, batch_size, shuffle=shuffle, drop_last=drop_last), seed=seed)
    loader = Factory.create_training_loader(new, batch_size, shuffle=shuffle, drop_last=drop_last)
    batches, states = run(loader, seed=seed)
    assert same(batches, expected[0])
    assert states == expected[1]


@pytest.mark.slow
@settings(max_examples=8)
@given(
    n=st.integers(1, 30),
    batch_size=st.integers(1, 12),
    shuffle=st.booleans(),
    persistent=st.booleans(),
    workers=st.integers(1, 2),
)
@pytest.mark.parametrize("machinery", ["in process", "workers"])
def test_original_with_workers(
    machinery: str, n: int, batch_size: int, shuffle: bool, persistent: bool, workers: int
) -> None:
    old, new = old_and_new(n)
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": shuffle, "persistent_workers": persistent}
    expected = run(DataLoader(old, num_workers=workers, **options), epochs=3)
    make: Any = Factory.create_training_loader if machinery == "in process" else BatchedDataLoader
    loader = make(new, num_workers=workers, **options)
    assert loader.worker_processes == (0 if machinery == "in process" else workers)
    batches, states = run(loader, epochs=3)
    assert same(batches, expected[0])
    assert states == expected[1]


class EagerBatches(Sampler[list[int]]):
    """A batch sampler that draws at once when its iterator is asked for."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return (self.n + 3) // 4

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.n).tolist()
        return iter([order[start : start + 4] for start in range(0, self.n, 4)])


class LateSampler(Sampler[int]):
    """A sampler that draws each index only when it is asked for."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.n):
            yield int(torch.randint(0, self.n, ()))


def samplings(n: int) -> dict[str, dict[str, Any]]:
    return {
        "weighted": {"batch_size": 4, "sampler": WeightedRandomSampler([1.0] * n, n)},
        "with replacement": {"batch_size": 4, "sampler": RandomSampler(range(n), replacement=True)},
        "subset": {"batch_size": 4, "sampler": SubsetRandomSampler(range(0, n, 2))},
        "list": {"batch_size": 4, "sampler": [3, 1, 1, 0, 2]},
        "late": {"batch_size": 4, "sampler": LateSampler(n)},
        "batch sampler": {"batch_sampler": BatchSampler(SequentialSampler(range(n)), 4, False)},
        "eager batch sampler": {"batch_sampler": EagerBatches(n)},
        "generator": {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(5)},
        "no batches": {"batch_size": None, "sampler": LateSampler(n)},
        "batches by the dataset": {"batch_size": None, "sampler": BatchSampler(range(n), 4, False)},
        "custom collation": {"batch_size": 4, "shuffle": True, "collate_fn": tuple},
    }


WORKERS = {"num_workers": 2}
PERSISTENT = {"num_workers": 2, "persistent_workers": True}
#: Those whose order of drawing workers could change.
SHORT = ("late", "eager batch sampler", "generator", "batches by the dataset")


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        *((name, {}) for name in samplings(1)),
        *((name, WORKERS) for name in SHORT),
        *(pytest.param(name, WORKERS, marks=pytest.mark.slow) for name in samplings(1) if name not in SHORT),
        *(pytest.param(name, PERSISTENT, marks=pytest.mark.slow) for name in samplings(1)),
    ],
    ids=str,
)
def test_every_way_of_sampling(name: str, workers: dict[str, Any]) -> None:
    n = 13
    dataset: Any = tensor_data(n)
    expected = run(DataLoader(dataset, **samplings(n)[name], **workers))
    makers: tuple[Any, ...] = (Factory.create_training_loader, BatchedDataLoader)
    for make in makers:
        options = {"shuffle": False, **samplings(n)[name], **workers}
        if "sampler" in options or "batch_sampler" in options:
            options.pop("shuffle")
        batches, states = run(make(dataset, **options))
        assert same(batches, expected[0]), make
        assert states == expected[1], make


class Named(Dataset[Any]):
    """Samples looked up by names and by numbers beyond 64 bits."""

    def __getitem__(self, index: Any) -> Any:
        return len(str(index)), torch.tensor(1.0)


@pytest.mark.parametrize("workers", [0, 1])
def test_indices_need_not_be_integers(workers: int) -> None:
    sampler: Any = ["wren", "robin", 2**70, (1, 2), 0.5]
    expected = list(DataLoader(Named(), 2, sampler=sampler))
    loader = BatchedDataLoader(Named(), batch_size=2, sampler=sampler, num_workers=workers)
    assert same(list(loader), expected)


def test_two_loaders_iterated_together_draw_in_the_originals_order() -> None:
    data = tensor_data(9)
    for workers in (0, 1):
        seed_all(0)
        pair = [DataLoader(data, 2, shuffle=True, num_workers=workers) for _ in range(2)]
        expected = list(zip(*pair, strict=True))
        after = global_states()
        seed_all(0)
        ours = [Factory.create_training_loader(data, 2, num_workers=workers) for _ in range(2)]
        assert same(list(zip(*ours, strict=True)), expected)
        assert global_states() == after


@pytest.mark.parametrize("persistent", [False, True])
def test_user_code_that_ran_in_workers_draws_there_as_before(persistent: bool) -> None:
    options: dict[str, Any] = {"batch_size": 3, "shuffle": True, "persistent_workers": persistent}
    expected = run(DataLoader(RandomPairDataset(10), num_workers=2, **options))
    loader = Factory.create_training_loader(RandomPairDataset(10), num_workers=2, **options)
    actual = run(loader)
    assert loader.num_workers == 2
    assert same(actual[0], expected[0]) and actual[1] == expected[1]


def test_user_code_that_ran_in_the_training_process_draws_as_before() -> None:
    dataset = RandomPairDataset(10)
    expected = run(DataLoader(dataset, 3, shuffle=True))
    actual = run(Factory.create_training_loader(dataset, 3))
    assert same(actual[0], expected[0]) and actual[1] == expected[1]


class Stream(IterableDataset[Any]):
    """An iterable dataset that does not split itself among workers."""

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.arange(5.0))


def test_an_iterable_dataset_is_left_to_pytorch_with_the_workers_it_had() -> None:
    for workers in (0, 2):
        expected = run(DataLoader(Stream(), 2, num_workers=workers))
        loader = Factory.create_training_loader(Stream(), 2, num_workers=workers)
        assert loader.num_workers == workers
        actual = run(loader)
        assert same(actual[0], expected[0]) and actual[1] == expected[1]


def test_original_loading_is_given_back_on_request() -> None:
    data = old_and_new(10)[1]
    loader = Factory.create_training_loader(
        data, 3, num_workers=2, persistent_workers=True, optimize=False, has_augmentation=True
    )
    assert type(loader) is DataLoader
    assert (loader.num_workers, loader.persistent_workers) == (2, True)
    assert type(Factory.create_validation_loader(data, 3, optimize=False)) is DataLoader


def test_yielded_batches_belong_to_the_caller() -> None:
    data = tensor_data(12)
    before = data.tensors[0].clone()
    loader = BatchedDataLoader(Subset(data, range(12)), batch_size=12)
    kept = list(loader)
    for x, _ in loader:
        x.zero_()
    assert torch.equal(data.tensors[0], before)
    assert torch.equal(kept[0][0], before)
    pointers = {x.data_ptr() for x, _ in [*kept, *loader]}
    assert len(pointers) == 2


def test_nested_broken_off_and_parallel_iteration_are_independent() -> None:
    loader = BatchedDataLoader(PairDataset(7), batch_size=2)
    outer = []
    for _, y in loader:
        outer.append(y.tolist())
        for _, inner in loader:
            assert inner.tolist() == [0, 1]
            break
    assert outer == [[0, 1], [2, 3], [4, 5], [6]]
    assert [a.tolist() + b.tolist() for (_, a), (_, b) in zip(loader, loader, strict=True)][-1] == [6, 6]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_is_a_data_loader_to_its_callers(workers: int) -> None:
    data = tensor_data(10)
    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    made = Factory.create_training_loader(data, 4, **options)
    assert isinstance(made, DataLoader) and made.num_workers == workers
    loader = BatchedDataLoader(data, batch_size=4, shuffle=True, **options)
    assert isinstance(loader, DataLoader) and loader.worker_processes == workers
    assert (len(loader), loader.batch_size, loader.dataset, loader.drop_last) == (3, 4, data, False)
    assert isinstance(loader.sampler, RandomSampler) and isinstance(loader.batch_sampler, BatchSampler)
    assert (loader.persistent_workers, loader.prefetch_factor) == ((True, 2) if workers else (False, None))
    assert len(iter(loader)) == 3
    loader.shutdown()


@pytest.mark.parametrize("make", [DataLoader, BatchedDataLoader, Factory.create_loader])
def test_a_timeout_without_workers_is_refused_where_batches_are_asked_for(make: Any) -> None:
    loader = make(tensor_data(10), batch_size=4, timeout=5)
    with pytest.raises(AssertionError):
        iter(loader)


@pytest.mark.parametrize("kind", [DataLoader, BatchedDataLoader])
@pytest.mark.parametrize("given", [{}, {"num_workers": 3, "persistent_workers": True, "prefetch_factor": 4}], ids=str)
def test_a_loader_can_be_built_again_from_its_attributes(kind: Any, given: dict[str, Any]) -> None:
    loader = Factory.create_training_loader(tensor_data(10), 4, timeout=300 if given else 0, **given)
    names = ["dataset", "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator"]
    names += ["multiprocessing_context", "prefetch_factor", "persistent_workers"]
    attributes = {name: getattr(loader, name) for name in names}
    sampled = kind(batch_size=4, sampler=loader.sampler, drop_last=loader.drop_last, **attributes)
    batched = kind(batch_sampler=loader.batch_sampler, **attributes)
    assert len(list(sampled)) == len(list(batched)) == 3


@pytest.mark.parametrize("made", [BatchedDataLoader, OptimalDataLoaderFactory.create_loader])
def test_a_constructor_of_pytorchs_that_is_wrapped_gets_names(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As people do to have no workers while they debug: what a call gives by name comes by name."""
    original = DataLoader.__init__

    def without_workers(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **{**kwargs, "num_workers": 0})

    monkeypatch.setattr(DataLoader, "__init__", without_workers)
    loader = made(range(5), batch_size=3, num_workers=2)
    assert loader.num_workers == 0 and [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4]]
