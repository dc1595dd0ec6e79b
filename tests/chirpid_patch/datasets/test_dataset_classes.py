"""The datasets as the old ones were used: attributes, assignment, pickling, plain loaders."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from originals import PairDataset, StandardizedSubset, same, seed_all, tensor_data
from torch.utils.data import DataLoader, Dataset, default_collate

from chirpid_patch import (
    BatchedDataLoader,
    GaussianNoise,
    SpecAugment,
    WorkerSafeAugmentedDataset,
    WorkerSafeSequenceDataset,
    WorkerSafeStandardizedDataset,
    compute_standardization_stats,
)
from chirpid_patch.datasets.gather import fetch_batch
from chirpid_patch.datasets.samples import load_batch

BOTH = {"spec_augment_params": {"p": 1.0}, "gaussian_noise_params": {"p": 1.0}}


def every_dataset() -> list[Dataset[Any]]:
    data = tensor_data(24)
    standardized = WorkerSafeStandardizedDataset(data, np.arange(24), 0.5, 0.3)
    return [
        standardized,
        WorkerSafeSequenceDataset([data[index] for index in range(24)]),
        WorkerSafeAugmentedDataset(data),
        WorkerSafeAugmentedDataset(standardized, BOTH),
        WorkerSafeStandardizedDataset(data, range(24), np.array(0.25), [0.5]),
    ]


def test_standardized_keeps_the_attributes_of_the_subset_it_replaces() -> None:
    data, indices = tensor_data(10), np.array([4, 2, 9])
    mean, std = torch.tensor(0.1), torch.tensor(0.7)
    dataset = WorkerSafeStandardizedDataset(data, indices, mean, std)
    assert dataset.dataset is dataset.base_dataset is dataset.original_dataset is data
    assert dataset.indices is indices
    assert len(dataset) == 3
    assert same(dataset.mean, mean) and same(dataset.std, std)
    assert dataset.std.item() == pytest.approx(0.7)
    assert not any(torch.is_tensor(value) for value in vars(dataset).values())


def test_standardized_lists_indices_that_cannot_be_looked_up() -> None:
    assert WorkerSafeStandardizedDataset(tensor_data(9), iter([3, 1]), 0.0, 1.0).indices == [3, 1]
    assert sorted(WorkerSafeStandardizedDataset(tensor_data(9), {3, 1}, 0.0, 1.0).indices) == [1, 3]


def test_standardized_takes_new_values_by_assignment() -> None:
    dataset = WorkerSafeStandardizedDataset(tensor_data(10), [0], 0.0, 1.0)
    other = tensor_data(6, seed=5)
    dataset.mean, dataset.std, dataset.indices, dataset.dataset = 0.25, torch.tensor(2.0), [5, 3], other
    old = StandardizedSubset(other, [5, 3], 0.25, 2.0)
    assert len(dataset) == 2
    assert same(dataset[1], old[1])
    batch = fetch_batch(dataset, [0, 1])
    assert batch is not None and same(batch[0][1], old[1][0])
    dataset.original_dataset = tensor_data(6, seed=7)
    assert same(dataset[1], StandardizedSubset(tensor_data(6, seed=7), [5, 3], 0.25, 2.0)[1])


def test_sequence_returns_exactly_what_it_was_given() -> None:
    samples = [(torch.rand(3), 1), (torch.rand(4), "two")]
    dataset = WorkerSafeSequenceDataset(samples)
    assert dataset.data is dataset.data_list is samples
    assert dataset[1] is samples[1] and dataset[-1] is samples[1]
    assert len(dataset) == 2


@pytest.mark.parametrize(
    ("params", "stages"),
    [
        (None, [SpecAugment]),
        ({}, [SpecAugment]),
        ({"time_mask_param": 3, "p": 1.0}, [SpecAugment]),
        (BOTH, [SpecAugment, GaussianNoise]),
        ({"spec_augment_params": None, "gaussian_noise_params": {}}, [GaussianNoise]),
        ({"spec_augment_params": {}}, [SpecAugment]),
    ],
)
def test_augmented_understands_both_forms_of_parameters(params: Any, stages: list[type]) -> None:
    dataset = WorkerSafeAugmentedDataset(tensor_data(4), params)
    assert [type(stage) for stage in dataset.transforms] == stages


def test_augmented_stages_can_be_switched() -> None:
    data = tensor_data(4)
    both_off = WorkerSafeAugmentedDataset(data, BOTH, use_spec_augment=False, use_gaussian_noise=False)
    noise_too = WorkerSafeAugmentedDataset(data, {"p": 1.0}, use_gaussian_noise=True)
    assert both_off.transforms == []
    assert [type(stage) for stage in noise_too.transforms] == [SpecAugment, GaussianNoise]
    assert same(both_off[2], data[2])


def test_augmented_names_the_parameter_it_does_not_know() -> None:
    for params in ({"time_mask": 3}, {"spec_augment_params": {"time_mask": 3}}, {**BOTH, "time_mask": 3}):
        with pytest.raises(TypeError, match="time_mask"):
            WorkerSafeAugmentedDataset(tensor_data(4), params)
    with pytest.raises(TypeError, match="transforms"):
        WorkerSafeAugmentedDataset(tensor_data(4), {"p": 1.0}, transforms=[])


def test_augmented_passes_samples_through_outside_training() -> None:
    data = tensor_data(6)
    dataset = WorkerSafeAugmentedDataset(data, BOTH, training=False)
    assert dataset.dataset is dataset.base_dataset is data
    assert dataset.augment_params == BOTH
    assert same(dataset[3], data[3])
    assert same(fetch_batch(dataset, [1, 5]), fetch_batch(data, [1, 5]))
    dataset.set_training(True)
    assert not torch.equal(dataset[3][0], data[3][0])
    assert dataset.training is True


def test_augmenting_never_writes_to_the_base_dataset() -> None:
    data = tensor_data(8)
    before = data.tensors[0].clone()
    foreign: list[Any] = [lambda x: x * 0.5, SpecAugment(p=1.0), None]
    for dataset in (
        WorkerSafeAugmentedDataset(data, BOTH),
        WorkerSafeAugmentedDataset(data, transforms=foreign),
        WorkerSafeAugmentedDataset(PairDataset(8), BOTH),
    ):
        dataset[2]
        fetch_batch(dataset, [0, 1, 2])
    assert torch.equal(data.tensors[0], before)


def test_augmented_runs_foreign_transforms_sample_by_sample_in_order() -> None:
    data = tensor_data(6)

    def jitter(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand(1)

    def cut(x: torch.Tensor) -> torch.Tensor:
        return x[:, : 1 + int(torch.randint(0, 1, ()))]

    dataset = WorkerSafeAugmentedDataset(data, transforms=[jitter, None, cut])
    seed_all(1)
    batch = load_batch(dataset, [4, 1], None, default_collate)
    seed_all(1)
    expected = torch.stack([cut(jitter(data[4][0])), cut(jitter(data[1][0]))])
    assert torch.equal(batch[0], expected)


def test_augmenting_samples_of_unequal_shape_works_one_by_one() -> None:
    samples = [(torch.rand(1, 5, 5 + i), i) for i in range(3)]
    dataset = WorkerSafeAugmentedDataset(WorkerSafeSequenceDataset(samples), {"p": 1.0})
    loader = DataLoader(dataset, batch_size=3, collate_fn=list)
    (batch,) = loader
    assert [x.shape[-1] for x, _ in batch] == [5, 6, 7]


@pytest.mark.parametrize("dataset", every_dataset(), ids=lambda dataset: type(dataset).__name__)
def test_every_dataset_pickles(dataset: Any) -> None:
    copy = pickle.loads(pickle.dumps(dataset))
    assert len(copy) == len(dataset)
    seed_all(0)
    expected = dataset[5]
    seed_all(0)
    assert same(copy[5], expected)


@pytest.mark.parametrize("dataset", every_dataset(), ids=lambda dataset: type(dataset).__name__)
def test_every_dataset_works_in_a_plain_loader(dataset: Any) -> None:
    default = list(DataLoader(dataset, batch_size=7))
    custom = list(DataLoader(dataset, batch_size=7, collate_fn=lambda samples: [y for _, y in samples]))
    assert [len(y) for _, y in default] == [len(ys) for ys in custom] == [7, 7, 7, 3]


@pytest.mark.parametrize("count", [30, 70], ids=["all", "thinned"])
def test_statistics_are_drawn_and_reduced_as_the_original_did(count: int) -> None:
    data = tensor_data(80, (1, 9, 7))
    indices = np.arange(count)[::-1]
    seed_all(5)
    chosen = np.random.choice(indices, 50, replace=False) if count > 50 else indices
    stacked = torch.stack([data[i][0] for i in chosen])
    after = np.random.rand()
    for dataset in (data, WorkerSafeSequenceDataset([data[i] for i in range(80)])):
        seed_all(5)
        mean, std = compute_standardization_stats(dataset, indices, sample_size=50)
        assert same(mean, stacked.mean()) and same(std, stacked.std())
        assert np.random.rand() == after


def test_statistics_read_as_they_were_given() -> None:
    numbers = WorkerSafeStandardizedDataset(tensor_data(3), [0], 0.25, np.float32(0.5))
    assert (numbers.mean, numbers.std) == (0.25, np.float32(0.5)) and isinstance(numbers.mean, float)
    tensors = WorkerSafeStandardizedDataset(tensor_data(3), [0], torch.tensor(0.25), torch.tensor(0.5))
    assert isinstance(tensors.mean, torch.Tensor) and tensors.std.item() == 0.5
    assert not any(isinstance(value, torch.Tensor) for value in vars(tensors).values())


@pytest.mark.parametrize(
    "std", [2.0, np.float64(2.0), np.float32(2.0), torch.tensor(2.0)], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("mean", [0.5, np.float64(0.5), np.float32(0.5)], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "x", [3, 3.0, np.int16(3), np.float16(3), np.arange(3, dtype=np.uint8)], ids=lambda value: type(value).__name__
)
def test_samples_that_are_no_tensors_are_standardised_with_the_statistics_as_given(x: Any, mean: Any, std: Any) -> None:
    expected = (x - mean) / (std + 1e-8)
    dataset = pickle.loads(pickle.dumps(WorkerSafeStandardizedDataset([(x, 1)] * 2, [0, 1], mean, std)))
    assert type(dataset.mean) is type(mean) and type(dataset.std) is type(std)
    assert type(dataset[0][0]) is type(expected)
    batch = default_collate([(expected, 1)] * 2)
    assert same(default_collate([dataset[0]] * 2), batch)
    assert same(list(BatchedDataLoader(dataset, 2)), [batch])
