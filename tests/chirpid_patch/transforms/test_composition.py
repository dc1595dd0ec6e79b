"""Compositions of transforms: called as they are elsewhere, and read a batch at a time where all parts allow it."""

from __future__ import annotations

import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from originals import random_key, seed_all, tensor_data
from torch import nn
from torch.utils.data import default_collate

from chirpid_patch import (
    BatchedDataLoader,
    Compose,
    GaussianNoise,
    Lambda,
    SpecAugment,
    Standardize,
    WorkerSafeAugmentedDataset,
    applies_transform,
    composes_transforms,
)
from chirpid_patch.datasets.gather import fetch_batch
from chirpid_patch.datasets.samples import fetch_sample, load_batch
from chirpid_patch.randomness.keyed_random import RandomKey

Wrap = Callable[[list[Any]], Any]
DATA = tensor_data(20, (1, 6, 9))


class OwnCompose(Compose):
    """A migrated class: the name and constructor of the backend's own."""

    def __init__(self, steps: list[Any]) -> None:
        super().__init__(steps)


@composes_transforms("steps")
class DeclaredChain:
    """A class of the backend's own, as CHP028 leaves it."""

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps

    def __call__(self, x: Any) -> Any:
        for step in self.steps:
            x = step(x)
        return x


@applies_transform("function")
class DeclaredCall:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, x: Any) -> Any:
        return self.function(x)


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Stands in for torchvision, with classes like those of its names."""
    module = types.ModuleType("torchvision.transforms.transforms")

    class TheirCompose:
        def __init__(self, transforms: list[Any]) -> None:
            self.transforms = transforms

        def __call__(self, img: Any) -> Any:
            for one in self.transforms:
                img = one(img)
            return img

    class TheirLambda:
        def __init__(self, lambd: Any) -> None:
            self.lambd = lambd

        def __call__(self, img: Any) -> Any:
            return self.lambd(img)

    module.Compose, module.Lambda = TheirCompose, TheirLambda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision.transforms.transforms", module)
    return module


def stages() -> list[Any]:
    return [SpecAugment(3, 2, p=0.7), Standardize(0.4, 0.3), GaussianNoise(0.1, p=0.8)]


def own(parts: list[Any]) -> Any:
    return OwnCompose([Lambda(parts[0]), Compose(parts[1:])])


def declared(parts: list[Any]) -> Any:
    return DeclaredChain([DeclaredCall(parts[0]), *parts[1:]])


def module(parts: list[Any]) -> Any:
    return nn.Sequential(*parts)


def test_a_composition_calls_its_parts_in_turn_as_they_are_at_that_time() -> None:
    chain = Compose([lambda x: x + 1, Lambda(lambda x: x * 2)])
    assert chain(3) == 8
    chain.transforms.append(lambda x: -x)  # type: ignore[attr-defined]
    assert chain(3) == -8
    assert Compose([])("anything") == "anything"


def test_compositions_pickle_with_their_parts() -> None:
    chain = pickle.loads(pickle.dumps(OwnCompose(stages())))
    assert [type(one) for one in chain.transforms] == [SpecAugment, Standardize, GaussianNoise]


@pytest.mark.parametrize("wrap", [Compose, OwnCompose, own, declared, module])
def test_a_composition_of_shipped_transforms_is_augmented_from_memory(wrap: Wrap) -> None:
    assert WorkerSafeAugmentedDataset(DATA, transforms=[wrap(stages())]).in_memory


def test_torchvisions_compositions_are_taken_apart(torchvision: Any) -> None:
    chain = torchvision.Compose([torchvision.Lambda(SpecAugment(3, 2)), GaussianNoise(0.1)])
    assert WorkerSafeAugmentedDataset(DATA, transforms=[chain]).in_memory


def test_what_is_called_in_another_way_is_not_taken_apart(torchvision: Any) -> None:
    class Twice(Compose):
        def __call__(self, sample: Any) -> Any:
            return super().__call__(super().__call__(sample))

    class Theirs(torchvision.Compose):  # type: ignore[misc]
        pass

    hooked = nn.Sequential(*stages())
    hooked.register_forward_hook(lambda *arguments: None)
    for chain in (Twice(stages()), Theirs(stages()), hooked, Compose([torch.abs, *stages()])):
        assert not WorkerSafeAugmentedDataset(DATA, transforms=[chain]).in_memory


def test_a_declared_chain_that_does_something_else_is_called() -> None:
    class Twice(DeclaredChain):
        def __call__(self, x: Any) -> Any:
            return super().__call__(super().__call__(x))

    class Computed(DeclaredChain):
        @property
        def steps(self) -> list[Any]:
            return stages()

        @steps.setter
        def steps(self, steps: list[Any]) -> None: ...

    without_steps = DeclaredChain.__new__(DeclaredChain)
    for chain in (Twice(stages()), Computed([]), DeclaredChain(iter(stages())), without_steps):  # type: ignore[arg-type]
        assert not WorkerSafeAugmentedDataset(DATA, transforms=[chain]).in_memory


def test_a_declared_chain_stays_what_it_was() -> None:
    chain = DeclaredChain([DeclaredCall(abs), lambda x: x + 1])
    assert chain(-3) == 4 and vars(chain).keys() == {"steps"} and type(chain).__mro__[1] is object
    copied = pickle.loads(pickle.dumps(DeclaredChain([DeclaredCall(abs)])))
    assert copied(-3) == 3


def key_of(indices: list[int]) -> RandomKey:
    return random_key(3, 1, indices, [0] * len(indices))


@pytest.mark.parametrize("wrap", [Compose, own, declared, module])
@pytest.mark.parametrize("parts", [stages, lambda: [*stages(), torch.abs]], ids=["shipped", "with one of the user's"])
def test_a_batch_is_what_its_samples_are(wrap: Wrap, parts: Callable[[], list[Any]]) -> None:
    dataset = WorkerSafeAugmentedDataset(DATA, transforms=[wrap(parts() if wrap is not module else stages())])
    indices = [4, 11, 0, 7, 19]
    batch = load_batch(dataset, indices, key_of(indices), default_collate)
    for row, index in enumerate(indices):
        x, y = fetch_sample(dataset, index, key_of([index]))
        assert torch.equal(batch[0][row], x) and batch[1][row] == y
    assert not torch.equal(batch[0], DATA.tensors[0][indices])


def test_equal_parts_of_a_composition_draw_independently() -> None:
    noise = GaussianNoise(0.1, p=1.0)
    flat = WorkerSafeAugmentedDataset(DATA, transforms=[noise])
    twice = WorkerSafeAugmentedDataset(DATA, transforms=[Compose([noise, noise])])
    indices = [1, 2, 3]
    once, both = (fetch_batch(one, indices, key_of(indices)) for one in (flat, twice))
    assert once is not None and both is not None
    before = DATA.tensors[0][indices]
    assert not torch.allclose(both[0] - once[0], once[0] - before)


def test_a_composition_shares_its_parts_with_the_caller() -> None:
    noise = GaussianNoise(0.5, p=1.0)
    dataset = WorkerSafeAugmentedDataset(DATA, transforms=[Compose([Lambda(noise)])])
    noise.p = 0.0
    assert torch.equal(dataset[0][0], DATA[0][0])


def test_loaders_with_and_without_workers_give_the_same_epochs() -> None:
    epochs = []
    for workers in (0, 2):
        seed_all(5)
        dataset = WorkerSafeAugmentedDataset(DATA, transforms=[own(stages())])
        loader = BatchedDataLoader(dataset, batch_size=6, shuffle=True, num_workers=workers)
        assert loader.worker_processes == workers
        epochs.append([x for _ in range(2) for x, _ in loader])
    assert all(torch.equal(a, b) for a, b in zip(*epochs, strict=True))
