"""Workers that follow the load: when they change, when they do not, and that samples stay as they are."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from originals import DrawsAsItGoes
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory
from chirpid_patch.loading.adjusting import EpochWaits, WorkerCountChooser

needs_fork = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="starting processes otherwise takes seconds"
)


def epoch(waited: float, batch_s: float = 0.01, batches: int = 20) -> EpochWaits:
    """An epoch that waited this share of its time."""
    return EpochWaits(waited * batch_s * batches, batch_s * batches, batches)


def numbers(adjuster: WorkerCountChooser, *epochs: EpochWaits) -> list[int]:
    return [adjuster.observe(one) for one in epochs]


def test_waiting_raises_the_number_for_as_long_as_that_shortens_the_epoch() -> None:
    adjuster = WorkerCountChooser(0, 8)
    assert numbers(adjuster, epoch(0.8, 0.040), epoch(0.5, 0.020), epoch(0.2, 0.012), epoch(0.05, 0.010)) == [
        2,
        4,
        8,
        8,
    ]
    assert adjuster.why.startswith("8 instead of 4: the training waited 20%")


def test_workers_that_do_not_help_are_taken_back_and_not_tried_again() -> None:
    adjuster = WorkerCountChooser(2, 8)
    assert numbers(adjuster, epoch(0.5, 0.020), epoch(0.5, 0.0195), epoch(0.5, 0.020), epoch(0.5, 0.020)) == [
        4,
        2,
        2,
        2,
    ]
    assert adjuster.why.startswith("back to ")


def test_idle_workers_are_let_go_after_three_epochs_in_a_row() -> None:
    adjuster = WorkerCountChooser(8, 8)
    assert numbers(adjuster, epoch(0), epoch(0), epoch(0.05), epoch(0), epoch(0), epoch(0)) == [8, 8, 8, 8, 8, 4]
    assert numbers(adjuster, epoch(0.3, 0.012)) == [8]  # fewer made it slower: back, and 4 is not tried again
    assert numbers(adjuster, *[epoch(0)] * 4) == [8] * 4


def test_between_the_bounds_and_in_short_epochs_nothing_changes() -> None:
    adjuster = WorkerCountChooser(2, 4)
    assert numbers(adjuster, *[epoch(0.05)] * 5, epoch(0.9, batches=3), EpochWaits(0, 0, 20)) == [2] * 7
    assert numbers(adjuster, epoch(0.9, 0.1), epoch(0.9, 0.05), epoch(0.9, 0.05)) == [4, 4, 4]
    assert WorkerCountChooser(9, 4).workers == 4


class Squares(Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index), index * index


def run(loader: Any, epochs: int) -> list[list[Any]]:
    """Batches of each epoch, drawn as a training draws them, and what the global generator gives afterwards."""
    torch.manual_seed(11)
    return [[*map(repr, loader), repr(torch.rand(2))] for _ in range(epochs)]


class Prescribed(WorkerCountChooser):
    """Goes through given numbers."""

    def __init__(self, plan: Sequence[int]) -> None:
        super().__init__(plan[0], 8)
        self.plan = list(plan[1:])

    def observe(self, load: EpochWaits) -> int:
        assert load.batches == 9  # of 10: the first is start-up
        return self.plan.pop(0)


@needs_fork
@pytest.mark.parametrize("persistent", [False, True])
def test_batches_order_and_draws_are_those_of_a_fixed_number(persistent: bool) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "multiprocessing_context": "fork"}
    kept = {"num_workers": 2, "persistent_workers": persistent}
    with BatchedDataLoader(Squares(), **options, **kept) as fixed:
        expected = run(fixed, 5)
    with BatchedDataLoader(Squares(), **options, **kept, most_workers=8) as loader:
        loader.overlap.worker_count = Prescribed([2, 0, 1, 1, 0])
        counts, seen = [], []
        torch.manual_seed(11)
        for _ in range(5):
            seen.append([*map(repr, loader), repr(torch.rand(2))])
            counts.append(loader.worker_processes)
        assert counts == [2, 0, 1, 1, 0]
    assert seen == expected
    for process in multiprocessing.active_children():
        process.join(60)
    assert not multiprocessing.active_children()


@needs_fork
def test_a_replaced_loader_with_kept_workers_draws_its_seed_once_at_any_number() -> None:
    options: dict[str, Any] = {
        "batch_size": 4,
        "shuffle": True,
        "num_workers": 2,
        "persistent_workers": True,
        "in_process": True,
    }
    expected = run(BatchedDataLoader(Squares(), **options), 3)
    with BatchedDataLoader(Squares(), **options, most_workers=8) as loader:
        loader.overlap.worker_count = Prescribed([0, 2, 0])
        assert run(loader, 3) == expected


def test_nothing_changes_under_an_iterator_in_use() -> None:
    loader = BatchedDataLoader(Squares(), batch_size=4, most_workers=8)
    loader.overlap.worker_count = Prescribed([0])  # would fail if it were asked
    running = iter(loader)
    next(running)
    assert len(list(loader)) == 10
    assert len(list(loader)) == 10
    assert len(list(running)) == 9 and len(loader) == 10


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(4))


def test_ranks_on_one_machine_share_its_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chirpid_patch.machine.cpus.usable_cpus", lambda: 8)
    for ranks, most in ((1, 8), (4, 2), (16, 0)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
        made = OptimalDataLoaderFactory.create_training_loader(Squares(), adjust_workers=True)
        assert isinstance(made, BatchedDataLoader) and made.most_workers == most


def test_what_could_not_stay_the_same_or_not_help_is_left_alone() -> None:
    memory = BatchedDataLoader(TensorDataset(torch.arange(40.0)), batch_size=4, most_workers=2)
    stream, plain = BatchedDataLoader(Stream(), batch_size=2, most_workers=2), BatchedDataLoader(Squares())
    drawing = BatchedDataLoader(Squares(), batch_size=4, sampler=DrawsAsItGoes(40), most_workers=2)
    assert [one.adjusting.startswith("fixed: ") for one in (memory, stream, plain, drawing)] == [True] * 4
    assert not BatchedDataLoader(Squares(), batch_size=4, most_workers=2).adjusting.startswith("fixed")
    for _ in range(2):
        assert len(list(memory)) == 10
    again = pickle.loads(pickle.dumps(memory))
    assert len(list(again)) == 10 and again.most_workers == memory.most_workers
