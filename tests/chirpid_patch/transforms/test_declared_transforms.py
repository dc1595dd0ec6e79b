"""Modules that declare what they draw: their own code for single samples, a shipped transform for batches."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from originals import same
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from chirpid_patch import (
    BatchedDataLoader,
    Compose,
    GaussianNoise,
    SpecAugment,
    adds_noise,
    augments_samples,
    masks_spectrograms,
)
from chirpid_patch.declaration import batched_object_for


class Noise(nn.Module):
    def __init__(self, std: Any = 0.02, p: Any = 0.8) -> None:
        super().__init__()
        self.std = std
        self.p = p

    def forward(self, x: Any) -> Any:
        if random.random() > self.p:
            return x
        return torch.clamp(x + torch.randn_like(x) * self.std, 0, 1)


@adds_noise()
class DeclaredNoise(Noise):
    def forward(self, x: Any) -> Any:
        return super().forward(x)


@masks_spectrograms(calls=("_columns",))
class Masks(nn.Module):
    """As CHP003 leaves them: ``forward`` is the class's own."""

    def __init__(self, time_mask_param: Any = 4, mask_value: Any = 0.0, p: Any = 1.0) -> None:
        super().__init__()
        self.time_mask_param = time_mask_param
        self.freq_mask_param = 0
        self.num_time_masks = 1
        self.num_freq_masks = 0
        self.mask_value = mask_value
        self.p = p

    def forward(self, x: Any) -> Any:
        if random.random() > self.p:
            return x
        return self._columns(x.clone())

    def _columns(self, x: Any) -> Any:
        width = random.randint(0, min(self.time_mask_param, x.shape[-1]))
        start = random.randint(0, x.shape[-1] - width)
        x[..., start : start + width] = self.mask_value
        return x


class Upright(Masks):
    def _columns(self, x: Any) -> Any:
        return x


@augments_samples(dataset="base", transforms={"transform": None})
class Shaken(Dataset[Any]):
    def __init__(self, base: Any, transform: Any) -> None:
        self.base = base
        self.transform = transform

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, idx: Any) -> Any:
        x, y = self.base[idx]
        return self.transform(x), y


def samples() -> TensorDataset:
    return TensorDataset(torch.rand(40, 1, 5, 9, generator=torch.Generator().manual_seed(1)), torch.arange(40))


def batches(loader: Any) -> list[Any]:
    random.seed(5)
    torch.manual_seed(5)
    return [list(batch) for batch in loader]


def hooked() -> Noise:
    noise = DeclaredNoise()
    noise.register_forward_hook(lambda module, given, output: output + 1)
    return noise


def with_a_forward_of_its_own() -> Noise:
    noise = DeclaredNoise()
    noise.forward = lambda x: x + 1  # type: ignore[method-assign]
    return noise


def test_plain_numbers_are_drawn_for_a_batch() -> None:
    noise, masked = batched_object_for(DeclaredNoise(0.5, 1)), batched_object_for(Masks(3, 0.5, 0.25))
    assert (type(noise), noise.std, noise.p) == (GaussianNoise, 0.5, 1)
    assert (type(masked), masked.time_mask_param, masked.mask_value, masked.p) == (SpecAugment, 3, 0.5, 0.25)
    dataset = Shaken(samples(), Compose([Masks(), DeclaredNoise()]))
    (x, y), (plain, _) = (next(iter(kind(dataset, 40))) for kind in (BatchedDataLoader, DataLoader))
    assert batched_object_for(dataset) is not dataset and x.shape == plain.shape and y.tolist() == list(range(40))
    assert not torch.equal(x, plain) and (x == 0).all(dim=-2).any()


@pytest.mark.parametrize(
    "make",
    [
        hooked,
        with_a_forward_of_its_own,
        Upright,
        lambda: DeclaredNoise(torch.full((5, 1), 0.1)),
        lambda: DeclaredNoise(nn.Parameter(torch.ones(()))),
        lambda: DeclaredNoise(p=torch.tensor(0.5)),
        lambda: DeclaredNoise(p=True),
        lambda: DeclaredNoise("a"),
        lambda: Masks(2.5),
        lambda: Masks(-1),
        lambda: Masks(mask_value=None),
    ],
    ids=[
        "a hook",
        "its own forward",
        "a method replaced",
        "std by bin",
        "learnt std",
        "p as a tensor",
        "p as a bool",
        "a text",
        "a fraction",
        "a negative width",
        "no value",
    ],
)
def test_anything_else_is_done_by_its_own_code(make: Callable[[], nn.Module]) -> None:
    transform = make()
    assert batched_object_for(transform) is transform
    found = []
    for kind in (DataLoader, BatchedDataLoader):
        try:
            found.append(batches(kind(Shaken(samples(), transform), 8)))
        except Exception as error:
            found.append([type(error), str(error)])
    assert same(*found)


@pytest.mark.parametrize("base", [torch.ones(6, 1, 5, dtype=torch.int64), torch.ones(6)], ids=["integers", "numbers"])
@pytest.mark.parametrize("transform", [DeclaredNoise(p=1.0), Masks()], ids=["noise", "masks_spectrograms"])
def test_samples_that_it_does_not_take_raise_what_its_own_code_raises(base: Tensor, transform: nn.Module) -> None:
    found = []
    for kind in (DataLoader, BatchedDataLoader):
        try:
            found.append([(x.dtype, x.shape) for x, _ in kind(Shaken(TensorDataset(base, base), transform), 3)])
        except Exception as error:
            found.append([type(error), str(error)])
    assert found[0] == found[1]


def test_called_it_is_what_it_was() -> None:
    own, declared = Noise(p=1.0), DeclaredNoise(p=1.0)
    for noise in (declared, copy.deepcopy(declared), pickle.loads(pickle.dumps(declared))):
        torch.manual_seed(3)
        expected = own(x=torch.full((2, 3), 0.5))
        torch.manual_seed(3)
        assert torch.equal(noise(x=torch.full((2, 3), 0.5)), expected)
        assert batched_object_for(noise) is not noise
    assert repr(declared) == "DeclaredNoise()" and vars(declared).keys() == vars(own).keys()
    learnt = nn.Parameter(torch.tensor(0.1))
    DeclaredNoise(learnt, 1.0)(torch.full((4, 4), 0.5)).sum().backward()
    assert learnt.grad is not None


def test_a_class_without_a_forward_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Empty.*forward"):

        @adds_noise()
        class Empty(nn.Module): ...
