"""Smaller parts while memory is short: the same samples in the same order, the same training (R-003)."""

from __future__ import annotations

import logging
from collections import namedtuple
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.memory.batch_parts import batch_part
from chirpid_patch.memory.dynamic_batch import DynamicBatchStep
from chirpid_patch.memory.trials import is_out_of_memory
from chirpid_patch.memory.watch import MemoryPressure, MemoryWatch

NONE, SOFT, _ = MemoryPressure


class Training:
    """A model trained over 40 samples in batches of 16 (the last of 8), and the samples each pass forward saw."""

    def __init__(self, *layers: nn.Module, batch_size: int = 16, **options: Any) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(4, 8), *layers, nn.ReLU(), nn.Linear(8, 3))
        self.fits: Callable[[], int] = lambda: 10**9
        self.error: Callable[[str], BaseException] = torch.cuda.OutOfMemoryError
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.step = DynamicBatchStep(self.model, self.optimizer, self.loss_of, batch_size, **options)
        self.seen: list[list[int]] = []
        self.losses: list[float] = []

    def loss_of(self, batch: Any) -> Tensor:
        inputs, labels, numbers = batch
        outputs = self.model(inputs)
        if len(inputs) > self.fits():
            outputs.sum().backward()  # as when memory runs out half-way back: some gradients are there already
            raise self.error("CUDA out of memory. Tried to allocate 2.00 GiB")
        self.seen.append(numbers.tolist())
        return nn.functional.cross_entropy(outputs, labels)

    def epochs(self, count: int = 2) -> Training:
        generator = torch.Generator().manual_seed(3)
        inputs = torch.randn(40, 4, generator=generator)
        dataset = TensorDataset(inputs, torch.arange(40) % 3, torch.arange(40))
        torch.manual_seed(9)
        loader = OptimalDataLoaderFactory.create_training_loader(dataset, 16)
        for _ in range(count):
            self.losses += [float(self.step(batch)) for batch in loader]
        return self

    @property
    def weights(self) -> list[Tensor]:
        return [part.detach() for part in self.model.parameters()]


def test_with_enough_memory_a_step_is_the_plain_step_to_the_last_bit() -> None:
    found = Training(nn.Dropout(0.5)).epochs()
    plain = Training(nn.Dropout(0.5))

    def step(batch: Any) -> Tensor:
        plain.optimizer.zero_grad()
        loss = plain.loss_of(batch)
        loss.backward()
        plain.optimizer.step()
        return loss.detach()

    plain.step = step  # type: ignore[assignment]
    plain.epochs()
    assert found.losses == plain.losses and found.seen == plain.seen
    assert all(torch.equal(mine, other) for mine, other in zip(found.weights, plain.weights, strict=True))


def test_running_out_of_memory_repeats_the_step_in_smaller_parts(caplog: pytest.LogCaptureFixture) -> None:
    plain, short = Training().epochs(), Training()
    short.fits = lambda: 5
    with caplog.at_level(logging.WARNING, "chirpid_patch"):
        short.epochs()
    assert [*chain(*short.seen)] == [*chain(*plain.seen)]  # every sample once, in the same order
    assert {len(part) for part in short.seen} == {4} and short.step.size == 4
    torch.testing.assert_close(short.weights, plain.weights)
    torch.testing.assert_close(short.losses, plain.losses)
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == [
        f"micro-batches of {less} samples instead of {more}: memory ran out, the step is repeated"
        for more, less in ((16, 8), (8, 4))
    ]


def test_a_repeated_step_leaves_no_trace_of_the_failed_one() -> None:
    layers = (nn.BatchNorm1d(8), nn.Dropout(0.5))
    small = Training(*layers)
    small.step.size = 8
    failing = Training(*(type(layer)(*args) for layer, args in zip(layers, ((8,), (0.5,)), strict=True)))
    failing.fits = lambda: 8
    assert small.epochs().losses == failing.epochs().losses
    for mine, other in zip(small.model.state_dict().values(), failing.model.state_dict().values(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: device-side assert triggered"), ValueError("no")])
def test_only_running_out_of_memory_is_retried(error: Exception) -> None:
    training = Training()
    training.fits, training.error = (lambda: 5), (lambda _said: error)
    with pytest.raises(type(error), match=str(error)):
        training.epochs()
    assert training.step.size == 16


def test_when_one_sample_is_too_large_the_error_is_the_callers() -> None:
    training = Training()
    training.fits = lambda: 0
    with pytest.raises(torch.cuda.OutOfMemoryError):
        training.epochs()
    assert training.step.size == 1


def test_memory_of_the_machine_counts_too() -> None:
    assert is_out_of_memory(MemoryError()) and is_out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("CUDA error: out of range"))


def test_pressure_halves_and_calm_grows_back() -> None:
    watch = MemoryWatch()
    training = Training(watch=watch)
    training.step.grow_after, training.step.SETTLE = 3, 2  # type: ignore[misc]
    watch._pressures = {"process": SOFT}
    training.epochs(1)
    assert [len(part) for part in training.seen] == [8, 8, 8, 8, 4, 4]
    watch._pressures = {"process": NONE}
    training.seen.clear()
    training.epochs(2)
    assert [len(part) for part in training.seen] == [*[4] * 8, *[8] * 6]
    plain = Training().epochs(1).epochs(2)
    torch.testing.assert_close(training.weights, plain.weights)


def test_a_size_that_does_not_fit_is_tried_less_and_less_often() -> None:
    training = Training()
    training.step.grow_after = 2
    training.fits = lambda: 8
    training.epochs(8)
    # 24 steps: doubled after each of the three times that growing back was in vain.
    assert training.step.grow_after == 2 * 2**3
    torch.testing.assert_close(training.weights, Training().epochs(8).weights, rtol=1e-4, atol=1e-5)


def test_tensors_of_any_nesting_are_cut_along_their_samples() -> None:
    pair = namedtuple("pair", "x y")
    batch = {
        "scale": torch.tensor(2.0),
        "image": torch.arange(6).reshape(3, 2),
        "more": pair(torch.arange(3), (torch.arange(3), None)),
    }
    part = batch_part(batch, slice(1, 3))
    assert part["image"].tolist() == [[2, 3], [4, 5]] and part["scale"] == 2
    assert type(part["more"]) is pair and part["more"].x.tolist() == [1, 2]
    assert part["more"].y[0].tolist() == [1, 2] and part["more"].y[1] is None
