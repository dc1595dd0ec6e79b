"""Choosing by measuring: what is chosen, what it leaves alone, and what is remembered of it."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import pickle
import random
import re
import runpy
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from originals import DrawsAsItGoes, PairDataset, global_states, run, same, seed_all, tensor_data
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
)

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory, WorkerSafeAugmentedDataset
from chirpid_patch.loader_speed.profiles import (
    default_profile_path,
    loader_choice_key,
    read_loader_choice,
    save_loader_choice,
)
from chirpid_patch.loader_speed.search import LoaderChoice, LoadingTrial, choose_loading_mode
from chirpid_patch.loading.worker_start import main_is_guarded, why_workers_cannot_start
from chirpid_patch.randomness.random_states import restore_generators_after

Factory = OptimalDataLoaderFactory
METHODS = multiprocessing.get_all_start_methods()
needs_fork = pytest.mark.skipif("fork" not in METHODS, reason="starting processes otherwise takes seconds")
FORK: dict[str, Any] = {"multiprocessing_context": "fork"}


@pytest.fixture(autouse=True)
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of remembered choices: never the user's own."""
    path = tmp_path / "cache" / "profile.json"
    monkeypatch.setenv("CHIRPID_PROFILE", str(path))
    return path


class Waiting(Dataset[Any]):
    """Reading a sample waits as for a disk or a network, and computes nothing."""

    def __init__(self, n: int = 60, seconds: float = 0.005) -> None:
        self.n = n
        self.seconds = seconds

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.n:
            raise IndexError(index)
        time.sleep(self.seconds)
        return torch.full((3,), float(index)), index


def measured(dataset: Any, batch_size: int | None = 4, **options: Any) -> Any:
    return Factory.create_training_loader(dataset, batch_size, **{"tune": True, "tune_seconds": 0.3, **options})


def ways(choice: LoaderChoice) -> list[tuple[int, int]]:
    return [(trial.num_workers, trial.prefetch_threads) for trial in choice.trials]


def no_time(choice: LoaderChoice) -> bool:
    """Whether a slow machine had no time left to start processes."""
    return any("not enough to try" in note for note in choice.notes)


# --- what is chosen ---------------------------------------------------------------------------------------------


def figures(decision: str) -> tuple[int, int]:
    found = re.search(r": measured (\d+) samples/s, and (\d+) samples/s without threads and workers$", decision)
    assert found is not None, decision
    return int(found[1]), int(found[2])


def test_threads_read_what_waits_where_they_may() -> None:
    loader = measured(Waiting(), thread_safe=True, num_workers=2, tune_seconds=1)
    assert loader.worker_processes == 0 and loader.prefetch_threads >= 2
    assert loader.decision.startswith(f"{loader.prefetch_threads} prefetch threads: ")
    chosen, alone = figures(loader.decision)
    assert chosen > alone > 0
    assert sorted(y for _, ys in loader for y in ys.tolist()) == list(range(60))


@pytest.mark.slow
@needs_fork
def test_worker_processes_read_what_waits_where_threads_may_not() -> None:
    loader = measured(Waiting(), tune_seconds=1.5, **FORK)
    assert 2 <= loader.worker_processes <= 8 and loader.prefetch_threads is None
    assert loader.keep_workers and not loader.persistent_workers
    assert loader.decision.startswith(f"{loader.num_workers} worker processes: ")
    chosen, alone = figures(loader.decision)
    assert chosen > alone > 0
    with loader:
        assert sorted(y for _, ys in loader for y in ys.tolist()) == list(range(60))


@needs_fork
def test_what_is_in_memory_is_loaded_in_this_process() -> None:
    loader = measured(tensor_data(500), 50, tune_seconds=1, **FORK)
    assert loader.worker_processes == 0 and loader.prefetch_threads is None
    alone, others = loader.decision.removeprefix("loading in this process: measured ").split(" samples/s; ")
    assert all(int(alone) > int(rate) > 0 for rate in re.findall(r"worker process(?:es)? (\d+)", others))


def test_slow_samples_do_not_lengthen_the_measuring_without_bound() -> None:
    begun = time.monotonic()
    choice = choose_loading_mode(
        Waiting(seconds=0.15), {"batch_size": 1}, threads_allowed=True, most_workers=2, seconds=0.5
    )
    assert time.monotonic() - begun < 30
    assert ways(choice)[0] == (0, 0)


@needs_fork
def test_trials_report_what_was_measured() -> None:
    options = {"batch_size": 4, **FORK}
    choice = choose_loading_mode(Waiting(), options, threads_allowed=True, most_workers=2, seconds=1)
    assert ways(choice)[:2] == [(0, 0), (0, 8)]
    for trial in choice.trials:
        assert trial.error is None and trial.samples_per_second is not None and trial.start_seconds is not None
        assert trial.samples_per_second > 0 and trial.start_seconds >= 0.005  # the time of a sample
    alone = choice.trials[0].samples_per_second
    assert alone is not None and alone <= 200  # no faster than the waiting
    assert (
        choice.why == f"measured {rate_of(choice):.0f} samples/s, and {alone:.0f} samples/s without threads and workers"
    )


def rate_of(choice: LoaderChoice) -> float:
    rates = {(t.num_workers, t.prefetch_threads): t.samples_per_second for t in choice.trials}
    return rates[choice.num_workers, choice.prefetch_threads] or 0.0


@needs_fork
@pytest.mark.parametrize("most", [0, 1, 3])
def test_no_more_workers_are_tried_than_allowed(most: int) -> None:
    options = {"batch_size": 2, **FORK}
    choice = choose_loading_mode(Waiting(seconds=0.002), options, threads_allowed=False, most_workers=most, seconds=0.6)
    tried = {workers for workers, _ in ways(choice)}
    assert tried == {0, most} or (tried == {0} and no_time(choice))
    assert choice.num_workers <= most


@needs_fork
def test_num_workers_bounds_what_the_factory_measures() -> None:
    loader = measured(Waiting(), tune_seconds=0.6, num_workers=2, **FORK)
    assert loader.worker_processes in (0, 2) and not re.search(r"[3-9] worker", loader.decision)


def test_what_cannot_be_measured_is_loaded_as_without_tuning() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(5))

    assert torch.cat(list(measured(Stream(), 2))).tolist() == list(range(5))
    assert list(measured(PairDataset(0), shuffle=False)) == []


def test_a_step_of_the_training_is_made_for_each_batch() -> None:
    seen: list[Any] = []
    measured(PairDataset(9), 3, tune_step=seen.append, tune_seconds=0.05, num_workers=1)
    assert len(seen) >= 2 and all(x.shape[0] == len(y) == 3 for x, y in seen)


class MainThreadOnly(Waiting):
    """Readable by the thread that made it, as a connection to a database."""

    def __getitem__(self, index: int) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("not in this thread")
        return super().__getitem__(index)


def test_a_way_that_fails_is_not_chosen_and_told() -> None:
    choice = choose_loading_mode(MainThreadOnly(), {"batch_size": 2}, threads_allowed=True, most_workers=0, seconds=0.2)
    assert (choice.num_workers, choice.prefetch_threads) == (0, 0)
    assert [trial.error for trial in choice.trials] == [None, "RuntimeError: not in this thread"]
    assert "8 prefetch threads" in choice.why and "RuntimeError: not in this thread" in choice.why


# --- what is read -----------------------------------------------------------------------------------------------


class Some(PairDataset):
    """Only the even samples can be read."""

    def __getitem__(self, index: Any) -> Any:
        if index % 2:
            raise OSError(f"sample {index} is damaged")
        return super().__getitem__(index)


class Named(Dataset[Any]):
    """Samples under names."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, name: str) -> Any:
        return torch.full((2,), {"wren": 1.0, "robin": 2.0}[name])


class Stacked(TensorDataset):
    """Reads whole batches by itself."""

    def __getitem__(self, index: Any) -> Any:
        assert isinstance(index, list)
        return super().__getitem__(index)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Some(10), {"sampler": [0, 4, 8]}),
        (Some(10), {"sampler": SubsetRandomSampler([0, 2, 4])}),
        (Some(10), {"batch_sampler": [[0, 2], [4, 6, 8]]}),
        (Some(10), {"sampler": [2, 4], "batch_size": None}),
        (Named(), {"sampler": ["wren", "robin", "wren"]}),
        (Stacked(torch.arange(9)), {"sampler": BatchSampler(range(9), 4, False), "batch_size": None}),
        (PairDataset(5), {"batch_size": None, "collate_fn": lambda sample: sample[0]}),
    ],
    ids=["list", "subset", "batches", "singly", "names", "own batches", "converted singly"],
)
def test_samples_are_read_as_the_callers_sampler_and_collation_have_it(dataset: Any, options: Any) -> None:
    size = options.pop("batch_size", 1 if "batch_sampler" in options else 2)
    loader = measured(dataset, size, shuffle=False, num_workers=1, **options)
    plain = DataLoader(dataset, loader.batch_size or (None if loader.batch_sampler is None else 1), **options)
    assert "measured" in loader.decision
    seed_all(0)
    expected = list(plain)
    seed_all(0)
    assert same(list(loader), expected)


def test_a_dataset_that_raises_gives_its_own_exception(profile: Path) -> None:
    seed_all(5)
    before = global_states()
    with pytest.raises(OSError, match="is damaged"):
        measured(Some(10))
    with pytest.raises(KeyError):
        measured(Named())
    assert global_states() == before and not profile.exists()


class Counting(Sampler[int]):
    """Shuffles its own list in place, and counts its epochs."""

    def __init__(self, n: int) -> None:
        self.order = list(range(n))
        self.array = np.arange(n)
        self.epochs = 0

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        self.epochs += 1
        random.shuffle(self.order)
        np.random.shuffle(self.array)
        return iter(self.order)


def test_a_sampler_does_not_notice_that_it_is_asked() -> None:
    sampler = Counting(12)
    for options in ({"sampler": sampler}, {"batch_sampler": BatchSampler(sampler, 3, False)}):
        measured(PairDataset(12), 1 if "batch_sampler" in options else 4, **options)
        assert sampler.order == sampler.array.tolist() == list(range(12)) and sampler.epochs == 0


# --- random generators ------------------------------------------------------------------------------------------


class Drawing(Dataset[Any]):
    """Draws from every generator there is, its own and the global ones."""

    def __init__(self) -> None:
        self.python = random.Random(1)
        self.numpy = np.random.default_rng(1)
        self.legacy = np.random.RandomState(1)
        self.torch = torch.Generator().manual_seed(1)
        self.named = {"one": np.random.default_rng(2)}
        self.entropy = random.SystemRandom()

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        drawn = self.python.random() + self.numpy.random() + self.legacy.rand() + self.named["one"].random()
        drawn += random.random() + np.random.rand() + self.entropy.random()
        return torch.rand(2) + torch.rand(2, generator=self.torch) + float(drawn), index


class Jitter:
    """A transform with a generator of its own."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(3)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + float(self.generator.random())


@pytest.mark.slow
@needs_fork
def test_every_random_generator_is_left_as_it_was() -> None:
    base, transform, generator = Drawing(), Jitter(), torch.Generator().manual_seed(4)
    in_sampler, in_step = torch.Generator().manual_seed(5), np.random.default_rng(6)
    dataset = WorkerSafeAugmentedDataset(base, transforms=[transform])

    def states() -> Any:
        own = [base.python.getstate(), base.numpy.bit_generator.state, pickle.dumps(base.legacy.get_state())]
        own += [base.torch.get_state().tolist(), base.named["one"].bit_generator.state]
        own += [transform.generator.bit_generator.state, in_step.bit_generator.state]
        return own, generator.get_state().tolist(), in_sampler.get_state().tolist(), global_states()

    def step(batch: Any) -> None:
        in_step.random()

    seed_all(7)
    before = states()
    sampler = SubsetRandomSampler(range(20), generator=in_sampler)
    common = {"tune_seconds": 0.5, "generator": generator, "tune_step": step, "num_workers": 2, **FORK}
    for options in ({}, {"sampler": sampler}, {"thread_safe": True}):
        loader = measured(dataset, **common, **options)
        assert "measured" in loader.decision and states() == before


def held_in(kind: str, generator: Any) -> Any:
    """An owner that holds ``generator`` in one of many places."""

    class Plain:
        def __init__(self, held: Any) -> None:
            self.held = held

        def method(self) -> None:
            """Reaches what the instance holds."""

    class Slotted:
        __slots__ = ("held",)

        def __init__(self, held: Any) -> None:
            self.held = held

    def closure() -> Any:
        return generator

    def default(held: Any = generator, *, named: Any = None) -> Any:
        return held

    places: dict[str, Callable[[], Any]] = {
        "itself": lambda: generator,
        "attribute": lambda: Plain(generator),
        "attribute of an attribute": lambda: Plain(Plain(Plain(generator))),
        "slot": lambda: Slotted(generator),
        "list": lambda: [0, (generator,)],
        "dict": lambda: Plain({"held": generator}),
        "deque": lambda: deque([generator]),
        "closure": lambda: closure,
        "default": lambda: default,
        "partial": lambda: partial(default, generator),
        "named in a partial": lambda: partial(default, named=generator),
        "bound method": lambda: Plain(generator).method,
        "bound built-in": lambda: generator.random,
        "transform of a dataset": lambda: WorkerSafeAugmentedDataset([], transforms=[Plain(generator)]),  # type: ignore[list-item]
        "sampler of a loader": lambda: DataLoader(PairDataset(3), sampler=Plain(generator)),  # type: ignore[arg-type]
    }
    return places[kind]()


@pytest.mark.parametrize(
    "place",
    ["itself", "attribute", "attribute of an attribute", "slot", "list", "dict", "deque", "closure", "default",
     "partial", "named in a partial", "bound method", "bound built-in", "transform of a dataset",
     "sampler of a loader"],
)  # fmt: skip
def test_generators_are_found_wherever_they_are_held(place: str) -> None:
    generator = np.random.default_rng(1)
    before = generator.bit_generator.state
    with restore_generators_after(held_in(place, generator)):
        generator.random()
        assert generator.bit_generator.state != before
    assert generator.bit_generator.state == before


GLOBAL = np.random.default_rng(8)


def test_generators_that_are_globals_of_the_datasets_module_are_found() -> None:
    class Stateless:
        """Its code may draw from anything in this module."""

    before = GLOBAL.bit_generator.state
    with restore_generators_after(Stateless()):
        GLOBAL.random()
    assert GLOBAL.bit_generator.state == before


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.random.PCG64(1),
        lambda: np.random.RandomState(np.random.PCG64(1)),
        lambda: np.random.Generator(np.random.SFC64(1)),
        lambda: torch.Generator().manual_seed(1),
        lambda: random.Random(1),
    ],
    ids=["bit generator", "legacy", "SFC64", "torch", "Python"],
)
def test_every_kind_of_generator_is_put_back(make: Any) -> None:
    def draw(one: Any) -> Any:
        if isinstance(one, torch.Generator):
            return torch.rand(3, generator=one).tolist()
        return one.random_raw(3).tolist() if hasattr(one, "random_raw") else [one.random() for _ in range(3)]

    generator = make()
    with restore_generators_after([generator]):
        first = draw(generator)
    assert draw(generator) == first


# --- the same training --------------------------------------------------------------------------------------------


def chosen(monkeypatch: pytest.MonkeyPatch, workers: int, threads: int) -> None:
    """Have the measuring come to this."""
    trials = (LoadingTrial(0, 0, 1.0, 0.1), LoadingTrial(workers, threads, 2.0, 0.1))
    choice = LoaderChoice(workers, threads, trials)
    monkeypatch.setattr("chirpid_patch.factory.choose_loading_mode", lambda *args, **options: choice)


WAYS = [(0, 0), (0, 3), (2, 0)]
ORIGINALS: list[dict[str, Any]] = [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}]


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize(("workers", "threads"), WAYS)
@pytest.mark.parametrize("original", ORIGINALS, ids=["alone", "workers", "persistent workers"])
@pytest.mark.parametrize("own_generator", [False, True], ids=["global", "own generator"])
def test_batches_and_random_draws_are_those_of_the_loader_that_was_replaced(
    monkeypatch: pytest.MonkeyPatch, workers: int, threads: int, original: dict[str, Any], own_generator: bool
) -> None:
    chosen(monkeypatch, workers, threads)

    def trained(make: Callable[..., Any]) -> Any:
        options: dict[str, Any] = {"generator": torch.Generator().manual_seed(2)} if own_generator else {}
        loader = make(PairDataset(23), 4, shuffle=True, **options)
        batches, states = run(loader, epochs=2)
        return loader, batches, (states, [one.get_state().tolist() for one in options.values()])

    _, expected, states = trained(partial(DataLoader, **original))
    loader, batches, moved = trained(partial(measured, thread_safe=True, **original, **FORK))
    with loader:
        assert (loader.worker_processes, loader.prefetch_threads or 0) == (workers, threads)
        assert loader.keep_workers == (workers > 0)
        assert same(batches, expected) and moved == states


@needs_fork
def test_workers_that_were_chosen_are_kept_from_epoch_to_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, 2, 0)
    before = set(multiprocessing.active_children())
    with measured(PairDataset(8), **FORK) as loader:
        pids = []
        for _ in range(3):
            list(loader)
            pids.append({child.pid for child in set(multiprocessing.active_children()) - before})
    assert len(pids[0]) == 2 and pids[0] == pids[1] == pids[2]
    assert not set(multiprocessing.active_children()) - before


class DrawsWhenAsked(DrawsAsItGoes):
    """Draws all indices when asked for an iterator; loaders with workers ask twice."""

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.n).tolist())


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize("sampler", [DrawsAsItGoes(30), DrawsWhenAsked(30)], ids=["as it goes", "when asked"])
def test_nothing_is_drawn_ahead_from_a_sampler_whose_draws_it_would_move(sampler: Any) -> None:
    dataset = Waiting(30, seconds=0.001)
    loader = measured(dataset, sampler=sampler, thread_safe=True, **FORK)
    assert loader.worker_processes == 0 and loader.prefetch_threads is None
    assert same(run(loader), run(DataLoader(dataset, 4, sampler=sampler)))

    loader = measured(dataset, sampler=sampler, num_workers=2, tune_seconds=0.6, **FORK)
    assert loader.worker_processes in (0, 2)
    with loader:
        assert same(run(loader), run(DataLoader(dataset, 4, sampler=sampler, num_workers=2)))


@needs_fork
def test_another_number_of_workers_than_before_is_not_tried_with_such_a_sampler() -> None:
    options = {"batch_size": 2, "sampler": DrawsAsItGoes(30), **FORK}
    for most, tried in ((None, {0}), (3, {0, 3})):
        choice = choose_loading_mode(Waiting(30, 0.001), options, threads_allowed=False, most_workers=most, seconds=0.5)
        assert {workers for workers, _ in ways(choice)} == tried or no_time(choice)
        assert ("no batch is prefetched" in " ".join(choice.notes)) == (most is None)


# --- where processes may be started -----------------------------------------------------------------------------


def choose_in_child(results: Any) -> None:
    torch.set_num_threads(1)
    options: dict[str, Any] = {"batch_size": 2, **FORK}
    choice = choose_loading_mode(PairDataset(8), options, threads_allowed=False, most_workers=2, seconds=0.4)
    results.put((ways(choice), choice.notes, main_is_guarded()))


@needs_fork
@pytest.mark.parametrize("daemon", [False, True])
def test_a_process_that_was_started_by_another_starts_none(daemon: bool) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=choose_in_child, args=(results,), daemon=daemon)
    child.start()
    tried, notes, _ = results.get(timeout=60)
    child.join(60)
    assert tried == [(0, 0)]
    assert len(notes) == 1


@pytest.mark.parametrize("method", sorted({"spawn", "forkserver"} & set(METHODS)))
def test_starting_processes_must_fit_into_the_time(method: str) -> None:
    for context in (method, multiprocessing.get_context(method)):
        refused = why_workers_cannot_start({"multiprocessing_context": context}, 1.0)
        assert refused is not None and "1 s" in refused and repr(method) in refused
    choice = choose_loading_mode(
        PairDataset(8), {"batch_size": 2, "multiprocessing_context": method}, threads_allowed=False, most_workers=None,
        seconds=0.2,
    )  # fmt: skip
    assert ways(choice) == [(0, 0)] and "are not enough to try worker processes" in choice.notes[0]


TELL = "from chirpid_patch.loading.worker_start import main_is_guarded\ntold = main_is_guarded()\n"
GUARD = 'if __name__ == "__main__":\n    pass\n'


@pytest.mark.parametrize(
    ("code", "guarded"),
    [
        (TELL, False),
        (TELL + GUARD, True),
        (TELL + GUARD.replace("__name__", "(__name__)").replace("__main__", "__main__"), True),
        (TELL + 'if "__main__" == __name__: pass\n', True),
        (TELL + f"def main():\n    {GUARD.splitlines()[0]} pass\n", False),
        (TELL + "# " + GUARD.splitlines()[0] + "\n", False),
        (TELL + "name = __name__\n", False),
    ],
)
@pytest.mark.parametrize("way", ["script", "module"])
def test_a_script_is_guarded_by_a_condition_on_its_name(
    code: str, guarded: bool, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    path = tmp_path / "package" / "train.py"
    path.write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "package", raising=False)
    if way == "script":
        assert runpy.run_path(str(path), run_name="__main__")["told"] is guarded
    else:  # python -m package.train
        assert runpy.run_module("package.train", run_name="__main__", alter_sys=True)["told"] is guarded
    monkeypatch.delitem(sys.modules, "package", raising=False)


def test_what_workers_do_not_import_needs_no_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "apackage"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(TELL, encoding="utf-8")
    (tmp_path / "not__main__.py").write_text(TELL, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    # python -m apackage; python of a folder with a __main__.py; but a name that only ends alike is imported
    assert runpy.run_module("apackage", run_name="__main__", alter_sys=True)["told"] is True
    assert runpy.run_path(str(package), run_name="__main__")["told"] is True
    assert runpy.run_module("not__main__", run_name="__main__", alter_sys=True)["told"] is False
    monkeypatch.delitem(sys.modules, "apackage", raising=False)
    interactive = type(sys)("__main__")
    monkeypatch.setitem(sys.modules, "__main__", interactive)
    assert main_is_guarded()
    interactive.__file__ = str(tmp_path / "gone.py")
    assert not main_is_guarded()
    (tmp_path / "gone.py").write_text("if __name__ ==", encoding="utf-8")
    assert not main_is_guarded()


SCRIPT = """
import logging, multiprocessing, sys, time
from pathlib import Path
import torch
from torch.utils.data import Dataset
from chirpid_patch import OptimalDataLoaderFactory as Factory

class Waiting(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        if str(index) in {"wren", "robin", "heron", "owl"}:  # a set's order differs from process to process
            raise IndexError
        time.sleep(0.005)
        return torch.full((2,), float(index)), index

def main(method, seconds, count):
    with Path(count).open("a") as file:
        file.write("ran\\n")
    if method != multiprocessing.get_all_start_methods()[0]:
        multiprocessing.set_start_method(method)
    before = multiprocessing.get_start_method(allow_none=True)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    loader = Factory.create_training_loader(
        Waiting(), 4, tune=sys.argv[4], tune_seconds=float(seconds))
    fixed = multiprocessing.get_start_method(allow_none=True) != before
    with loader:
        print(loader.worker_processes, sum(len(y) for _, y in loader), fixed)

main(*sys.argv[1:4])
"""


class Script:
    """A training script without a guard that runs in a Python of its own."""

    def __init__(self, folder: Path, name: str, method: str, seconds: float, profile: Path) -> None:
        self.count = folder / f"{name}.count"
        path = folder / f"{name}.py"
        path.write_text(SCRIPT, encoding="utf-8")
        places = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = subprocess.Popen(
            [sys.executable, str(path), method, str(seconds), str(self.count), str(profile)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": places, "PYTHONHASHSEED": "random"},
        )

    def result(self) -> tuple[int, int, bool, int, str]:
        """Workers chosen, samples loaded, whether the start method was fixed, times it ran, what was logged."""
        out, log = self._process.communicate(timeout=200)
        assert self._process.returncode == 0, log
        workers, samples, fixed = out.split()
        return int(workers), int(samples), fixed == "True", len(self.count.read_text().splitlines()), log


@pytest.mark.slow
@pytest.mark.skipif(not {"fork", "spawn", "forkserver"} <= set(METHODS), reason="needs all ways to start a process")
def test_scripts_run_once_however_processes_are_started_and_whatever_is_remembered(
    tmp_path: Path, profile: Path
) -> None:
    measured = Script(tmp_path, "measured", "fork", 1, profile)
    fresh = Script(tmp_path, "fresh", "forkserver", 6, tmp_path / "other.json")
    workers, samples, fixed, times, _ = measured.result()
    assert workers > 1 and (samples, fixed, times) == (24, False, 1)
    workers, samples, _, times, log = fresh.result()
    assert (workers, samples, times) == (0, 24, 1)
    assert "__main__" in log

    known = Script(tmp_path, "known", "spawn", 0, profile)
    workers, samples, _, times, log = known.result()
    assert (workers, samples, times) == (0, 24, 1)
    assert "the saved loader settings are not used" in log


@pytest.mark.parametrize("method", sorted({"spawn", "forkserver"} & set(METHODS)))
def test_where_processes_are_safe_what_is_remembered_is_used(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, 2, 0)
    options: dict[str, Any] = {"multiprocessing_context": method}
    assert measured(PairDataset(6), **options).worker_processes == 2
    monkeypatch.setattr("chirpid_patch.factory.choose_loading_mode", lambda *args, **options: pytest.fail("measured"))
    assert measured(PairDataset(6), **options).worker_processes == 2  # pytest's own script has a guard
    monkeypatch.setattr("chirpid_patch.loading.worker_start.main_is_guarded", lambda: False)
    assert measured(PairDataset(6), tune=default_profile_path(), **options, tune_seconds=0).worker_processes == 0


# --- what is remembered -----------------------------------------------------------------------------------------


@pytest.fixture
def measurings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The datasets that were measured, one entry each time; each time without workers, in next to no time."""
    seen: list[Any] = []

    def choose(dataset: Any, options: Any, **more: Any) -> LoaderChoice:
        seen.append(dataset)
        return choose_loading_mode(dataset, options, **{**more, "most_workers": 0, "seconds": 0.01})

    monkeypatch.setattr("chirpid_patch.factory.choose_loading_mode", choose)
    return seen


def test_a_choice_is_measured_once(measurings: list[Any], profile: Path) -> None:
    first, second = measured(tensor_data(12)), measured(tensor_data(12))
    assert len(measurings) == 1 and first.decision == second.decision
    again = Factory.create_training_loader(tensor_data(12), 4, tune=profile, tune_seconds=0)
    assert len(measurings) == 1 and getattr(again, "decision", "") == first.decision
    assert profile.exists() and default_profile_path() == profile


def test_without_tune_only_what_is_known_is_used(measurings: list[Any], profile: Path) -> None:
    loader = Factory.create_training_loader(tensor_data(12), 4, tune=str(profile), tune_seconds=0)
    assert not measurings and not profile.exists() and "measured" not in getattr(loader, "decision", "")


def test_each_profile_has_its_own_choices(measurings: list[Any], tmp_path: Path, profile: Path) -> None:
    for path in (tmp_path / "a.json", tmp_path / "b.json"):
        measured(tensor_data(12), tune=path)
        assert path.exists() and read_loader_choice(path, next(iter(json.loads(path.read_text())["choices"])))
    assert len(measurings) == 2 and not profile.exists()


def test_other_data_or_another_loader_is_measured_again(measurings: list[Any]) -> None:
    others: list[Callable[[], Any]] = [
        lambda: measured(tensor_data(12)),
        lambda: measured(tensor_data(13)),
        lambda: measured(tensor_data(12, (2, 2, 2))),
        lambda: measured(tensor_data(12), 5),
        lambda: measured(tensor_data(12), thread_safe=True),
        lambda: measured(tensor_data(12), num_workers=2),
        lambda: measured(tensor_data(12), collate_fn=list),
        lambda: measured(WorkerSafeAugmentedDataset(tensor_data(12), {})),
        lambda: measured(WorkerSafeAugmentedDataset(tensor_data(12), {}, training=False)),
        lambda: measured(PairDataset(12)),
        lambda: measured(PairDataset(12, (2,))),
    ]
    for number, other in enumerate(others, start=1):
        for _ in range(2):
            other()
            assert len(measurings) == number


def dataset_that(body: str) -> Any:
    """A dataset of always the same name, with this code to read a sample."""
    space: dict[str, Any] = {"Dataset": Dataset, "__name__": "backend"}
    exec(f"class Clips(Dataset):\n def __len__(self): return 9\n def __getitem__(self, index):\n  {body}\n", space)
    return space["Clips"]()


def test_changed_code_to_read_a_sample_is_measured_again() -> None:
    bodies = [
        "return index",
        "return index + 1",
        "return index + 2",
        "return abs(index)",
        "return bool(index)",
        "return index if index in {1, 2} else 0",
        "return index if index in {1, 3} else 0",
        "return [index for _ in range(3)]",
        "return [index for _ in range(4)]",
        "return (lambda: index * 5)()",
        "return (lambda: index * 6)()",
    ]
    options = {"batch_size": 4}
    assert len({loader_choice_key(dataset_that(body), options) for body in bodies}) == len(bodies)
    for body in bodies:
        assert loader_choice_key(dataset_that(body), options) == loader_choice_key(
            dataset_that(body + "  # as before"), options
        )


class Awkward(Dataset[Any]):
    """Holds things that have no length when asked for it, itself among them."""

    def __init__(self) -> None:
        self.itself = self
        self.closed = Closed()
        self.scalar = torch.tensor(3.0)
        self.number = np.float32(1)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return index


class Closed:
    """As a file of samples after closing."""

    def __len__(self) -> int:
        raise RuntimeError("closed")


def test_whatever_a_dataset_holds_has_a_signature() -> None:
    assert loader_choice_key(Awkward(), {}) == loader_choice_key(Awkward(), {}) != loader_choice_key(PairDataset(4), {})


def warned(caplog: pytest.LogCaptureFixture) -> str:
    return " ".join(record.message for record in caplog.records if record.levelno == logging.WARNING)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe\x00", b"null", b"[]", b"7", b"{}", b'{"version": 1}', b'{"version": 1, "choices": []}',
     b'{"version": 2, "choices": {}}', b'{"choices": {}}'],
)  # fmt: skip
def test_a_damaged_profile_is_told_of_and_written_anew(
    content: bytes, measurings: list[Any], profile: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profile.parent.mkdir()
    profile.write_bytes(content)
    assert len(list(measured(tensor_data(12)))) == 3
    assert str(profile) in warned(caplog)
    caplog.clear()
    assert len(list(measured(tensor_data(12)))) == 3
    assert len(measurings) == 1 and not warned(caplog)


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: 7,
        lambda kept: [],
        lambda kept: {},
        lambda kept: {**kept, "trials": 3},
        lambda kept: {**kept, "trials": []},
        lambda kept: {**kept, "trials": [{"workers": 2}]},
        lambda kept: {**kept, "num_workers": "many"},
        lambda kept: {**kept, "num_workers": 5},
        lambda kept: {**kept, "trials": [{**kept["trials"][0], "samples_per_second": None}]},
        lambda kept: {**kept, "trials": [{**kept["trials"][0], "samples_per_second": "fast"}]},
        lambda kept: {name: value for name, value in kept.items() if name != "notes"},
    ],
)
def test_a_damaged_choice_is_told_of_and_measured_again(
    damage: Any, measurings: list[Any], profile: Path, caplog: pytest.LogCaptureFixture
) -> None:
    measured(tensor_data(12))
    content = json.loads(profile.read_text())
    content["choices"] = {key: damage(kept) for key, kept in content["choices"].items()}
    profile.write_text(json.dumps(content))
    assert len(list(measured(tensor_data(12)))) == 3
    assert "damaged" in warned(caplog) and len(measurings) == 2
    measured(tensor_data(12))
    assert len(measurings) == 2


@pytest.mark.parametrize("obstacle", ["a file for a folder", "a folder for the file"])
def test_a_profile_that_cannot_be_written_is_told_of(
    obstacle: str, measurings: list[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    path = tmp_path / "file" / "profile.json" if obstacle == "a file for a folder" else tmp_path / "folder"
    for times in (1, 2):
        assert len(list(measured(tensor_data(12), tune=path))) == 3
        assert len(measurings) == times and "cannot be saved" in warned(caplog)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "folder"]  # nothing half-written


def choice(rate: float = 1.0) -> LoaderChoice:
    return LoaderChoice(0, 0, (LoadingTrial(0, 0, rate, 0.1),))


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=repr)
def test_a_write_that_breaks_off_leaves_the_old_file(
    error: BaseException, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_loader_choice(profile, "one", choice())
    before = profile.read_bytes()

    def break_off(content: Any, file: Any, **options: Any) -> None:
        file.write('{"version": 1, "choi')
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("chirpid_patch.loader_speed.profiles.json.dump", break_off)
        if isinstance(error, OSError):
            save_loader_choice(profile, "two", choice())
        else:
            with pytest.raises(KeyboardInterrupt):
                save_loader_choice(profile, "two", choice())
    assert profile.read_bytes() == before and [one.name for one in profile.parent.iterdir()] == [profile.name]


def write_many(path: Path, writer: int) -> None:
    for number in range(25):
        save_loader_choice(path, f"{writer}-{number}", choice())


@needs_fork
def test_writers_at_the_same_time_leave_a_valid_file(profile: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_loader_choice(profile, "first", choice())
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(profile, number)) for number in range(4)]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        assert json.loads(profile.read_text())["version"] == 1  # whole at every moment
        seen += 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert seen and not warned(caplog)
    assert any(read_loader_choice(profile, f"{writer}-24") == choice() for writer in range(4))
    assert [one.name for one in profile.parent.iterdir()] == [profile.name]


def test_a_choice_comes_back_as_it_was(profile: Path) -> None:
    trials = (
        LoadingTrial(0, 0, 12.5, 0.25),
        LoadingTrial(0, 8, None, None, "OSError: no"),
        LoadingTrial(2, 0, 40.0, 0.5),
    )
    kept = LoaderChoice(2, 0, trials, ("a note",))
    save_loader_choice(profile, "key", kept)
    assert read_loader_choice(profile, "key") == kept and read_loader_choice(profile, "another") is None
    save_loader_choice(profile, "key", choice(3.0))
    assert read_loader_choice(profile, "key") == choice(3.0)


def test_the_oldest_choices_are_forgotten(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chirpid_patch.loader_speed.profiles._MOST_KEPT", 20)
    for number in range(23):
        save_loader_choice(profile, str(number), choice(number + 1))
        if number == 15:
            save_loader_choice(profile, "0", choice())
    assert not any(read_loader_choice(profile, key) for key in ("1", "2", "3"))
    assert all(read_loader_choice(profile, key) for key in ("0", "4", "22"))


def test_choices_are_kept_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("CHIRPID_PROFILE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    kept = Path("chirpid_patch", "loader-profile.json")
    assert default_profile_path() == tmp_path / ".cache" / kept
    (tmp_path / "Library" / "Caches").mkdir(parents=True)
    assert default_profile_path() == tmp_path / "Library" / "Caches" / kept
    for variable in ("LOCALAPPDATA", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
        assert default_profile_path() == tmp_path / variable / kept


def test_measuring_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="chirpid_patch"):
        loader = measured(PairDataset(9), tune_seconds=0.05, multiprocessing_context=METHODS[-1])
    assert "0.05 s" in caplog.text and loader.decision in caplog.text


def test_the_chosen_loader_is_an_ordinary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, 0, 2)
    loader = measured(tensor_data(12), prefetch_factor=3, drop_last=True)
    assert isinstance(loader, BatchedDataLoader) and loader.drop_last and loader.batch_size == 4
    assert "prefetch_factor" in loader.decision and loader.prefetch_threads == 2
    assert measured(tensor_data(12), prefetch_threads=1).prefetch_threads == 1


def test_a_dataset_without_a_length_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Dataset[int]):
        def __getitem__(self, index: int) -> int:
            return index

    chosen(monkeypatch, 0, 2)
    loader = measured(Endless(), 2, sampler=[0, 5, 1])
    assert [batch.tolist() for batch in loader] == [[0, 5], [1]]
