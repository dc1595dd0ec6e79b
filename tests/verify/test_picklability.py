"""Whether loaders could be sent to spawned workers, tried without starting any."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from chirp_migrate.verify.equivalence.compare import compare_recorded_passes
from chirp_migrate.verify.equivalence.loader_recorder import LoaderRecorder
from chirp_migrate.verify.equivalence.picklability import why_not_picklable
from chirp_migrate.verify.spec import EntryPointRecord

DATA = TensorDataset(torch.rand(6, 3), torch.arange(6))


class Holding(Dataset[Any]):
    """A data set with something in it."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), float(index))


class Restless(Holding):
    """Pickles, but cannot be loaded again."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise KeyError("file handle")


def first_of(samples: list[Any]) -> Any:
    return samples[0]


@pytest.mark.parametrize(
    "held",
    [
        None,
        DATA,
        [torch.rand(2), np.arange(3)],
        torch.nn.Linear(2, 2),
        np.array(["a", None], dtype=object),
        multiprocessing.get_context("spawn").Lock(),
        multiprocessing.get_context("spawn").Queue(),
    ],
)
def test_what_spawn_can_send_is_picklable(held: Any) -> None:
    assert why_not_picklable(DataLoader(Holding(held), collate_fn=first_of)) == ""


@pytest.mark.parametrize(
    "loader, reason",
    [
        (DataLoader(Holding(lambda x: x)), "dataset (Holding): "),
        (DataLoader(Holding(threading.Lock())), "dataset (Holding): TypeError: cannot pickle '_thread.lock' object"),
        (DataLoader(Restless(1)), "dataset (Restless): KeyError: 'file handle'"),
        (DataLoader(Holding(torch.rand(2, requires_grad=True) * 2)), "dataset (Holding): "),
        (DataLoader(DATA, collate_fn=lambda samples: samples), "collate_fn (function): "),
        (DataLoader(DATA, worker_init_fn=lambda worker: None), "worker_init_fn (function): "),
    ],
)
def test_the_part_that_cannot_be_sent_is_named(loader: DataLoader[Any], reason: str) -> None:
    assert why_not_picklable(loader).startswith(reason)


def test_data_is_neither_copied_nor_moved() -> None:
    tensor = torch.rand(1000)
    address = tensor.data_ptr()
    assert why_not_picklable(DataLoader(TensorDataset(tensor))) == ""
    assert tensor.data_ptr() == address and not tensor.is_shared()


def watched(dataset: Dataset[Any]) -> dict[str, EntryPointRecord]:
    with LoaderRecorder() as watch:
        list(DataLoader(dataset, batch_size=3))
        return {"entry": EntryPointRecord({}, watch.take())}


def test_only_what_could_be_sent_before_is_a_difference() -> None:
    good, bad = watched(Holding(1)), watched(Holding(lambda x: x))

    found = compare_recorded_passes(good, bad)
    assert [difference.name for difference in found.found] == ["not-picklable"]
    expected = "in loader pass 1, the train loader cannot be pickled for spawned workers, after the migration only"
    assert expected in found.differences[0]
    assert compare_recorded_passes(bad, good).found == []
    both = compare_recorded_passes(bad, bad)
    assert both.found == [] and len(both.notes) == 1
