"""Which samples a loader names, through wrappers, samplers and closures; and what a seed decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, Subset, TensorDataset

from chirp_migrate.training.watch.nested_datasets import nested_datasets
from chirp_migrate.verify.equivalence.fingerprint import describe_dataset
from chirp_migrate.verify.equivalence.first_difference import find_lost_seed_dependence
from chirp_migrate.verify.equivalence.loader_recorder import LoaderRecorder
from chirp_migrate.verify.spec import LoaderPassTrace
from chirpid_patch import WorkerSafeAugmentedDataset, WorkerSafeStandardizedDataset

DATA = TensorDataset(torch.arange(60.0).reshape(10, 1, 2, 3), torch.arange(10))
ODD = [1, 3, 5, 7, 9]


def closing_over(dataset: Any) -> Dataset[Any]:
    """A data set that nothing but the closure of ``__getitem__`` leads to."""

    def changed(x: Any, y: Any) -> Any:
        return x + 1, y

    methods = {"__len__": lambda self: len(dataset), "__getitem__": lambda self, i: changed(*dataset[i])}
    return type("Closed", (Dataset,), methods)()  # type: ignore[no-any-return]


class Backwards(Sampler[int]):
    """A sampler of the user's own, by way of another's ``__iter__``."""

    def __iter__(self) -> Iterator[int]:
        yield from reversed(range(5))


class Stubborn(Backwards):
    def __iter__(self) -> Iterator[int]:
        yield from super().__iter__()


def record_of(loader: DataLoader[Any]) -> LoaderPassTrace:
    with LoaderRecorder() as watch:
        list(loader)
        (record,) = watch.take()
    return record


@pytest.mark.parametrize(
    "dataset",
    [
        Subset(DATA, ODD),
        pytest.param(
            closing_over(Subset(DATA, ODD)),
            marks=pytest.mark.start_method("fork", reason="a local class cannot be pickled"),
        ),
        WorkerSafeStandardizedDataset(DATA, ODD, 1.0, 2.0),
        WorkerSafeAugmentedDataset(Subset(DATA, ODD), {"time_mask_param": 2, "freq_mask_param": 1}),
        WorkerSafeStandardizedDataset(Subset(DATA, [9, 7, 5, 3, 1]), [4, 3, 2, 1, 0], 1.0, 2.0),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_indices_are_followed_to_the_lowest_data_set(dataset: Any, workers: int) -> None:
    record = record_of(DataLoader(dataset, batch_size=2, num_workers=workers))
    assert record.indices == [0, 1, 2, 3, 4]
    assert record.base_indices == ODD
    assert record.base == describe_dataset(DATA)
    assert (record.finished, record.available, record.sizes) == (True, 5, [2, 2, 1])


@pytest.mark.parametrize(
    "options, indices",
    [
        ({"sampler": Backwards()}, [4, 3, 2, 1, 0]),
        ({"sampler": Stubborn(), "batch_size": 2}, [4, 3, 2, 1, 0]),
        ({"batch_sampler": BatchSampler(Backwards(), 2, drop_last=True)}, [4, 3, 2, 1]),
        ({"batch_sampler": [[0, 0], [2]]}, []),  # not a sampler: what it gives is not seen, contents are compared
    ],
)
def test_any_sampler_is_seen(options: dict[str, Any], indices: list[int]) -> None:
    assert record_of(DataLoader(Subset(DATA, ODD), **options)).indices == indices


class Named(Dataset[Any]):
    """Samples by name, not by number."""

    names = ("a", "b", "c")

    def __len__(self) -> int:
        return 3

    def __getitem__(self, name: str) -> torch.Tensor:
        return torch.tensor(float(self.names.index(name)))


class Numbered(Dataset[Any]):
    """The same by number."""

    def __init__(self) -> None:
        self.named = Named()

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.named[self.named.names[index]]


@pytest.mark.parametrize("loader", [DataLoader(Named(), sampler=["c", "a", "b"]), DataLoader(Numbered())])
def test_a_data_set_whose_samples_have_names_is_compared_by_its_batches(loader: DataLoader[Any]) -> None:
    record = record_of(loader)
    assert (record.samples, len(set(record.batches)), record.random, record.base) == (3, 3, False, "3")


def test_the_samples_before_augmentation_are_the_same_in_any_order() -> None:
    parameters = {"time_mask_param": 3, "freq_mask_param": 2, "p": 1.0}
    walks = [
        record_of(DataLoader(WorkerSafeAugmentedDataset(Subset(DATA, ODD), parameters), batch_size=2, shuffle=shuffle))
        for shuffle in (False, True)
    ]
    assert walks[0].contents != walks[1].contents
    assert walks[0].plain_contents == walks[1].plain_contents != ""
    assert len(walks[0].paired) == 5


def test_what_has_no_single_data_set_below_is_the_lowest() -> None:
    concatenated = torch.utils.data.ConcatDataset([DATA, DATA])
    assert [level.dataset for level in nested_datasets(concatenated)] == [concatenated]
    longer = WorkerSafeStandardizedDataset(DATA, ODD, 1.0, 2.0)
    longer.indices = [*ODD, 2]
    assert [level.index(5) for level in nested_datasets(longer)] == [5, 2]


@pytest.mark.parametrize(
    "after, aspect",
    [
        ([{"the losses": "1", "result: a": "1"}, {"the losses": "2", "result: a": "2"}], None),
        ([{"the losses": "1", "result: a": "1"}, {"the losses": "1", "result: a": "2"}], "the losses"),
        ([{"the losses": "1", "result: a": "1"}, {"the losses": "2", "result: a": "1"}], "the results"),
        ([], None),
    ],
)
def test_a_seed_that_no_longer_counts(after: list[dict[str, str]], aspect: str | None) -> None:
    before = [
        {"the losses": "1", "result: a": "1", "result: b": "0"},
        {"the losses": "2", "result: a": "2", "result: b": "0"},
    ]
    assert find_lost_seed_dependence(before, after) == aspect


def test_one_value_that_is_equal_by_chance_is_no_sign() -> None:
    before = [{"result: accuracy": "1", "result: loss": "1"}, {"result: accuracy": "2", "result: loss": "2"}]
    after = [{"result: accuracy": "3", "result: loss": "3"}, {"result: accuracy": "3", "result: loss": "4"}]
    assert find_lost_seed_dependence(before, after) is None
