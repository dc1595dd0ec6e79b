"""Worker processes that are started when they are worth it: the same batches, and no sample knows."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from originals import DrawsAsItGoes, PairDataset, RandomPairDataset, run, same, seed_all
from torch.utils.data import DataLoader, Dataset, get_worker_info

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory, worker_init_fn
from chirpid_patch.loading.worker_demand import WorkerDemand
from chirpid_patch.tuning.loader_twin import loader_twin

pytestmark = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="starts many processes")


@pytest.fixture(autouse=True)
def forks() -> Iterator[None]:
    """Processes that start at once, also where that is not the default."""
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


def children() -> int:
    return len(multiprocessing.active_children())


# --- the decision, from times alone ----------------------------------------------------------------------------------


def demand(workers: int = 4, *, ahead: int = 8, kept: bool = False, start_s: float = 0.1) -> WorkerDemand:
    return WorkerDemand(workers, ahead=ahead, kept=kept, start_s=start_s)


def load_here(decision: WorkerDemand, away_s: float, load_s: float, left: int | None, batches: int = 1) -> None:
    for number in range(batches):
        decision.loaded_here(away_s if number else None, load_s, None if left is None else left - number)


def load_by_workers(decision: WorkerDemand, away_s: float, wait_s: float, batches: int, first_s: float = 0.1) -> None:
    decision.epoch_begins()
    decision.started(0.05)
    for number in range(batches):
        decision.loaded_by_workers(away_s if number else None, wait_s if number else first_s)
        if not decision.wanted:
            return


def test_a_batch_that_takes_longer_than_the_start_decides_at_once() -> None:
    decision = demand()
    load_here(decision, 0.01, 0.16, left=20)
    assert decision.wanted


def test_a_short_epoch_of_cheap_batches_is_loaded_here() -> None:
    decision = demand()
    load_here(decision, 0.01, 0.002, left=40, batches=40)
    assert not decision.wanted
    assert "longer than they could save" in decision.why


def test_a_long_epoch_of_cheap_batches_is_worth_a_trial_after_a_few() -> None:
    decision = demand()
    load_here(decision, 0.01, 0.002, left=10_000, batches=2)
    assert not decision.wanted
    load_here(decision, 0.01, 0.002, left=9_998)
    assert decision.wanted


def test_one_slow_batch_gains_nothing_by_processes() -> None:
    decision = demand()
    load_here(decision, 0.01, 5.0, left=1)
    assert not decision.wanted


def test_loading_that_takes_next_to_no_time_is_left_alone() -> None:
    decision = demand(kept=True)
    load_here(decision, 1.0, 0.002, left=1_000_000, batches=50)
    assert not decision.wanted and "next to no time" in decision.why


def test_kept_processes_are_worth_it_once_loading_has_taken_as_long_as_their_start() -> None:
    short, kept = demand(), demand(kept=True)
    for _ in range(40):  # epochs of three batches each
        load_here(short, 0.01, 0.01, left=3, batches=3)
        load_here(kept, 0.01, 0.01, left=3, batches=3)
    assert kept.wanted and not short.wanted


def test_without_a_length_an_epoch_is_expected_to_go_on_for_as_long_as_it_has() -> None:
    decision = demand()
    load_here(decision, 0.01, 0.01, None, batches=10)
    assert not decision.wanted
    load_here(decision, 0.01, 0.01, None, batches=40)
    assert decision.wanted


def test_processes_that_gain_nothing_are_given_up_and_tried_again_ever_later() -> None:
    decision, tried_after = demand(), []
    for _ in range(3):
        batches = 0
        while not decision.wanted:
            load_here(decision, 0.01, 0.01, left=100_000)
            batches += 1
        tried_after.append(batches)
        load_by_workers(decision, 0.01, 0.012, batches=30)
        assert not decision.wanted and "1.10 times as long" in decision.why
    assert tried_after[0] < tried_after[1] < tried_after[2]


def test_processes_that_gain_stay() -> None:
    decision = demand()
    load_here(decision, 0.01, 0.02, left=1000, batches=3)
    load_by_workers(decision, 0.01, 0.001, batches=400)
    decision.epoch_ended()
    load_by_workers(decision, 0.01, 0.001, batches=400)
    decision.epoch_ended()
    assert decision.wanted


@pytest.mark.parametrize("kept", [False, True])
def test_the_start_counts_where_it_is_paid_every_epoch(kept: bool) -> None:
    decision = demand(kept=kept, start_s=0.01)
    for _ in range(3):
        load_here(decision, 0.01, 0.01, left=30, batches=30)
    assert decision.wanted
    for _ in range(2):  # 20 batches at 11 ms after a start of 300 ms; here they take 400 ms in all
        load_by_workers(decision, 0.01, 0.001, batches=20, first_s=0.25)
        decision.epoch_ended()
    assert decision.wanted is kept


def test_an_epoch_that_was_left_early_counts_too() -> None:
    decision = demand(start_s=0.01)
    load_here(decision, 0.01, 0.01, left=100, batches=3)
    load_by_workers(decision, 0.01, 0.001, batches=5, first_s=0.25)
    decision.epoch_begins()
    assert not decision.wanted


def test_a_loop_whose_steps_change_is_looked_at_anew() -> None:
    decision = demand()
    load_here(decision, 0.01, 0.05, left=1000, batches=3)
    load_by_workers(decision, 0.01, 0.001, batches=40)
    decision.epoch_ended()
    assert decision.wanted
    load_by_workers(decision, 0.5, 0.001, batches=40)
    decision.epoch_ended()
    assert not decision.wanted


def test_what_is_settled_stays() -> None:
    decision = demand()
    decision.settle("of a reason")
    load_by_workers(decision, 0.01, 5.0, batches=100)
    decision.epoch_ended()
    assert decision.wanted and decision.why == "of a reason"


# --- the batches -----------------------------------------------------------------------------------------------------


class Scripted(WorkerDemand):
    """Changes its mind after given numbers of batches, whatever they took."""

    def __init__(self, changes: set[int], **options: Any) -> None:
        super().__init__(2, ahead=4, start_s=0.1, **options)
        self.changes = changes
        self.batches = 0

    def _count(self) -> None:
        self.batches += 1
        if self.batches in self.changes:
            self.wanted = not self.wanted

    def loaded_here(self, away_s: float | None, load_s: float, left: int | None) -> None:
        self._count()

    def loaded_by_workers(self, away_s: float | None, wait_s: float) -> None:
        self._count()

    def epoch_ended(self) -> None: ...


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("draws_as_it_goes", [False, True])
@given(changes=st.sets(st.integers(1, 22), max_size=4))
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_and_random_states_are_the_same_wherever_they_are_loaded(
    persistent: bool, draws_as_it_goes: bool, changes: set[int]
) -> None:
    dataset = PairDataset(15)
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 2, "persistent_workers": persistent}
    options |= {"sampler": DrawsAsItGoes(15)} if draws_as_it_goes else {"shuffle": True}
    expected = run(DataLoader(dataset, **options), epochs=3)
    loader = BatchedDataLoader(dataset, workers_on_demand=True, **options)
    loader.demand = Scripted(changes, kept=persistent)
    actual = run(loader, epochs=3)
    loader.shutdown()
    assert same(actual[0], expected[0])
    assert actual[1] == expected[1]


class Costly(PairDataset):
    """Keeps a CPU busy for a while before it gives a sample."""

    def __init__(self, length: int, seconds: float) -> None:
        super().__init__(length)
        self.seconds = seconds

    def __getitem__(self, index: Any) -> Any:
        until = time.thread_time() + self.seconds
        while time.thread_time() < until:
            pass
        return super().__getitem__(index)


@pytest.mark.parametrize(("seconds", "processes"), [(0.0, 0), (0.03, 2)])
def test_processes_are_started_for_costly_samples_only(seconds: float, processes: int) -> None:
    loader = OptimalDataLoaderFactory.create_validation_loader(Costly(32, seconds), 4, max_workers=2)
    assert "once they are worth their start" in getattr(loader, "decision")  # noqa: B009
    batches = iter(loader)
    seen = [next(batches)]
    assert children() == processes
    seen += list(batches)
    assert torch.cat([y for _, y in seen]).tolist() == list(range(32))


@pytest.mark.parametrize("given", [{"num_workers": 1}, {"max_workers": 1, "adjust_workers": True}])
def test_who_asks_for_processes_gets_them(given: dict[str, Any]) -> None:
    loader = OptimalDataLoaderFactory.create_training_loader(PairDataset(8), 2, **given)
    next(iter(loader))
    assert isinstance(loader, BatchedDataLoader) and loader.demand is None


# --- samples that depend on where they are read ----------------------------------------------------------------------


class OwnGenerator(PairDataset):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.rng = np.random.default_rng(7)

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index)[0] + float(self.rng.normal()), index


class OpensLate(PairDataset):
    """Opens its file when the first sample is read, as is done for what a fork must not inherit."""

    file: Any = None

    def __getitem__(self, index: Any) -> Any:
        if self.file is None:
            self.file = Path(__file__).open("rb")  # noqa: SIM115
        return super().__getitem__(index)


class Remembers(PairDataset):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.known: dict[int, Any] = {}
        self.order: list[int] = []

    def __getitem__(self, index: Any) -> Any:
        self.order.append(index)
        return self.known.setdefault(index, super().__getitem__(index))


_opened: Any = None


class OpensGlobally(PairDataset):
    def __getitem__(self, index: Any) -> Any:
        global _opened
        _opened = _opened or Path(__file__).read_text(encoding="utf-8")
        return super().__getitem__(index)


class WorkersOnly(PairDataset):
    def __getitem__(self, index: Any) -> Any:
        if multiprocessing.parent_process() is None:
            raise RuntimeError("not in the training process")
        return super().__getitem__(index)


class AsksWhere(PairDataset):
    def __getitem__(self, index: Any) -> Any:
        info = get_worker_info()
        return super().__getitem__(index)[0] + (0 if info is None else 100), index


class Normalises(PairDataset):
    """Moves statistics of its own with every sample."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.seen = torch.zeros(1)

    def __getitem__(self, index: Any) -> Any:
        self.seen += 1
        return super().__getitem__(index)[0] + self.seen, index


@pytest.mark.parametrize(
    ("make", "why", "persistent"),
    [
        (RandomPairDataset, "draws random numbers", False),
        (RandomPairDataset, "draws random numbers", True),
        (OwnGenerator, "draws random numbers", False),
        (OpensLate, "changes the dataset", True),
        (Remembers, "changes the dataset", False),
        (OpensGlobally, "changes the dataset", False),
        (Normalises, "changes the dataset", True),
        (WorkersOnly, "could not be read", False),
        (AsksWhere, "in which of them", True),
    ],
)
def test_such_samples_are_read_in_processes_as_ever(
    make: Callable[[int], Dataset[Any]], why: str, persistent: bool
) -> None:
    options: dict[str, Any] = {"batch_size": 3, "shuffle": True, "num_workers": 2, "persistent_workers": persistent}
    expected = run(DataLoader(make(17), **options))
    dataset = make(17)
    before = pickle.dumps(dataset)
    loader = BatchedDataLoader(dataset, workers_on_demand=True, **options)
    actual = run(loader)
    assert loader.demand is not None and why in loader.demand.why
    assert same(actual[0], expected[0])
    assert actual[1] == expected[1]
    assert pickle.dumps(dataset) == before
    assert _opened is None
    loader.shutdown()


class RandomLater(PairDataset):
    """Augments one class only, which comes late."""

    def __getitem__(self, index: Any) -> Any:
        x, y = super().__getitem__(index)
        return (x + np.random.rand() if index >= 9 else x), y


def test_samples_that_begin_to_draw_go_to_processes_from_there_on() -> None:
    loader = BatchedDataLoader(RandomLater(18), batch_size=3, num_workers=2, workers_on_demand=True)
    assert loader.demand is not None
    seed_all(1)
    outside = np.random.get_state()[1].tolist()
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    assert not loader.demand.settled
    assert torch.cat([y for _, y in batches]).tolist() == list(range(9, 18))
    assert loader.demand.settled and "draws random numbers" in loader.demand.why
    assert np.random.get_state()[1].tolist() == outside


class CountsThreads(PairDataset):
    def __getitem__(self, index: Any) -> Any:
        return torch.tensor(torch.get_num_threads()), index


def test_samples_are_computed_with_one_thread_as_in_a_process() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        loader = BatchedDataLoader(CountsThreads(6), batch_size=2, num_workers=2, workers_on_demand=True)
        assert [int(x.max()) for x, _ in loader] == [1, 1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_what_prepares_a_process_needs_one() -> None:
    loader = OptimalDataLoaderFactory.create_training_loader(
        PairDataset(8), 2, max_workers=2, worker_init_fn=worker_init_fn
    )
    assert "at once, a worker_init_fn prepares them" in getattr(loader, "decision")  # noqa: B009


def test_a_library_that_must_not_be_used_before_a_fork_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", types.ModuleType("cv2"))
    loader = BatchedDataLoader(WorkersOnly(8), batch_size=2, num_workers=1, workers_on_demand=True)
    assert len(list(loader)) == 4
    assert loader.demand is not None and "cv2 may hang" in loader.demand.why
    multiprocessing.set_start_method("spawn", force=True)
    spawned = BatchedDataLoader(PairDataset(8), batch_size=2, num_workers=1, workers_on_demand=True)
    assert spawned.demand is not None and not spawned.demand.settled


def test_a_users_data_frame_may_remember_what_was_read_from_it() -> None:
    class Frame:
        def __init__(self) -> None:
            self.cache: dict[str, int] = {}

        def __getitem__(self, name: str) -> int:
            return self.cache.setdefault(name, 1)

    Frame.__module__ = "pandas.core.frame"

    class Table(PairDataset):
        def __init__(self, length: int) -> None:
            super().__init__(length)
            self.frame = Frame()

        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index)[0] + self.frame["column"], index

    loader = BatchedDataLoader(Table(8), batch_size=2, num_workers=2, workers_on_demand=True)
    assert len(list(loader)) == 4
    assert loader.demand is not None and not loader.demand.settled


def test_a_twin_with_other_workers_starts_them() -> None:
    loader = BatchedDataLoader(PairDataset(8), batch_size=2, num_workers=1, workers_on_demand=True)
    assert loader_twin(loader).__dict__["demand"] is not loader.demand
    assert loader_twin(loader, 2).__dict__["demand"] is None
