"""SpecAugment and GaussianNoise as modules called on one sample, and on batches."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from originals import same
from torch import Tensor

from chirpid_patch import GaussianNoise, SpecAugment, WorkerSafeAugmentedDataset
from chirpid_patch.transforms.spectrograms import is_batchable

ALWAYS: list[Any] = [SpecAugment(3, 2, p=1.0), GaussianNoise(0.1, p=1.0)]


@pytest.mark.parametrize("transform", ALWAYS, ids=repr)
@pytest.mark.parametrize("shape", [(1, 6, 9), (3, 6, 9), (6, 9)], ids=str)
def test_a_transformed_sample_is_new_and_the_input_is_untouched(transform: Any, shape: tuple[int, ...]) -> None:
    random.seed(1)
    sample = torch.full(shape, 0.5)
    result = transform(sample)
    assert result.shape == sample.shape and result.dtype == sample.dtype
    assert not torch.equal(result, sample)
    assert torch.equal(sample, torch.full(shape, 0.5))


@pytest.mark.parametrize("kind", [SpecAugment, GaussianNoise])
def test_a_sample_left_alone_is_the_input_itself(kind: Any) -> None:
    sample = torch.rand(1, 6, 9)
    assert kind(p=0.0)(sample) is sample


def test_mask_value_and_number_of_masks_are_honoured() -> None:
    random.seed(0)
    sample = torch.rand(1, 30, 40)
    assert torch.equal(SpecAugment(num_time_masks=0, num_freq_masks=0, p=1.0)(sample), sample)
    filled = SpecAugment(mask_value=-7.0, p=1.0, num_time_masks=3)(sample)
    changed = filled != sample
    assert changed.any() and bool((filled[changed] == -7.0).all())


def test_parameters_are_read_when_the_transform_is_applied() -> None:
    spec, noise = SpecAugment(p=0.0), GaussianNoise(p=0.0)
    sample = torch.full((1, 9, 9), 0.5)
    spec.p, spec.time_mask_param, spec.freq_mask_param, spec.mask_value = 1.0, 0, 99, 2.0
    noise.p, noise.std = 1.0, 0.5
    random.seed(3)
    assert any(bool((spec(sample) == 2.0).any()) for _ in range(5))
    assert float(noise(sample).std()) > 0.2


def test_samples_and_parameters_that_cannot_be_augmented_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"\(C, F, T\)"):
        SpecAugment(p=1.0)(torch.rand(5))
    with pytest.raises(ValueError, match="freq_mask_param"):
        SpecAugment(freq_mask_param=-1, p=1.0)(torch.rand(5, 5))
    with pytest.raises(TypeError, match=r"torch\.int64"):
        GaussianNoise(p=1.0)(torch.arange(4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floating_point_types_keep_theirs(dtype: torch.dtype) -> None:
    random.seed(0)
    sample = torch.full((1, 20, 20), 0.5, dtype=dtype)
    for transform in ALWAYS:
        assert transform(sample).dtype == dtype
    assert float(ALWAYS[1](sample).float().std()) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("transform", ALWAYS, ids=repr)
def test_a_batch_row_is_transformed_as_the_sample_alone(transform: Any) -> None:
    samples = torch.rand(5, 2, 6, 9)
    keys = np.arange(5, dtype=np.uint64)
    batch = samples.clone()
    transform.transform_batch_(batch, keys)
    for row in range(5):
        assert torch.equal(batch[row], transform.transform_sample(samples[row], keys[row : row + 1]))


def test_non_contiguous_samples_are_transformed_as_contiguous_ones() -> None:
    sample = torch.rand(9, 6, 2).permute(2, 1, 0)
    for transform in ALWAYS:
        random.seed(8)
        result = transform(sample)
        random.seed(8)
        assert same(result.contiguous(), transform(sample.contiguous()))


class Doubling(SpecAugment):
    """A user's subclass with a constructor and a forward of its own."""

    def __init__(self, width: int) -> None:
        super().__init__(time_mask_param=width, freq_mask_param=0, p=1.0)

    def forward(self, sample: Tensor) -> Tensor:
        return 2 * super().forward(sample)


class Narrow(GaussianNoise):
    """A user's subclass that only fixes the parameters."""

    def __init__(self) -> None:
        super().__init__(std=0.01, p=1.0)


def test_subclasses_are_applied_by_their_own_code() -> None:
    assert not is_batchable(Doubling(2)) and is_batchable(Narrow())
    hooked = SpecAugment()
    hooked.register_forward_hook(lambda module, args, output: output + 1)
    assert not is_batchable(hooked) and not is_batchable(torch.relu)
    data = [(torch.ones(1, 4, 8), 0) for _ in range(3)]
    dataset = WorkerSafeAugmentedDataset(data, transforms=[Doubling(2), Narrow()])
    assert dataset[0][0].max() == 1.0  # doubled, then clamped by the noise
    assert WorkerSafeAugmentedDataset(data, transforms=[Doubling(2)])[0][0].max() == 2.0


@pytest.mark.parametrize("transform", [*ALWAYS, Narrow(), Doubling(3)], ids=repr)
def test_transforms_copy_and_pickle(transform: Any) -> None:
    sample = torch.rand(1, 6, 9)
    random.seed(2)
    expected = transform(sample)
    for twin in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        random.seed(2)
        assert torch.equal(twin(sample), expected)
    assert "p=1.0" in repr(transform)


def test_transforms_are_taken_as_they_are() -> None:
    noise = GaussianNoise()
    assert WorkerSafeAugmentedDataset([(torch.ones(1, 2), 0)], transforms=[noise]).transforms[0] is noise
