"""Samples of any kind come as from PyTorch's loader: without workers, and where its workers would have read them."""

from __future__ import annotations

import random
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from originals import StandardizedSubset, same, seed_all
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset
from torch.utils.data._utils.collate import default_collate_fn_map

from chirpid_patch import (
    BatchedDataLoader,
    OptimalDataLoaderFactory,
    Standardize,
    WorkerSafeAugmentedDataset,
    WorkerSafeSequenceDataset,
    WorkerSafeStandardizedDataset,
    collate_pairs,
    lists_samples,
    standardizes_samples,
)

OURS: dict[str, Callable[..., Any]] = {
    "ours": BatchedDataLoader,
    "the factory's": OptimalDataLoaderFactory.create_loader,
}
WORKERS = [0, pytest.param(2, id="2 workers")]
SLOW_WORKERS = [0, pytest.param(2, id="2 workers", marks=pytest.mark.slow)]


@pytest.fixture(params=[pytest.param("ours", marks=pytest.mark.slow), "the factory's"])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """What makes the loader."""
    return OURS[request.param]


def outcome(make: Callable[..., Any], dataset: Any, **options: Any) -> Any:
    """The batches of an epoch, or the type of the error that ends it, and what the generators give next."""
    seed_all(5)
    try:
        found: Any = list(make(dataset, batch_size=4, **options))
    except Exception as error:
        found = type(error)
        traceback.clear_frames(error.__traceback__)  # which hold the workers
    return found, random.random(), np.random.rand(), float(torch.rand(()))


def is_same_as_pytorchs(original: Any, dataset: Any, make: Callable[..., Any], **options: Any) -> bool:
    return same(outcome(DataLoader, original, **options), outcome(make, dataset, **options))


# -- indices that are looked up


class Labelled:
    """A column of a table: values that are found by their labels, which are not their places."""

    def __init__(self, values: list[int]) -> None:
        self.values = dict(zip(reversed(range(len(values))), values, strict=True))

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[int]:
        return iter(self.values.values())

    def __getitem__(self, label: int) -> int:
        return self.values[label]


class Offset:
    """Has a length and places, and cannot be iterated over to any end."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, place: int) -> int:
        return 7 - place

    def __iter__(self) -> Iterator[int]:
        raise TypeError("look me up")


@standardizes_samples(dataset="original_dataset", indices="indices", mean="mean", std="std", eps=1e-8)
class DeclaredSubset(Dataset[Any]):
    def __init__(self, original_dataset: Any, indices: Any, mean: Any, std: Any) -> None:
        self.original_dataset = original_dataset
        self.indices = indices
        self.mean = mean
        self.std = std

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, idx: Any) -> Any:
        x, y = self.original_dataset[self.indices[idx]]
        return (x - self.mean) / (self.std + 1e-8), y


LOOKED_UP: dict[str, Callable[[], Any]] = {
    "dict": lambda: {0: 5, 1: 6, 2: 1},
    "dict in another order": lambda: OrderedDict({2: 5, 0: 6, 1: 1}),
    "dict that lacks one": lambda: {0: 5, 2: 1},
    "labelled": lambda: Labelled([7, 8, 9]),
    "no iteration": Offset,
    "text": lambda: ["5", "6"],
    "floats": lambda: np.array([5.0, 6.0]),
    "objects": lambda: np.array([5, 6], dtype=object),
    "unsigned bytes": lambda: torch.tensor([5, 6], dtype=torch.uint8),
    "truths": lambda: [True, False, True],
    "mask": lambda: np.array([True, False, True]),
    "beyond": lambda: [5, 11],
    "below": lambda: [-1, -10],
}


def rows(n: int = 10) -> TensorDataset:
    return TensorDataset(torch.arange(n * 3, dtype=torch.float32).reshape(n, 3), torch.arange(n))


@pytest.mark.parametrize("workers", SLOW_WORKERS)
@pytest.mark.parametrize("kind", [DeclaredSubset, WorkerSafeStandardizedDataset])
@pytest.mark.parametrize("name", LOOKED_UP)
def test_indices_are_looked_up_as_they_were_given(name: str, kind: Any, workers: int) -> None:
    original = StandardizedSubset(rows(), LOOKED_UP[name](), 0.5, 2.0)
    dataset = kind(rows(), LOOKED_UP[name](), 0.5, 2.0)
    assert is_same_as_pytorchs(original, dataset, OptimalDataLoaderFactory.create_loader, num_workers=workers)


def test_indices_of_a_labelled_column_are_found_by_label() -> None:
    pandas = pytest.importorskip("pandas")
    series = pandas.Series([7, 8, 9], index=[2, 1, 0])
    (batch,) = BatchedDataLoader(WorkerSafeStandardizedDataset(rows(), series, 0.0, 1.0), 3)
    assert batch[1].tolist() == [9, 8, 7]


@pytest.mark.parametrize("given", [{3, 1}, iter([3, 1]), map(int, "31"), {3: 0, 1: 0}.keys()], ids=type)
def test_indices_that_can_only_be_iterated_over_are_listed(given: Any) -> None:
    dataset = WorkerSafeStandardizedDataset(rows(), given, 0.0, 1.0)
    assert type(dataset.indices) is list and sorted(dataset.indices) == [1, 3]


# -- the order in which samples are read and transformed


class Draws(Dataset[Any]):
    """Draws for every sample."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        return torch.full((3,), draw(self.source)), index


class Reuses(Dataset[Any]):
    """Every sample is the same memory; an array, as workers that are not forked share the memory of a tensor."""

    def __init__(self) -> None:
        self.memory = np.zeros(3, dtype=np.float32)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        self.memory.fill(index)
        return torch.from_numpy(self.memory), index


class Fails(Dataset[Any]):
    """Fails at the sample after one that cannot be standardised."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            raise LookupError(index)
        return (torch.ones(3) if index != 1 else "no number"), index


def draw(source: str) -> float:
    draws = {"python": random.random, "numpy": np.random.rand, "torch": lambda: torch.rand(())}
    return float(draws[source]())  # type: ignore[operator]


class Jitter:
    """A transform of the user's, which draws."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self, x: Tensor) -> Tensor:
        return x + 10 * draw(self.source)


class Changed(Dataset[Any]):
    """A dataset with a transform, as users write it."""

    def __init__(self, dataset: Any, transform: Any) -> None:
        self.dataset, self.transform = dataset, transform

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        x, y = self.dataset[index]
        return self.transform(x), y


def pairs_of_two_dtypes() -> list[Any]:
    return [(torch.ones(3, dtype=torch.float64 if place == 6 else torch.float32), place) for place in range(10)]


def add_one(x: Tensor) -> Tensor:
    """Works in place."""
    return x.add_(1)


def vary(x: Tensor) -> Tensor:
    """Gives another dtype for some samples."""
    return x.double() if float(x[0]) % 2 else x


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("source", ["python", "numpy", "torch"])
def test_a_transform_draws_between_the_samples(source: str, make: Callable[..., Any], workers: int) -> None:
    transform = Jitter(source)
    original = Changed(Draws(source), transform)
    dataset = WorkerSafeAugmentedDataset(Draws(source), transforms=[transform])
    assert is_same_as_pytorchs(original, dataset, make, num_workers=workers)


@pytest.mark.parametrize("workers", SLOW_WORKERS)
@pytest.mark.parametrize("transform", [add_one, vary])
@pytest.mark.parametrize("base", [rows, Reuses, lambda: Subset(rows(), [4, 4, 1])], ids=["rows", "reused", "subset"])
def test_a_transform_has_each_sample_as_it_was_read(
    base: Callable[[], Any], transform: Any, make: Callable[..., Any], workers: int
) -> None:
    original = Changed(base(), transform)
    dataset = WorkerSafeAugmentedDataset(base(), transforms=[transform])
    assert is_same_as_pytorchs(original, dataset, make, num_workers=workers)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("base", [Reuses, Fails])
def test_each_sample_is_standardised_before_the_next_is_read(
    base: Callable[[], Any], make: Callable[..., Any], workers: int
) -> None:
    original = StandardizedSubset(base(), range(10), 0.5, 2.0)
    dataset = WorkerSafeStandardizedDataset(base(), range(10), 0.5, 2.0)
    assert is_same_as_pytorchs(original, dataset, make, num_workers=workers)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("base", [Reuses, Fails, lambda: WorkerSafeSequenceDataset(pairs_of_two_dtypes())])
def test_a_shipped_transform_has_each_sample_before_the_next_is_read(
    base: Callable[[], Any], make: Callable[..., Any], workers: int
) -> None:
    transform = Standardize(0.5, 2.0)
    dataset = WorkerSafeAugmentedDataset(base(), transforms=[transform])
    assert is_same_as_pytorchs(Changed(base(), transform), dataset, make, num_workers=workers)


# -- what samples are put together to


@lists_samples("samples")
class Listed(Dataset[Any]):
    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> Any:
        return self.samples[index]


def vector(**options: Any) -> Tensor:
    return torch.ones(2, **options)


MIXED: dict[str, Callable[[], list[Any]]] = {
    "float32, float64": lambda: [vector(), vector(dtype=torch.float64) / 3],
    "float64, float16": lambda: [vector(dtype=torch.float64) / 3, vector(dtype=torch.float16) / 3],
    "int64, float32": lambda: [vector(dtype=torch.int64), vector()],
    "bool, uint8": lambda: [vector(dtype=torch.bool), vector(dtype=torch.uint8)],
    "float, complex": lambda: [vector(), vector(dtype=torch.complex64)],
    "one requires grad": lambda: [vector(), vector(requires_grad=True)],
    "all require grad": lambda: [vector(requires_grad=True), vector(requires_grad=True)],
    "conjugate": lambda: [vector(dtype=torch.complex64).conj()] * 2,
    "longer, shorter": lambda: [torch.ones(3), torch.ones(2)],
    "shorter, longer": lambda: [torch.ones(2), torch.ones(3)],
    "one number and one axis": lambda: [torch.tensor(1.0), torch.ones(1)],
    "sparse": lambda: [vector().to_sparse()] * 2,
    "video": lambda: list(torch.rand(2, 3, 4, 5, 6).transpose(2, 4)),
    "channels last": lambda: [torch.rand(7, 3, 5, 6).contiguous(memory_format=torch.channels_last)] * 2,
    "arrays": lambda: [np.ones(2, dtype=np.float32), np.ones(2) / 3],
    "reversed arrays": lambda: [np.arange(3.0)[::-1]] * 2,
    "arrays of int and float": lambda: [np.ones(2, dtype=np.int32), np.ones(2)],
    "tensor, int": lambda: [torch.tensor(1), 2],
    "int, tensor": lambda: [1, torch.tensor(2)],
    "tensor, array": lambda: [vector(), np.ones(2)],
    "int, float": lambda: [1, 2.5],
    "bool, int": lambda: [True, 2],
    "numbers of numpy": lambda: [np.float32(1), np.float64(1 / 3)],
    "int, number of numpy": lambda: [1, np.int16(2)],
    "text, int": lambda: ["a", 1],
    "int, text": lambda: [1, "a"],
    "None": lambda: [None, None],
    "too large": lambda: [1, 2**64],
    "dicts": lambda: [{"a": vector()}, {"a": vector(dtype=torch.float64)}],
    "dicts of other keys": lambda: [{"a": 1}, {"b": 1}],
    "tuples of other lengths": lambda: [(1, 2), (1,)],
}
#: Workers that are not forked are sent ordinary tensors instead; a loader without workers does what forked ones do.
BY_FORK = pytest.param("conjugate", marks=pytest.mark.start_method("fork", reason="pickling resolves the conjugation"))

HELD: dict[str, Callable[[Any], Any]] = {
    "declared": Listed,
    "shipped": WorkerSafeSequenceDataset,
    "joined": lambda samples: ConcatDataset([WorkerSafeSequenceDataset([one]) for one in samples]),
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("place", ["x", *(pytest.param(one, marks=pytest.mark.slow) for one in ("y", "alone"))])
@pytest.mark.parametrize("name", [BY_FORK if one == "conjugate" else one for one in MIXED])
def test_samples_of_several_kinds_are_put_together_as_by_pytorch(name: str, place: str, workers: int) -> None:
    arranged = {"x": lambda one: (one, 1), "y": lambda one: (torch.ones(2), one), "alone": lambda one: one}[place]
    samples = [arranged(one) for one in MIXED[name]() * 2]
    expected = outcome(DataLoader, Listed(samples), num_workers=workers)
    for held in HELD.values():
        assert same(expected, outcome(OptimalDataLoaderFactory.create_loader, held(samples), num_workers=workers))


@pytest.mark.slow
@pytest.mark.parametrize("sample", [lambda x: x, lambda x: (x, 1), lambda x: {"x": [x]}], ids=["alone", "pair", "dict"])
def test_reversed_arrays_are_collated_as_by_workers_that_are_not_forked(sample: Callable[[Any], Any]) -> None:
    samples = [sample(np.arange(3.0)[::-1])] * 4
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    expected = outcome(DataLoader, Listed(samples), **options)
    assert len(expected[0]) == 1
    assert same(expected, outcome(OptimalDataLoaderFactory.create_loader, Listed(samples), **options))


@pytest.mark.parametrize("workers", WORKERS)
def test_rows_of_several_dtypes_are_put_together_as_by_pytorch(make: Callable[..., Any], workers: int) -> None:
    other = TensorDataset(rows().tensors[0].double() / 3, torch.arange(10))
    standardised = WorkerSafeStandardizedDataset(other, range(4), 0.5, 2.0)
    for dataset in (
        ConcatDataset([rows(2), other]),
        ConcatDataset([other, rows(2)]),
        ConcatDataset([rows(2), standardised]),
    ):
        assert is_same_as_pytorchs(dataset, dataset, make, num_workers=workers)


@pytest.mark.parametrize("workers", WORKERS)
def test_rows_of_four_axes_keep_the_layout_that_pytorch_gives_them(make: Callable[..., Any], workers: int) -> None:
    dataset = TensorDataset(torch.rand(5, 7, 5, 6, 3).permute(0, 1, 4, 2, 3), torch.arange(5))
    assert is_same_as_pytorchs(dataset, dataset, make, num_workers=workers)


@pytest.mark.start_method("fork", reason="other workers refuse the samples (docs/loader.md)")
@pytest.mark.parametrize("workers", WORKERS)
def test_no_gradients_are_recorded_where_none_are_wanted(workers: int) -> None:
    samples = [(vector(requires_grad=True), place) for place in range(4)]
    with torch.no_grad():
        assert is_same_as_pytorchs(
            Listed(samples), Listed(samples), OptimalDataLoaderFactory.create_loader, num_workers=workers
        )


def test_a_batch_in_the_place_of_a_workers_shares_no_memory_with_its_samples() -> None:
    samples: list[Any] = ["robin", torch.zeros(2)]
    (batch,) = OptimalDataLoaderFactory.create_loader(Listed(samples), 2, num_workers=1)
    batch[1].fill_(1)
    assert batch[0] == "robin" and samples[1].tolist() == [0, 0]


def test_pairs_are_stacked_only_where_stacking_their_labels_is_possible(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError):
        list(make(Listed([(torch.ones(2), 1)] * 3), 2, collate_fn=collate_pairs))


def first_only(samples: Any, **_: Any) -> Any:
    return samples[0]


@pytest.mark.start_method("fork", reason="other workers do not see what a test changes in this process")
def test_a_changed_collation_is_used_in_the_place_of_workers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(default_collate_fn_map, Tensor, first_only)
    samples = [torch.ones(2), torch.ones(3)]
    (batch,) = OptimalDataLoaderFactory.create_loader(Listed(samples), 2, num_workers=1)
    assert batch is samples[0] or same(batch, samples[0])


#: `make test-start-methods` puts these together by a fork server, which is sent the same.
SENT_ALIKE = [
    pytest.param(one, marks=pytest.mark.exhaustive)
    for one in ("float32, float64", "int64, float32", "all require grad")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SENT_ALIKE, "tensor, int"])
def test_spawned_workers_put_samples_together_alike(name: str) -> None:
    samples = [(one, place) for place, one in enumerate(MIXED[name]())]
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    expected = outcome(DataLoader, Listed(samples), **options)
    for held in (Listed, WorkerSafeSequenceDataset):
        assert same(expected, outcome(OptimalDataLoaderFactory.create_loader, held(samples), **options))


@pytest.mark.slow
def test_spawned_workers_look_indices_up_alike() -> None:
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    original = StandardizedSubset(rows(), Labelled([7, 8, 9]), 0.5, 2.0)
    dataset = WorkerSafeStandardizedDataset(rows(), Labelled([7, 8, 9]), 0.5, 2.0)
    assert is_same_as_pytorchs(original, dataset, OptimalDataLoaderFactory.create_loader, **options)


# -- what the loader is asked for


@pytest.mark.parametrize("prefetch", [0, False, -1, True, 1, 2.0, 0.5, "2"], ids=repr)
def test_batches_ahead_are_refused_where_pytorch_refuses_them(prefetch: Any, make: Callable[..., Any]) -> None:
    for dataset in (rows(), Listed([1, 2, 3])):
        assert is_same_as_pytorchs(dataset, dataset, make, num_workers=1, prefetch_factor=prefetch)


@pytest.mark.parametrize("workers", [0.0, False, True, 0.5, 1.5, "", "1", [], -1, float("nan")], ids=repr)
def test_numbers_of_workers_are_understood_as_by_pytorch(workers: Any, make: Callable[..., Any]) -> None:
    assert is_same_as_pytorchs(rows(), rows(), make, num_workers=workers)


class DrawnIndices:
    """A batch of indices that are drawn when it is iterated over."""

    def __iter__(self) -> Iterator[int]:
        return iter([random.randrange(10), random.randrange(10)])


@pytest.mark.parametrize("workers", WORKERS)
def test_a_batch_of_the_users_own_is_asked_for_its_indices_where_it_is_read(workers: int) -> None:
    batches = [DrawnIndices()] * 3
    seed_all(5)
    expected = list(DataLoader(rows(), batch_sampler=batches, num_workers=workers)), random.random()
    seed_all(5)
    assert same(
        expected, (list(BatchedDataLoader(rows(), batch_sampler=batches, num_workers=workers)), random.random())
    )
