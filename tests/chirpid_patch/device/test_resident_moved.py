"""Loaders of the factory whose batches come on a device: every kind of loader, moved."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import pytest
import torch
from devices import AWAY
from originals import PairDataset, run, same, tensor_data
from torch.utils.data import DataLoader

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory

pytestmark = pytest.mark.filterwarnings("ignore:neither torch.distributed nor torchrun")

Factory = OptimalDataLoaderFactory
RANKS: dict[str, Any] = {"distributed": True, "rank": 1, "world_size": 2}


def made(dataset: Any, **options: Any) -> Any:
    return Factory.create_training_loader(dataset, 4, **options)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, BatchedDataLoader),
        ({"optimize": False}, DataLoader),
        ({"optimize": False, "benchmark": True}, DataLoader),
        ({"benchmark": True}, BatchedDataLoader),
        ({"adjust_workers": True}, BatchedDataLoader),
        (RANKS, BatchedDataLoader),
    ],
    ids=str,
)
def test_every_kind_of_loader_stays_what_it_is_and_moves_its_batches(options: dict[str, Any], kind: Any) -> None:
    # "meta" is a device that every machine has beside the CPU; its tensors hold no values.
    loader = made(PairDataset(10), device="meta", **options)
    assert issubclass(type(loader), kind)
    assert loader.device == torch.device("meta")
    assert "meta" in loader.decision
    epochs = [[x.device.type for x, _ in loader] for _ in range(2)]
    assert epochs == [["meta"] * len(loader)] * 2


def test_where_samples_cannot_be_held_is_said() -> None:
    assert "not on meta" in made(tensor_data(8), device="meta").decision


@pytest.mark.parametrize("options", [{}, {"optimize": False}, {"num_workers": 2}, RANKS], ids=str)
@pytest.mark.parametrize("data", [tensor_data(10), PairDataset(10)], ids=["rows", "samples"])
def test_on_the_cpu_loading_is_as_ever(options: dict[str, Any], data: Any) -> None:
    loader = made(data, device="cpu", **{**options, "num_workers": 0})
    assert not getattr(getattr(loader, "placement", None), "is_held", False)
    assert "CPU" in loader.decision
    assert same(run(loader), run(made(data, **{**options, "num_workers": 0})))


def test_no_device_is_as_ever() -> None:
    loader = made(tensor_data(10), device=None)
    assert type(loader) is BatchedDataLoader
    assert loader.decision == made(tensor_data(10)).decision


def test_the_wait_is_logged_where_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    loader = made(tensor_data(10), device="cpu", optimize=False, benchmark=True)
    with caplog.at_level(logging.INFO, logger="chirpid_patch"):
        list(loader)
    assert "3 batches, 10 samples" in caplog.text


def test_nothing_keeps_a_loader_that_nobody_refers_to() -> None:
    loader = made(PairDataset(10), device="cpu")
    list(loader)
    gone = weakref.ref(loader)
    gc.disable()
    try:
        del loader
        assert gone() is None  # its workers would end now
    finally:
        gc.enable()


@pytest.mark.parametrize("create", ["create_loader", "create_validation_loader", "create_test_loader"])
def test_every_door_of_the_factory_knows_the_device(create: str) -> None:
    loader = getattr(Factory, create)(tensor_data(6), 4, device="cpu", resident_share=0.5)
    assert loader.placement.is_held
    assert [len(y) for _, y in loader] == [4, 2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("optimize", [True, False])
def test_a_device_that_is_not_there_is_a_clear_error(optimize: bool) -> None:
    with pytest.raises(ValueError, match=r"no CUDA device for 'cuda.*pass device='cpu'"):
        made(tensor_data(6), device="cuda", optimize=optimize)


@pytest.mark.parametrize("device", AWAY)
@pytest.mark.parametrize("options", [{}, {"optimize": False}, {"num_workers": 1}], ids=str)
def test_a_device_gets_the_loaders_batches(options: dict[str, Any], device: str) -> None:
    batches, states = run(made(PairDataset(10), device=device, **options))
    expected = run(made(PairDataset(10), **options))
    assert states == expected[1]
    assert all(x.device.type == device for x, _ in batches)
    assert same([[part.cpu() for part in batch] for batch in batches], expected[0])
