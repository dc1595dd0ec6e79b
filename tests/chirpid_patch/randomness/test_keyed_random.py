"""Randomness that belongs to the sample: the same however it is loaded, different wherever it should be."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import PairDataset, global_states, random_key, same, seed_all, tensor_data
from torch.utils.data import ConcatDataset, DataLoader, Subset, WeightedRandomSampler, default_collate

from chirpid_patch import BatchedDataLoader, WorkerSafeAugmentedDataset
from chirpid_patch.datasets.gather import fetch_batch
from chirpid_patch.datasets.samples import fetch_samples, load_batch
from chirpid_patch.randomness.keyed_random import RandomKey, draw_random_keys, hash_into_keys, uniform_numbers

ALWAYS = {"spec_augment_params": {"p": 1.0}, "gaussian_noise_params": {"p": 1.0, "std": 0.1}}
SHAPE = (1, 8, 10)


def augmented(n: int = 12) -> WorkerSafeAugmentedDataset:
    return WorkerSafeAugmentedDataset(tensor_data(n, SHAPE), ALWAYS)


def by_index(loader: Any, epochs: int = 1) -> list[dict[int, torch.Tensor]]:
    """For each epoch the augmented samples by their number; works where y is the sample's number."""
    return [{int(y): x for xs, ys in loader for x, y in zip(xs, ys, strict=True)} for _ in range(epochs)]


def numbered(n: int = 12) -> WorkerSafeAugmentedDataset:
    data = tensor_data(n, SHAPE)
    data.tensors = (data.tensors[0], torch.arange(n))
    return WorkerSafeAugmentedDataset(data, ALWAYS)


@settings(max_examples=30)
@given(
    order=st.permutations(range(12)),
    cuts=st.lists(st.integers(1, 11), max_size=4),
    seed=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 1000),
)
def test_a_sample_is_augmented_alike_in_every_batch_and_order(
    order: list[int], cuts: list[int], seed: int, epoch: int
) -> None:
    dataset = augmented()
    whole = fetch_batch(dataset, range(12), random_key(seed, epoch, range(12), [0] * 12))
    assert whole is not None
    bounds = [0, *sorted(set(cuts)), 12]
    for start, stop in pairwise(bounds):
        part = order[start:stop]
        key = random_key(seed, epoch, part, [0] * len(part))
        batch = fetch_batch(dataset, part, key)
        assert batch is not None and torch.equal(batch[0], whole[0][part])
        singles = fetch_samples(dataset, part, key)
        assert all(torch.equal(x, whole[0][index]) for (x, _), index in zip(singles, part, strict=True))


@pytest.mark.parametrize(
    "other",
    [
        random_key(8, 0, [3], [0]),
        random_key(7, 1, [3], [0]),
        random_key(7, 0, [3], [0], rank=1),
        random_key(7, 0, [4], [0]),
        random_key(7, 0, [3], [1]),
        random_key(7, 0, [3], [0]).deeper(),
    ],
    ids=["seed", "epoch", "rank", "index", "occurrence", "depth"],
)
def test_each_part_of_the_key_counts(other: RandomKey) -> None:
    dataset = augmented()
    key = random_key(7, 0, [3], [0])
    one, two = fetch_batch(dataset, [3], key), fetch_batch(dataset, [3], other)
    again = fetch_batch(dataset, [3], key)
    assert one is not None and two is not None
    assert not torch.equal(one[0], two[0])
    assert same(one, again)


def test_workers_threads_and_collation_do_not_change_the_augmentation() -> None:
    def epochs(**options: Any) -> list[dict[int, torch.Tensor]]:
        torch.manual_seed(11)
        with BatchedDataLoader(numbered(), shuffle=True, **options) as loader:
            return by_index(loader, epochs=2)

    def stack(samples: list[Any]) -> list[torch.Tensor]:
        return [torch.stack([x for x, _ in samples]), torch.tensor([int(y) for _, y in samples])]

    expected = epochs(batch_size=4)
    for options in (
        {"batch_size": 5},
        {"batch_size": 4, "collate_fn": stack},
        {"batch_size": 4, "num_workers": 1},
        {"batch_size": 3, "num_workers": 2},
    ):
        for left, right in zip(expected, epochs(**options), strict=True):
            assert left.keys() == right.keys()
            assert all(torch.equal(left[number], right[number]) for number in left), options


def test_epochs_differ_and_a_seeded_run_repeats_in_the_same_process() -> None:
    def epochs() -> list[dict[int, torch.Tensor]]:
        torch.manual_seed(2)
        return by_index(BatchedDataLoader(numbered(), batch_size=4), epochs=2)

    first, second = epochs()
    assert not any(torch.equal(first[number], second[number]) for number in first)
    assert all(torch.equal(first[number], again) for number, again in epochs()[0].items())


def test_a_loader_that_is_not_ours_gives_different_epochs_too() -> None:
    for workers in (0, 2):
        loader = DataLoader(numbered(), batch_size=4, num_workers=workers)
        first, second = by_index(loader, epochs=2)
        assert not any(torch.equal(first[number], second[number]) for number in first)


def test_repeated_indices_are_augmented_independently() -> None:
    torch.manual_seed(0)
    sampler = WeightedRandomSampler([1.0, 0.0, 0.0], num_samples=9, replacement=True)
    loader = BatchedDataLoader(augmented(3), batch_size=4, sampler=sampler)
    xs = torch.cat([x for x, _ in loader])
    assert len(torch.unique(xs.flatten(1), dim=0)) == 9


def test_indices_repeated_by_a_subset_are_augmented_independently() -> None:
    oversampled = Subset(augmented(3), [1, 1, 1, 1])
    ((x, _),) = BatchedDataLoader(oversampled, batch_size=4)
    assert len(torch.unique(x.flatten(1), dim=0)) == 4


def test_concatenated_wrappers_around_the_same_data_differ() -> None:
    data = tensor_data(3, SHAPE)
    both: ConcatDataset[Any] = ConcatDataset(
        [WorkerSafeAugmentedDataset(data, ALWAYS), WorkerSafeAugmentedDataset(data, ALWAYS)]
    )
    ((x, _),) = BatchedDataLoader(both, batch_size=6)
    assert len(torch.unique(x.flatten(1), dim=0)) == 6


def test_nested_wrappers_draw_independently() -> None:
    noise = {"spec_augment_params": None, "gaussian_noise_params": {"p": 1.0, "std": 0.01}}
    data = tensor_data(2, (1, 40, 40))
    data.tensors[0].fill_(0.5)
    once = WorkerSafeAugmentedDataset(data, noise)
    key = random_key(0, 0, [0, 1], [0, 0])
    one, two = (
        fetch_batch(once, [0, 1], key),
        fetch_batch(WorkerSafeAugmentedDataset(once, noise), [0, 1], key),
    )
    assert one is not None and two is not None
    inner, outer = one[0] - 0.5, two[0] - 0.5
    # Equal draws would double the deviation; independent ones add their variances.
    assert float(outer.std() / inner.std()) == pytest.approx(2**0.5, abs=0.1)


def test_keyed_augmentation_leaves_the_global_generators_alone() -> None:
    seed_all(4)
    before = global_states()
    fetch_batch(augmented(), [1, 2], random_key(1, 2, [1, 2], [0, 0]))
    assert global_states() == before


def test_unkeyed_augmentation_draws_from_python_random_alone() -> None:
    seed_all(4)
    before = global_states()
    dataset = augmented()
    first = dataset[3]
    after = global_states()
    assert after[:2] == before[:2]
    assert not torch.equal(first[0], dataset[3][0])
    random.seed(4)
    assert same(dataset[3], first)


def test_user_dataset_below_is_augmented_alike_at_once_and_one_by_one() -> None:
    dataset = WorkerSafeAugmentedDataset(PairDataset(6, SHAPE), ALWAYS)
    key = random_key(1, 0, [5, 2], [0, 0])
    batch, singles = load_batch(dataset, [5, 2], key, default_collate), fetch_samples(dataset, [5, 2], key)
    assert torch.equal(batch[0], torch.stack([x for x, _ in singles]))


def test_uniforms_are_uniform_and_independent() -> None:
    keys = hash_into_keys(np.zeros(1, dtype=np.uint64), 123)
    numbers = uniform_numbers(hash_into_keys(np.broadcast_to(keys, 20_000), np.arange(20_000)), 5)
    assert numbers.min() >= 0.0 and numbers.max() < 1.0
    counts = np.histogram(numbers, bins=64, range=(0, 1))[0]
    expected = numbers.size / 64
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 63 + 5 * (2 * 63) ** 0.5
    correlations = np.corrcoef(numbers, rowvar=False) - np.eye(5)
    neighbours = np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]
    assert np.abs(correlations).max() < 5 / 20_000**0.5
    assert abs(neighbours) < 5 / 20_000**0.5


def test_fresh_keys_have_64_random_bits() -> None:
    random.seed(0)
    bits = np.unpackbits(draw_random_keys(4000).view(np.uint8)).reshape(4000, 64).mean(axis=0)
    assert np.abs(bits - 0.5).max() < 5 * 0.5 / 4000**0.5
