"""Samples stacked at once: the tensor that torch.stack makes of them, its layout and errors included."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import PairDataset, RandomPairDataset, same, seed_all, tensor_data
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from chirpid_patch import (
    WorkerSafeArrayDataset,
    WorkerSafeAugmentedDataset,
    WorkerSafeSequenceDataset,
    WorkerSafeStandardizedDataset,
    read_labels,
    stack_samples,
    standardized_samples,
)

SIZE = 70
NOISE = {"gaussian_noise_params": {"std": 0.1, "p": 1.0}}


class Halved(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        x, y = super().__getitem__(index)
        return x / 2, y


class Head(TensorDataset):
    """Says that it has fewer samples than iterating over it gives."""

    def __len__(self) -> int:
        return 2


def channels_last() -> TensorDataset:
    images = torch.rand(SIZE, 3, 5, 4).to(memory_format=torch.channels_last)
    return TensorDataset(images, torch.arange(SIZE))


def standardized(base: Any) -> WorkerSafeStandardizedDataset:
    return WorkerSafeStandardizedDataset(base, list(range(SIZE)), 0.4, 0.3)


DATASETS: dict[str, Callable[[], Any]] = {
    "tensors": lambda: tensor_data(SIZE),
    "bytes": lambda: TensorDataset(torch.arange(SIZE * 6, dtype=torch.uint8).view(SIZE, 2, 3), torch.arange(SIZE)),
    "numbers": lambda: TensorDataset(torch.arange(float(SIZE)), torch.arange(SIZE)),
    "three columns": lambda: TensorDataset(*(torch.rand(SIZE, 2) for _ in range(3))),
    "a part of a part": lambda: Subset(Subset(tensor_data(2 * SIZE), range(0, 2 * SIZE, 2)), list(range(SIZE))[::-1]),
    "parts": lambda: ConcatDataset([tensor_data(40), tensor_data(30)]),
    "channels last": channels_last,
    "another length": lambda: Head(torch.rand(SIZE, 2), torch.arange(SIZE)),
    "ours over another length": lambda: WorkerSafeAugmentedDataset(
        Head(torch.rand(SIZE, 2), torch.arange(SIZE)), NOISE, training=False
    ),
    "a subclass": lambda: Halved(torch.rand(SIZE, 2), torch.arange(SIZE)),
    "with gradients": lambda: TensorDataset(torch.rand(SIZE, 2, requires_grad=True), torch.arange(SIZE)),
    "the user's": lambda: PairDataset(SIZE),
    "standardised": lambda: standardized(tensor_data(SIZE)),
    "standardised channels last": lambda: standardized(channels_last()),
    "standardised samples of the user's": lambda: standardized(PairDataset(SIZE)),
    "a list": lambda: WorkerSafeSequenceDataset([(torch.full((2,), float(i)), i) for i in range(SIZE)]),
    "a sequence": lambda: WorkerSafeSequenceDataset(standardized(tensor_data(SIZE))),
    "an array": lambda: WorkerSafeArrayDataset(np.random.rand(SIZE, 3).astype(np.float32), np.arange(SIZE)),
    "augmentation off": lambda: WorkerSafeAugmentedDataset(tensor_data(SIZE), NOISE, training=False),
}


def assert_equal(actual: Tensor, expected: Tensor) -> None:
    assert torch.equal(actual, expected)
    assert (actual.dtype, actual.stride()) == (expected.dtype, expected.stride())
    assert actual.requires_grad == expected.requires_grad
    if actual.is_floating_point():
        assert torch.equal(actual.mean(), expected.mean()) and torch.equal(actual.std(), expected.std())


@pytest.mark.parametrize("name", DATASETS)
@given(indices=st.lists(st.integers(-SIZE, SIZE - 1), min_size=2, max_size=2 * SIZE))
@settings(max_examples=20)
def test_it_is_the_stack_of_the_samples(name: str, indices: list[int]) -> None:
    dataset = DATASETS[name]()
    if name in ("parts", "an array", "the user's", "standardised samples of the user's"):
        indices = [index % SIZE for index in indices]
    for given_ in (indices, np.array(indices), torch.tensor(indices), iter(indices), (index for index in indices)):
        assert_equal(stack_samples(dataset, given_), torch.stack([dataset[i][0] for i in indices]))


def test_indices_that_are_drawn_between_samples_are_drawn_there() -> None:
    dataset = RandomPairDataset(9)
    seed_all(4)
    expected = torch.stack([dataset[i][0] for i in (int(torch.randint(9, ())) for _ in range(5))])
    seed_all(4)
    assert torch.equal(stack_samples(dataset, (int(torch.randint(9, ())) for _ in range(5))), expected)


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"three columns"}))
def test_without_indices_it_is_the_stack_of_all(name: str) -> None:
    dataset = DATASETS[name]()
    assert_equal(stack_samples(dataset), torch.stack([x for x, _ in dataset]))


@pytest.mark.parametrize(
    "indices", [[0, 3, SIZE, 1], [0, -SIZE - 1], range(SIZE + 5), np.array([2, 2, 900, 3]), [SIZE]]
)
@pytest.mark.parametrize("around", [lambda dataset: dataset, lambda dataset: Subset(dataset, range(len(dataset)))])
@pytest.mark.parametrize("make", [Subset, lambda base, indices: WorkerSafeStandardizedDataset(base, indices, 0.4, 0.3)])
def test_an_index_that_the_dataset_refuses_ends_the_iteration(
    make: Callable[[Any, Any], Any], around: Callable[[Any], Any], indices: Any
) -> None:
    dataset = around(make(tensor_data(SIZE), indices))

    def outcome(call: Callable[[], Tensor]) -> Any:
        try:
            return call()
        except RuntimeError as error:  # there is nothing to stack
            return type(error)

    assert same(outcome(lambda: stack_samples(dataset)), outcome(lambda: torch.stack([x for x, _ in dataset])))


def test_none_is_no_way_to_ask_for_all() -> None:
    dataset = TensorDataset(torch.zeros(3, 2), torch.zeros(3))
    for read in (stack_samples, read_labels, partial(standardized_samples, mean=0.0, std=1.0)):
        with pytest.raises(TypeError, match="'NoneType' object is not iterable"):
            read(dataset, None)  # type: ignore[operator]


def test_it_is_a_copy() -> None:
    dataset = tensor_data(5)
    before = dataset.tensors[0].clone()
    stack_samples(dataset, range(5)).zero_()
    assert torch.equal(dataset.tensors[0], before)


@pytest.mark.parametrize(
    "make", [lambda: RandomPairDataset(9), lambda: WorkerSafeAugmentedDataset(tensor_data(9), NOISE)]
)
def test_what_is_random_is_drawn_as_ever(make: Callable[[], Dataset[Any]]) -> None:
    dataset = make()
    seed_all(4)
    expected = torch.stack([dataset[i][0] for i in range(9)])
    seed_all(4)
    assert torch.equal(stack_samples(dataset, range(9)), expected)


@pytest.mark.parametrize("name", ["tensors", "a part of a part", "standardised", "the user's"])
@pytest.mark.parametrize("indices", [[], [0, SIZE], [1, -SIZE - 1], [0, "one"]])
def test_errors_are_those_of_the_samples(name: str, indices: list[Any]) -> None:
    dataset = DATASETS[name]()
    with pytest.raises(Exception) as expected:
        torch.stack([dataset[i][0] for i in indices])
    with pytest.raises(expected.type):
        stack_samples(dataset, indices)


def test_samples_of_another_form_are_refused_as_taking_them_apart_does() -> None:
    with pytest.raises(ValueError, match="unpack"):
        stack_samples(DATASETS["three columns"]())


def standardized_by_a_loop(dataset: Any, indices: Any, mean: Any, std: Any) -> list[Any]:
    samples = []
    for i in indices:
        x, y = dataset[i]
        samples.append(((x - mean) / (std + 1e-8), y))
    return samples


def standardized_by_reading_twice(dataset: Any, indices: Any, mean: Any, std: Any) -> list[Any]:
    return [((dataset[i][0] - mean) / (std + 1e-8), dataset[i][1]) for i in indices]


FORMS = [(standardized_by_a_loop, {"reads": 1}), (standardized_by_reading_twice, {"reads": 2})]


@pytest.mark.parametrize(("form", "options"), FORMS)
@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"three columns"}))
def test_standardised_samples_are_those_of_the_code_they_replace(name: str, form: Any, options: dict[str, Any]) -> None:
    dataset = DATASETS[name]()
    made = standardized_samples(dataset, [3, 1, 3, 60], 0.25, torch.tensor(0.5), eps=1e-8, **options)
    assert same(made, form(dataset, [3, 1, 3, 60], 0.25, torch.tensor(0.5)))


@pytest.mark.parametrize(("form", "options"), FORMS)
def test_standardised_samples_that_are_random_are_drawn_as_ever(form: Any, options: dict[str, Any]) -> None:
    dataset = RandomPairDataset(9)
    seed_all(4)
    expected = form(dataset, range(9), 0.5, 2.0)
    state = torch.get_rng_state()
    seed_all(4)
    assert same(standardized_samples(dataset, range(9), 0.5, 2.0, eps=1e-8, **options), expected)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("form", "options"), FORMS)
@pytest.mark.parametrize("indices", [[0, SIZE], [None], 3])
@pytest.mark.parametrize("name", ["tensors", "the user's", "three columns"])
def test_standardising_raises_what_the_code_raised(name: str, indices: Any, form: Any, options: dict[str, Any]) -> None:
    def raised(call: Callable[[], Any]) -> str:
        try:
            call()
        except Exception as error:
            return type(error).__name__
        return "nothing"

    dataset = DATASETS[name]()
    expected = raised(lambda: form(dataset, indices, 0.5, 2.0))
    assert raised(lambda: standardized_samples(dataset, indices, 0.5, 2.0, eps=1e-8, **options)) == expected


def test_without_samples_nothing_is_computed() -> None:
    assert standardized_samples([], ..., None, None) == standardized_samples({}, [], None, None, eps=1.0) == []
    assert standardized_samples(tensor_data(SIZE), [], 0.5, 2.0) == []
