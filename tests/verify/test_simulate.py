"""Simulated device steps. Times are only compared where no machine can be too slow for them."""

from __future__ import annotations

import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from chirp_migrate.verify.timing.epochs import EpochTimer, RepeatedBatchLoading
from chirp_migrate.verify.timing.simulate import SimulatedSteps, StandInModel

STEP_S = 0.01


def loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.randn(10, 3)), batch_size=4)


def walk(batches: DataLoader[tuple[torch.Tensor, ...]]) -> int:
    return sum(1 for _ in batches)


def test_every_training_batch_takes_a_step_and_validation_takes_none() -> None:
    with SimulatedSteps(STEP_S) as steps:
        began = time.perf_counter()
        assert walk(loader()) == 3
        elapsed = time.perf_counter() - began
        with torch.no_grad():
            assert walk(loader()) == 3
        count = steps.take()
        assert count.steps == 3, "the last batch's step is over before the loop learns that there is no more"
        assert elapsed >= 3 * STEP_S
    walk(loader())
    assert steps.take().steps == 0, "nothing is left of it afterwards"


def test_work_of_the_training_runs_within_the_step_and_beyond_it_is_counted() -> None:
    steps = SimulatedSteps(STEP_S)
    began = time.perf_counter()
    steps.end_step(own_work_s=STEP_S / 2)
    slept = time.perf_counter() - began
    steps.end_step(own_work_s=2 * STEP_S)
    count = steps.take()
    assert slept >= STEP_S / 2
    assert (count.steps, count.overrun) == (2, 1)
    assert count.own_work_s == pytest.approx(2.5 * STEP_S)


def test_waits_do_not_contain_the_step() -> None:
    def train() -> None:
        kept = loader()
        for _ in range(9):
            walk(kept)

    with EpochTimer(lambda: None) as epochs, SimulatedSteps(STEP_S) as steps:
        visit = epochs.time(train)
    later = len(visit.epochs_s)
    assert steps.take().steps == 3 * (1 + later)
    assert sum(visit.epochs_s) >= visit.waited_s + 3 * later * STEP_S
    assert visit.waited_s >= sum(visit.waits_s) + sum(visit.first_waits_s)
    assert (len(visit.waits_s), len(visit.first_waits_s)) == (2 * later, later)


def test_cached_batches_take_steps_too() -> None:
    with RepeatedBatchLoading(), SimulatedSteps(STEP_S) as steps:
        assert [len(batch[0]) for batch in loader()] == [4, 4, 2]
    assert steps.take().steps == 3


@pytest.mark.parametrize("shape", [(5, 1, 7, 9), (5, 300), (5, 2)])
def test_the_stand_in_model_takes_any_samples_and_learns(shape: tuple[int, ...]) -> None:
    model = StandInModel(4, dropout_p=0.3)
    logits = model(torch.randn(*shape))
    assert logits.shape == (5, 4)
    logits.sum().backward()
    assert model.fc.weight.grad is not None
    assert StandInModel(num_classes=7)(torch.randint(0, 255, shape, dtype=torch.uint8)).shape == (5, 7)
