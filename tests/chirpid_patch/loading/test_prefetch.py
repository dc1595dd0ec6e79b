"""Threads that load ahead: the same batches, nothing moved, nothing left behind."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import random
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from originals import DrawsAsItGoes, same
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from chirpid_patch import (
    BatchedDataLoader,
    OptimalDataLoaderFactory,
    WorkerSafeAugmentedDataset,
    WorkerSafeStandardizedDataset,
)
from chirpid_patch.loading.adjusting import LoadingController

AUGMENTATION = {"spec_augment_params": {"p": 0.9}, "gaussian_noise_params": {"std": 0.1, "p": 0.9}}


def tensors(n: int = 23) -> TensorDataset:
    generator = torch.Generator().manual_seed(n)
    return TensorDataset(torch.rand(n, 1, 6, 9, generator=generator), torch.arange(n))


def standardized(n: int = 23) -> WorkerSafeStandardizedDataset:
    return WorkerSafeStandardizedDataset(tensors(n), list(range(n)), 0.4, 0.3)


def augmented(n: int = 23) -> WorkerSafeAugmentedDataset:
    return WorkerSafeAugmentedDataset(standardized(n), AUGMENTATION)


def states() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()


def epochs(loader: Any, count: int = 3) -> tuple[list[Any], tuple[Any, ...]]:
    """The batches of several epochs, each with a draw of the training between batches; the states after them."""
    batches = [(batch, torch.rand(1)) for _ in range(count) for batch in loader]
    return batches, states()


def prefetch_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("chirpid-prefetch")}


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(
    "make",
    [tensors, standardized, lambda: Subset(tensors(), range(3, 20)), lambda: ConcatDataset([tensors(9), tensors(14)])],
    ids=["tensors", "standardized", "subset", "concatenated"],
)
def test_batches_and_random_states_are_those_of_the_plain_loader(make: Any, drop_last: bool, threads: int) -> None:
    def run(kind: Any, **more: Any) -> Any:
        torch.manual_seed(5)
        return epochs(kind(make(), batch_size=4, shuffle=True, drop_last=drop_last, **more))

    assert same(run(BatchedDataLoader, prefetch_threads=threads), run(DataLoader))


@pytest.mark.parametrize("threads", [1, 3])
def test_augmentation_is_the_same_with_any_number_of_threads(threads: int) -> None:
    def run(count: int) -> Any:
        torch.manual_seed(8)
        random.seed(8)
        return epochs(BatchedDataLoader(augmented(), batch_size=4, shuffle=True, prefetch_threads=count))

    assert same(run(threads), run(0))


@pytest.mark.parametrize(
    "sampler",
    [
        lambda: SubsetRandomSampler(range(2, 22)),
        lambda: WeightedRandomSampler([1.0, 5.0] * 11 + [1.0], 40),
        lambda: torch.utils.data.RandomSampler(tensors(), replacement=True, num_samples=50),
        lambda: torch.utils.data.DistributedSampler(tensors(), num_replicas=2, rank=1),
        lambda: DrawsAsItGoes(23),
    ],
    ids=["subset", "weighted", "replacement", "distributed", "own"],
)
def test_samplers_draw_when_they_would_have_drawn(sampler: Any) -> None:
    def run(kind: Any, **more: Any) -> Any:
        torch.manual_seed(2)
        return epochs(kind(tensors(), batch_size=4, sampler=sampler(), **more))

    assert same(run(BatchedDataLoader, prefetch_threads=3), run(DataLoader))


def test_a_generator_of_the_callers_moves_as_with_the_plain_loader() -> None:
    def run(kind: Any, **more: Any) -> Any:
        generator = torch.Generator().manual_seed(3)
        seen = []
        for _ in range(2):
            for batch in kind(tensors(), batch_size=4, shuffle=True, generator=generator, **more):
                seen.append((batch, generator.get_state()))
        return seen

    assert same(run(BatchedDataLoader, prefetch_threads=2), run(DataLoader))


def test_batches_belong_to_their_receiver() -> None:
    loader = BatchedDataLoader(standardized(40), batch_size=4, prefetch_threads=2)
    kept = []
    for x, _ in loader:
        kept.append((x, x.clone()))
        x.mul_(2)
    assert all(torch.equal(x, before * 2) for x, before in kept)
    assert same(list(loader), list(BatchedDataLoader(standardized(40), batch_size=4)))


def test_two_iterators_of_one_loader_run_side_by_side() -> None:
    loader = BatchedDataLoader(standardized(), batch_size=4, prefetch_threads=2)
    pairs = list(zip(loader, loader, strict=True))
    assert len(pairs) == 6 and all(same(one, other) for one, other in pairs)


def test_changes_of_the_dataset_take_effect_with_the_next_batch() -> None:
    dataset = augmented(40)
    loader = BatchedDataLoader(dataset, batch_size=4, prefetch_threads=3)
    plain = [x for x, _ in BatchedDataLoader(standardized(40), batch_size=4)]
    for number, (x, _) in enumerate(loader):
        assert torch.equal(x, plain[number]) == (3 <= number < 6)
        dataset.set_training(number < 2 or number >= 5)


def test_writes_to_the_tensors_take_effect_with_the_next_batch() -> None:
    dataset = tensors(24)
    for number, (x, _) in enumerate(BatchedDataLoader(dataset, batch_size=4, prefetch_threads=2)):
        assert bool((x == number).all()) or number == 0
        dataset.tensors[0].fill_(number + 1)


def test_parameters_of_a_transform_take_effect_with_the_next_batch() -> None:
    dataset = WorkerSafeAugmentedDataset(tensors(24), {"p": 0.0})
    transform: Any = dataset.transforms[0]
    transform.freq_mask_param = 0
    transform.time_mask_param = 0
    transform.num_time_masks = 0
    for number, (x, _) in enumerate(BatchedDataLoader(dataset, batch_size=4, prefetch_threads=2)):
        assert bool((x == -1).all()) == (number >= 3)
        if number == 2:
            transform.p, transform.mask_value, transform.num_freq_masks, transform.freq_mask_param = 1.0, -1.0, 60, 6


def test_gradient_and_inference_mode_are_the_consumers() -> None:
    class Scaled(Dataset[Any]):
        weight = torch.ones(1, requires_grad=True)

        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> Any:
            return self.weight * index

    loader = BatchedDataLoader(Scaled(), batch_size=2, prefetch_threads=2, thread_safe=True)
    assert all(batch.requires_grad for batch in loader)
    with torch.no_grad():
        assert not any(batch.requires_grad for batch in loader)
    with torch.inference_mode():
        assert all(batch.is_inference() for batch in loader)
    batches = iter(loader)
    assert next(batches).requires_grad
    with torch.no_grad():
        assert not next(batches).requires_grad
    assert next(batches).requires_grad


class Recording(Dataset[Any]):
    """A user's dataset that notes the threads it is read in."""

    def __init__(self, n: int = 20, fails_at: int | None = None, seconds: float = 0.0) -> None:
        self.n = n
        self.fails_at = fails_at
        self.seconds = seconds
        self.threads: set[str] = set()

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        self.threads.add(threading.current_thread().name)
        time.sleep(self.seconds)
        if index == self.fails_at:
            raise ValueError(f"sample {index} is broken")
        return torch.full((2,), float(index)), index


def test_a_users_dataset_is_read_in_threads_only_when_declared_thread_safe() -> None:
    for thread_safe in (False, True):
        dataset = Recording()
        loader = BatchedDataLoader(dataset, batch_size=4, prefetch_threads=2, thread_safe=thread_safe)
        assert same(list(loader), list(DataLoader(Recording(), batch_size=4)))
        assert any(name.startswith("chirpid-prefetch") for name in dataset.threads) == thread_safe


def test_a_users_collate_fn_and_transforms_run_in_threads_only_when_declared_thread_safe() -> None:
    here = threading.current_thread().name
    seen: set[str] = set()

    def note(value: Any) -> Any:
        seen.add(threading.current_thread().name)
        return value

    list(BatchedDataLoader(tensors(), batch_size=4, collate_fn=note, prefetch_threads=2))
    list(BatchedDataLoader(WorkerSafeAugmentedDataset(tensors(), transforms=[note]), batch_size=4, prefetch_threads=2))
    assert seen == {here}
    list(BatchedDataLoader(tensors(), batch_size=4, collate_fn=note, prefetch_threads=2, thread_safe=True))
    assert seen > {here}


def test_the_samples_of_one_batch_are_read_by_all_threads() -> None:
    dataset = Recording(seconds=0.01)
    loader = BatchedDataLoader(dataset, batch_size=20, prefetch_threads=5, thread_safe=True)
    assert next(iter(loader))[1].tolist() == list(range(20))
    assert len(dataset.threads) == 5


def test_a_dataset_that_reads_batches_itself_gets_whole_batches() -> None:
    class Many(Recording):
        def __getitems__(self, indices: list[int]) -> Any:
            seen.append(list(indices))
            return [self[index] for index in indices]

    seen: list[list[int]] = []
    list(BatchedDataLoader(Many(), batch_size=4, prefetch_threads=2, thread_safe=True))
    assert sorted(seen) == [list(range(start, start + 4)) for start in range(0, 20, 4)]


def test_samples_read_in_parts_are_augmented_alike() -> None:
    def run(threads: int) -> Any:
        torch.manual_seed(1)
        standardized = WorkerSafeStandardizedDataset(Recording(), range(20), 3.0, 2.0)
        dataset = WorkerSafeAugmentedDataset(standardized, {"spec_augment_params": None, "gaussian_noise_params": {}})
        loader = BatchedDataLoader(dataset, batch_size=6, shuffle=True, prefetch_threads=threads, thread_safe=True)
        return epochs(loader, 2)

    assert same(run(3), run(0))


def test_an_error_stands_for_its_batch() -> None:
    dataset = Recording(fails_at=9)
    batches = iter(BatchedDataLoader(dataset, batch_size=4, prefetch_threads=3, thread_safe=True))
    assert [next(batches)[1].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(ValueError, match="sample 9 is broken"):
        next(batches)
    assert next(batches)[1].tolist() == [12, 13, 14, 15]


def test_threads_compute_on_one_cpu_and_leave_the_setting_alone() -> None:
    before = torch.get_num_threads()
    counts: list[int] = []

    def note(samples: Any) -> Any:
        counts.append(torch.get_num_threads())
        return samples

    list(BatchedDataLoader(tensors(), batch_size=4, collate_fn=note, prefetch_threads=2, thread_safe=True))
    assert set(counts[1:]) == {1} and torch.get_num_threads() == before  # the first batch is loaded here
    fresh: list[int] = []
    thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert fresh == [before]


@pytest.mark.parametrize("end", ["complete", "break", "error", "shutdown"])
def test_no_thread_is_left_once_the_loader_is_dropped(end: str) -> None:
    gc.collect()
    before = prefetch_threads()
    loader: Any = BatchedDataLoader(
        Recording(seconds=0.002, fails_at=11 if end == "error" else None),
        batch_size=2,
        prefetch_threads=3,
        thread_safe=True,
    )
    try:
        for number, _ in enumerate(loader):
            if end == "break" and number == 2:
                break
    except ValueError:
        assert end == "error"
    if end == "shutdown":
        loader.shutdown()
    else:
        assert len(prefetch_threads() - before) == 3
        del loader
        gc.collect()
        until = time.monotonic() + 10
        while prefetch_threads() - before and time.monotonic() < until:
            time.sleep(0.01)  # the batches being loaded are finished
    assert not prefetch_threads() - before


def test_a_loader_can_be_copied_and_pickled_between_epochs() -> None:
    loader = BatchedDataLoader(standardized(), batch_size=4, prefetch_threads=2)
    expected = list(loader)
    for twin in (pickle.loads(pickle.dumps(loader)), copy.copy(loader)):
        assert same(list(twin), expected)
        twin.shutdown()
    assert same(list(loader), expected)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_process_has_threads_of_its_own() -> None:
    loader = BatchedDataLoader(standardized(), batch_size=4, prefetch_threads=2)
    expected = list(loader)
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    child = context.Process(target=lambda: results.put([x.numpy().tobytes() for x, _ in loader]))
    child.start()
    assert results.get(timeout=60) == [x.numpy().tobytes() for x, _ in expected]
    child.join(60)
    assert child.exitcode == 0 and same(list(loader), expected)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("most", [0, 1])
def test_a_loop_goes_on_where_the_system_starts_no_more_threads(
    most: int, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, start, here = [], threading.Thread.start, torch.get_num_threads()

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("chirpid-prefetch"):
            if len(started) == most:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    loader: Any = OptimalDataLoaderFactory.create_loader(
        tensors(), 4, shuffle=True, num_workers=num_workers, prefetch_threads=2
    )
    torch.manual_seed(3)
    given = epochs(loader)
    torch.manual_seed(3)
    assert same(given, epochs(DataLoader(tensors(), 4, shuffle=True)))
    assert len(started) == most and not prefetch_threads() and torch.get_num_threads() == here


OUTLIVES = """
import sys, threading, time, torch
from torch.utils.data import TensorDataset
import {module}

def train():
    for _ in range(2):
        for x, in {module}.{name}(TensorDataset(torch.arange(400.)), 2, num_workers={num_workers}, {options}):
            time.sleep(0.0005)
            total.append(float(x.sum()))
    print(sum(total))

if __name__ == "__main__":
    total = []
    training = threading.Thread(target=train)
    training.start()
    while not total:
        time.sleep(0.001)
"""


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.exhaustive)])  # ours are threads in both
def test_a_training_thread_outlives_the_main_thread_as_with_the_plain_loader(num_workers: int) -> None:
    printed = []
    for module, name, options in (
        ("torch.utils.data", "DataLoader", ""),
        ("chirpid_patch", "BatchedDataLoader", "prefetch_threads=2"),
        ("chirpid_patch", "OptimalDataLoaderFactory.create_loader", "prefetch_threads=2"),
    ):
        program = OUTLIVES.format(module=module, name=name, options=options, num_workers=num_workers)
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        printed.append((ended.returncode, ended.stdout))
    assert printed[0] == (0, f"{2 * sum(range(400)):.1f}\n") and len(set(printed)) == 1, ended.stderr


def steps(
    overlap: LoadingController, clock: Any, load: float, away: float, *, gain: float, busy: float, epochs: int = 3
) -> None:
    """Drive ``overlap`` with a simulated loop whose threads hide ``gain`` of the loading."""
    for _ in range(epochs):
        overlap.begin_epoch()
        for _ in range(60):
            clock.run(away, thread=0.0, process=away * busy)
            overlap.batch_requested()
            threads = overlap.threads
            seconds = load * (1 - gain) if threads else load
            clock.run(seconds, thread=seconds, process=seconds)
            overlap.batch_delivered(threads)


class SimulatedClocks:
    """Stands in for the process's clocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = self.thread = self.process = 0.0
        for name, clock in (("perf_counter", "wall"), ("thread_time", "thread"), ("process_time", "process")):
            monkeypatch.setattr(
                f"chirpid_patch.loading.adjusting.time.{name}", lambda clock=clock: getattr(self, clock)
            )

    def run(self, wall: float, *, thread: float, process: float) -> None:
        self.wall += wall
        self.thread += thread
        self.process += process


@pytest.mark.parametrize(
    ("load", "away", "gain", "busy", "threads"),
    [
        (3e-3, 8e-3, 0.9, 0.1, 1),  # a device computes: loading hides behind it
        (3e-3, 8e-3, 0.9, 2.0, 0),  # the training uses both CPUs: not even tried
        (3e-3, 8e-3, -0.5, 0.1, 0),  # tried, and slower
        (3e-3, 8e-3, 0.05, 0.1, 0),  # tried, and next to nothing gained
        (1e-5, 8e-3, 0.9, 0.1, 0),  # nothing to hide
        (12e-3, 8e-3, 0.6, 0.1, 2),  # one thread could not keep up
    ],
)
def test_threads_stay_where_they_shorten_the_loop(
    monkeypatch: pytest.MonkeyPatch, load: float, away: float, gain: float, busy: float, threads: int
) -> None:
    monkeypatch.setattr("chirpid_patch.loading.adjusting.cpus_per_rank", lambda: 2)
    clock = SimulatedClocks(monkeypatch)
    overlap = LoadingController(None)
    steps(overlap, clock, load, away, gain=gain, busy=busy)
    assert overlap.threads == threads, overlap.why


def test_a_loop_that_changes_is_looked_at_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chirpid_patch.loading.adjusting.cpus_per_rank", lambda: 2)
    clock = SimulatedClocks(monkeypatch)
    overlap = LoadingController(None)
    steps(overlap, clock, 3e-3, 1e-5, gain=0.5, busy=0.1)
    assert overlap.threads == 2  # nothing but loading
    steps(overlap, clock, 3e-3, 8e-3, gain=0.9, busy=0.1)
    assert overlap.threads == 1 and overlap.pause > 0  # a device computes
    steps(overlap, clock, 3e-3, 8e-2, gain=0.9, busy=2.0)
    assert overlap.threads == 0  # the training uses both CPUs


@pytest.mark.parametrize("threads", [0, 2])
def test_the_factory_hands_the_number_of_threads_on(threads: int) -> None:
    make = OptimalDataLoaderFactory.create_training_loader
    loader: Any = make(standardized(), 4, prefetch_threads=threads)
    assert loader.overlap.threads == threads and len(list(loader)) == 6
    assert len(list(make(standardized(), 4, prefetch_threads=threads, optimize=False))) == 6


def test_a_negative_number_of_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="prefetch_threads"):
        BatchedDataLoader(standardized(), prefetch_threads=-1)


def test_the_first_batch_is_loaded_without_threads() -> None:
    before = prefetch_threads()
    loader = BatchedDataLoader(standardized(), batch_size=4)
    next(iter(loader))
    assert not prefetch_threads() - before
