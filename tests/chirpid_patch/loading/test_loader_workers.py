"""Worker processes that die or cannot be started: every sample exactly once, every error in its place, the same run."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from multiprocessing import connection
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from originals import PairDataset, global_states, run, same, seed_all, tensor_data
from torch.utils.data import DataLoader, get_worker_info

from chirpid_patch import (
    BatchedDataLoader,
    WorkerSafeAugmentedDataset,
    WorkerSafeSequenceDataset,
    WorkerSafeStandardizedDataset,
    worker_init_fn,
)

posix = pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="needs fork and signals")


class DyingDataset(PairDataset):
    """Its worker process ends without a word at one sample, the first time that is read: a file remembers."""

    def __init__(self, length: int, deadly: int, mark: Path | None = None, code: int = 1) -> None:
        super().__init__(length)
        self.deadly = deadly
        self.mark = mark
        self.code = code

    def __getitem__(self, index: Any) -> Any:
        if index == self.deadly and not (self.mark is not None and self.mark.exists()):
            assert get_worker_info() is not None, "a sample that may kill is read in the training process"
            if self.mark is not None:
                self.mark.touch()
            self.die()
        return super().__getitem__(index)

    def die(self) -> None:
        os._exit(self.code)


class KilledDataset(DyingDataset):
    """Its worker is killed as the kernel does it when memory runs out."""

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class CrashingDataset(DyingDataset):
    """Its worker crashes."""

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class FaultyDataset(PairDataset):
    """Raises at one sample, wherever it is read."""

    error: Exception = OSError("disk of the user")

    def __getitem__(self, index: Any) -> Any:
        if index == 5:
            raise self.error
        return super().__getitem__(index)


def die_at_start(worker_id: int) -> None:
    os._exit(3)


@pytest.fixture(autouse=True)
def no_workers_of_others() -> None:
    """Workers of loaders that earlier tests left to the garbage collector, with an error's traceback, end first."""
    gc.collect()


def children() -> int:
    return len(multiprocessing.active_children())


def numbers(batches: list[Any]) -> list[int]:
    return [number for _, y in batches for number in y.tolist()]


@posix
@pytest.mark.parametrize(
    ("kind", "persistent"),
    [
        (KilledDataset, False),
        (CrashingDataset, True),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((KilledDataset, True), (CrashingDataset, False))),
        *(pytest.param(DyingDataset, kept, marks=pytest.mark.slow) for kept in (False, True)),
    ],
)
def test_a_fresh_worker_reads_what_a_dead_one_did_not(kind: Any, persistent: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "batch_size": 2, "shuffle": True, "num_workers": 2, "persistent_workers": persistent,
    }  # fmt: skip
    expected = run(DataLoader(PairDataset(21), **options), epochs=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with BatchedDataLoader(kind(21, 7, tmp_path / "died"), **options) as loader:
            actual = run(loader, epochs=3)
    assert same(actual[0], expected[0])
    assert actual[1] == expected[1]
    assert children() == 0 and loader.lost_workers


@posix
@pytest.mark.parametrize(
    ("workers", "in_order"),
    [
        (2, True),
        (1, False),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, True), (2, False), (3, True), (3, False))),
    ],
)
def test_a_batch_that_kills_its_worker_twice_fails_in_its_place_and_the_others_go_on(
    workers: int, in_order: bool
) -> None:
    loader = BatchedDataLoader(CrashingDataset(20, 7), batch_size=2, num_workers=workers, in_order=in_order)
    batches, seen, errors = iter(loader), [], []
    while True:
        try:
            seen.append(next(batches))
        except StopIteration:
            break
        except RuntimeError as error:
            errors.append((len(seen), str(error)))
    ((place, error),) = errors
    assert re.search(r"\(pid \d+\) .* signal: Segmentation fault\..* batch 3 .* \[6, 7\]", error)
    assert sorted(numbers(seen)) == [number for number in range(20) if number not in (6, 7)]
    assert not in_order or (place == 3 and numbers(seen) == sorted(numbers(seen)))


@posix
def test_the_error_of_a_large_batch_names_its_first_samples() -> None:
    batches = iter(BatchedDataLoader(CrashingDataset(70, 7), batch_size=70, num_workers=1))
    with pytest.raises(RuntimeError, match=r"batch 0 .* with the indices \[0, 1, .*62, 63, …\]\."):
        next(batches)


@posix
def test_the_number_of_workers_stays_after_one_has_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BatchedDataLoader(
        KilledDataset(40, 7, tmp_path / "died"), batch_size=2, num_workers=1, most_workers=2
    ) as loader:
        monkeypatch.setattr(loader.overlap.worker_count, "observe", lambda load: 2)
        assert [len(list(loader)) for _ in range(3)] == [20, 20, 20]
        assert loader.worker_processes == 1 and "a worker process has died or could not be started" in loader.adjusting


@posix
def test_every_batch_that_kills_its_workers_fails_by_itself() -> None:
    loader = BatchedDataLoader(AlwaysCrashing(6), batch_size=2, num_workers=2)
    batches = iter(loader)
    for number in range(3):
        with pytest.raises(RuntimeError, match=f"batch {number} "):
            next(batches)
    assert not list(batches)


class AlwaysCrashing(PairDataset):
    """No sample of it can be read."""

    def __getitem__(self, index: Any) -> Any:
        os._exit(5)


@pytest.mark.slow
@posix
def test_a_worker_that_ends_silently_is_noticed_too(tmp_path: Path) -> None:
    loader = BatchedDataLoader(DyingDataset(6, 3, tmp_path / "died", code=0), batch_size=2, num_workers=1)
    assert numbers(list(loader)) == list(range(6))


@posix
def test_a_death_during_the_training_step_does_not_interrupt_it(tmp_path: Path) -> None:
    mark = tmp_path / "died"
    loader = BatchedDataLoader(KilledDataset(40, 4, mark), batch_size=2, num_workers=1, persistent_workers=True)
    seen = []
    for batch in loader:
        seen.append(batch)
        deadline = time.monotonic() + 20
        while len(seen) == 1 and children() and time.monotonic() < deadline:
            time.sleep(0.01)  # a step during which the worker, reading ahead, dies
    assert mark.exists() and numbers(seen) == list(range(40))


@pytest.mark.slow
@posix
def test_workers_killed_at_random_lose_and_repeat_nothing() -> None:
    seed_all(0)
    expected = [batch for _ in range(4) for batch in DataLoader(PairDataset(60), 2, shuffle=True, num_workers=3)]
    states = global_states()
    seed_all(0)
    seen, random_numbers = [], random.Random(4)
    for _ in range(4):
        deadly = random_numbers.randrange(25)
        loader = BatchedDataLoader(PairDataset(60), batch_size=2, shuffle=True, num_workers=3)
        for number, batch in enumerate(loader):
            seen.append(batch)
            if number == deadly:
                pid = random_numbers.choice(multiprocessing.active_children()).pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
    assert same(seen, expected) and global_states() == states


@posix
def test_kept_workers_killed_between_epochs_are_replaced() -> None:
    with BatchedDataLoader(PairDataset(6), batch_size=2, num_workers=2, persistent_workers=True) as loader:
        assert numbers(list(loader)) == list(range(6))
        for child in multiprocessing.active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            wait([child.sentinel], timeout=60)
        assert numbers(list(loader)) == list(range(6))
        assert numbers(list(loader)) == list(range(6))


@posix
def test_workers_that_die_at_their_start_are_an_error_that_blames_no_sample() -> None:
    loader = BatchedDataLoader(PairDataset(6), batch_size=2, num_workers=2, worker_init_fn=die_at_start)
    with pytest.raises(RuntimeError, match=r"exited unexpectedly with exit code 3\. The worker could not start"):
        list(loader)
    assert not children()


@posix
def test_augmentation_is_the_same_after_a_replay(tmp_path: Path) -> None:
    def epoch(base: Any) -> list[Any]:
        torch.manual_seed(9)
        dataset = WorkerSafeAugmentedDataset(base, {"time_mask_param": 2, "p": 1.0})
        return list(BatchedDataLoader(dataset, batch_size=3, shuffle=True, num_workers=2))

    expected = epoch(PairDataset(14))
    assert same(epoch(DyingDataset(14, 4, tmp_path / "died")), expected)
    assert (tmp_path / "died").exists()


@posix
def test_a_death_in_another_thread_than_the_main_one_is_survived_too(tmp_path: Path) -> None:
    seen: list[Any] = []
    loader = BatchedDataLoader(KilledDataset(8, 4, tmp_path / "died"), batch_size=2, num_workers=1)
    thread = threading.Thread(target=lambda: seen.extend(loader))
    thread.start()
    thread.join(60)
    assert numbers(seen) == list(range(8)) and (tmp_path / "died").exists()


def unpicklable(n: int) -> PairDataset:
    class Local(PairDataset):
        """A class that no other process can import."""

    return Local(n)


@pytest.mark.parametrize("method", sorted({"spawn", "forkserver"} & set(multiprocessing.get_all_start_methods())))
class Failing(PairDataset):
    """Cannot be sent: its own code raises ``error``."""

    error: BaseException = MemoryError("too large")

    def __getstate__(self) -> Any:
        raise self.error


class TimeIsUpError(Exception):
    """What a time limit of the user's raises."""


@pytest.fixture
def in_a_script(monkeypatch: Any) -> None:
    """The main module has a file, as that of a process that runs tests for another one has not."""
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)


NOT_SENT: list[tuple[Any, Any]] = [
    (unpicklable, (AttributeError, pickle.PicklingError)),
    *((kind, kind) for kind in (MemoryError, ZeroDivisionError, TimeIsUpError, KeyboardInterrupt)),
    (partial(OSError, errno.EAGAIN, "of the dataset's own"), OSError),
]


@pytest.mark.parametrize(
    ("reason", "expected"), NOT_SENT, ids=["local class", "memory", "bug", "time limit", "Ctrl-C", "system error"]
)
@pytest.mark.parametrize("method", sorted({"spawn", "forkserver"} & set(multiprocessing.get_all_start_methods())))
def test_what_keeps_pytorch_from_starting_workers_is_raised(
    method: str, reason: Any, expected: Any, in_a_script: None
) -> None:
    if reason is unpicklable:
        dataset: Any = unpicklable(9)
    else:
        dataset = Failing(9)
        dataset.error = reason()
    states = []
    for make in (DataLoader, BatchedDataLoader):
        seed_all(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's own, of pickling
            with pytest.raises(expected):
                iter(make(dataset, batch_size=2, shuffle=True, num_workers=2, multiprocessing_context=method))
        states.append(global_states())
        assert not children()
    assert states[0] == states[1]


def test_a_worker_init_fn_that_cannot_be_sent_is_an_error(in_a_script: None) -> None:
    options: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": "spawn", "worker_init_fn": lambda _: None}
    for make in (DataLoader, BatchedDataLoader):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises((AttributeError, pickle.PicklingError)):
                iter(make(tensor_data(4), 2, **options))


def no_process(self: Any) -> None:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize("kept", [{}, {"keep_workers": True}], ids=str)
def test_samples_in_memory_are_loaded_here_where_no_process_can_be_created(
    kept: dict[str, Any], monkeypatch: Any
) -> None:
    options: dict[str, Any] = {"batch_size": 2, "shuffle": True, "num_workers": 2}
    expected = run(DataLoader(tensor_data(9), **options))
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", no_process)
    with pytest.warns(RuntimeWarning, match="No sample is lost") as caught:
        actual = run(BatchedDataLoader(tensor_data(9), **options, **kept))
    assert [one.category for one in caught if "worker processes" not in str(one.message)] == [RuntimeWarning]
    assert same(actual[0], expected[0]) and actual[1] == expected[1]


@pytest.mark.parametrize(
    "changed",
    [{"dataset": PairDataset(9)}, {"collate_fn": list}, {"worker_init_fn": print}],
    ids=lambda changed: next(iter(changed)),
)
def test_nothing_goes_on_here_that_may_be_other_data(changed: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", no_process)
    with pytest.raises(BlockingIOError):
        iter(BatchedDataLoader(**{"dataset": tensor_data(9), "num_workers": 2, **changed}))


def test_missing_shared_memory_is_reported_and_done_without(monkeypatch: Any) -> None:
    def refuse(self: torch.Tensor) -> None:
        raise RuntimeError("unable to open shared memory object </torch_1> in read-write mode")

    expected = run(DataLoader(tensor_data(5), 2, num_workers=1))
    monkeypatch.setattr(torch.Tensor, "share_memory_", refuse)
    with pytest.warns(RuntimeWarning, match="shared memory"):
        actual = run(BatchedDataLoader(tensor_data(5), batch_size=2, num_workers=1))
    assert same(actual[0], expected[0]) and actual[1] == expected[1]


@pytest.mark.slow
def test_a_process_that_may_not_start_others_loads_what_is_in_memory_by_itself() -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(load_in_daemon) == (4, True, "daemonic processes are not allowed to have children")


def load_in_daemon() -> tuple[int, bool, str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = len(list(BatchedDataLoader(tensor_data(8), batch_size=2, num_workers=1)))
    try:
        iter(BatchedDataLoader(PairDataset(6), batch_size=2, num_workers=1))
        error = ""
    except AssertionError as refusal:
        error = str(refusal)
    return seen, any("cannot be started" in str(one.message) for one in caught), error


ERRORS = [
    RuntimeError("DataLoader worker (pid 5) is killed by signal"),
    StopIteration(),
    OSError("disk of the user"),
    URLError("unable to open shared memory"),
    TimeoutError("Too many open files"),
    EOFError(),
    ConnectionResetError("Pin memory thread exited"),
]


@pytest.mark.parametrize(
    ("workers", "error"),
    [
        *((0, error) for error in ERRORS),
        *((2, error) for error in ERRORS[:2]),
        *(pytest.param(2, error, marks=pytest.mark.slow) for error in ERRORS[2:]),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else str(one),
)
def test_an_error_of_the_users_code_is_the_users(workers: int, error: Exception) -> None:
    dataset = FaultyDataset(9)
    dataset.error = error
    iterator = iter(BatchedDataLoader(dataset, batch_size=2, num_workers=workers))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert numbers([next(iterator), next(iterator)]) == [0, 1, 2, 3]
        with pytest.raises(type(error)):
            next(iterator)
        # As with PyTorch's loader, the failed batch is spent and the next one follows.
        assert numbers(list(iterator)) == [6, 7, 8]


def test_an_error_of_the_users_sampler_is_the_users() -> None:
    def indices() -> Any:
        yield 0
        raise AttributeError("sampler of the user")

    class Broken:
        def __iter__(self) -> Any:
            return indices()

        def __len__(self) -> int:
            return 2

    for workers in (0, 1):
        loader = BatchedDataLoader(PairDataset(3), batch_size=1, sampler=Broken(), num_workers=workers)
        with pytest.raises(AttributeError, match="sampler of the user"):
            list(loader)


def remember_dataset(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.length += info.id  # type: ignore[attr-defined]


class Announcing(PairDataset):
    """Tells its length, which a worker_init_fn changes, through its samples."""

    def __getitem__(self, index: Any) -> Any:
        return torch.tensor(self.length), super().__getitem__(index)[1]


def test_worker_init_fn_finds_the_users_dataset() -> None:
    loader = BatchedDataLoader(Announcing(4), batch_size=1, num_workers=2, worker_init_fn=remember_dataset)
    assert [int(length) for length, _ in loader] == [4, 5, 4, 5]


@pytest.mark.parametrize("in_order", [True, False])
def test_the_order_of_delivery_can_be_freed(in_order: bool) -> None:
    loader = BatchedDataLoader(PairDataset(20), batch_size=2, num_workers=2, in_order=in_order)
    seen = numbers(list(loader))
    assert sorted(seen) == list(range(20)) and (not in_order or seen == sorted(seen))


def spawned_datasets() -> list[Any]:
    data = tensor_data(32)
    standardized = WorkerSafeStandardizedDataset(data, list(range(32)), 0.5, 0.3)
    augmented = WorkerSafeAugmentedDataset(standardized, {"spec_augment_params": {}, "gaussian_noise_params": {}})
    return [standardized, WorkerSafeSequenceDataset([data[i] for i in range(32)]), augmented]


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted({"fork", "forkserver"} & set(multiprocessing.get_all_start_methods())))
def test_every_dataset_loads_with_eight_workers(method: str) -> None:
    for dataset in spawned_datasets() if method == "fork" else spawned_datasets()[2:]:

        def epoch(dataset: Any = dataset, **options: Any) -> list[Any]:
            torch.manual_seed(1)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "This DataLoader will create")
                with BatchedDataLoader(dataset, batch_size=4, worker_init_fn=worker_init_fn, **options) as loader:
                    return list(loader)

        assert same(epoch(num_workers=8, multiprocessing_context=method), epoch())


def test_shutting_down_ends_kept_workers_and_an_epoch_under_way_goes_on() -> None:
    seed_all(0)
    loader = BatchedDataLoader(PairDataset(8), batch_size=2, num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    first = next(iterator)
    assert children() == 2
    loader.shutdown()
    assert children() == 0
    assert numbers([first, *iterator]) == list(range(8))
    del iterator
    assert children() == 0
    assert numbers(list(loader)) == list(range(8))
    loader.shutdown()
    assert children() == 0


class _Closes:
    """How often each connection of a queue was closed.

    A descriptor that is closed twice may be another file the second time. Threads that send a queue's objects close no
    connection before the garbage collector is through: so all that both would close is closed twice.
    """

    def __init__(self, monkeypatch: Any) -> None:
        self._most = 0
        self._collected = threading.Event()
        close = connection.Connection._close  # type: ignore[attr-defined]

        def count(connected: Any, *arguments: Any) -> None:
            if threading.current_thread().name == "QueueFeederThread":
                assert self._collected.wait(60)
            connected.closes = getattr(connected, "closes", 0) + 1
            self._most = max(self._most, connected.closes)
            close(connected, *arguments)

        monkeypatch.setattr(connection.Connection, "_close", count)

    def collect(self) -> int:
        """Collect garbage; the closes of the connection that was closed most often."""
        gc.collect()
        self._collected.set()
        for thread in threading.enumerate():
            if thread.name == "QueueFeederThread":
                thread.join(60)
        return self._most


@pytest.fixture
def closes(monkeypatch: Any) -> _Closes:
    return _Closes(monkeypatch)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """The garbage collector runs only where a test calls it."""
    gc.disable()
    yield
    gc.enable()


def leave_to_the_collector(**options: Any) -> None:
    """Have the garbage collector find an iterator, as it finds one whose error's traceback refers to the iterator.

    Only one of its workers has a batch to read: no request was put into the queue of the other one.
    """
    loader = BatchedDataLoader(PairDataset(2), batch_size=2, num_workers=2, **options)
    cycle: list[Any] = [iter(loader)]
    cycle.append(cycle)


@posix
def test_an_iterator_in_a_cycle_closes_its_connections_once(closes: _Closes, no_collection: None) -> None:
    leave_to_the_collector()
    assert children() == 2
    assert closes.collect() == 1
    assert children() == 0


def collect_in_a_fork(closes: _Closes) -> None:
    """Exit with 0 if nothing is started here for workers of another process, and no connection is closed twice."""
    most = closes.collect()
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    os._exit(0 if most <= 1 and not others else 1)


@posix
def test_a_worker_closes_the_connections_of_an_older_iterator_once(closes: _Closes, no_collection: None) -> None:
    """Closed twice, a descriptor was that of a tensor on its way: an EOFError reached the training loop."""
    leave_to_the_collector(multiprocessing_context="fork")
    process = multiprocessing.get_context("fork").Process(target=collect_in_a_fork, args=(closes,))
    process.start()
    process.join()
    assert process.exitcode == 0


@posix
def test_a_forked_copy_leaves_an_epoch_to_its_owner() -> None:
    loader = BatchedDataLoader(PairDataset(12), batch_size=2, num_workers=2, multiprocessing_context="fork")
    batches = iter(loader)
    seen = [next(batches)]
    pid = os.fork()
    if not pid:
        del batches
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert numbers([*seen, *batches]) == list(range(12))
    assert not loader.lost_workers


@posix
def test_a_forked_copy_goes_on_with_workers_of_its_own_after_a_shutdown() -> None:
    loader = BatchedDataLoader(
        PairDataset(6), batch_size=2, num_workers=1, persistent_workers=True, multiprocessing_context="fork"
    )
    assert numbers(list(loader)) == list(range(6))
    pid = os.fork()
    if not pid:
        try:
            loader.shutdown()
            os._exit(0 if numbers(list(loader)) == list(range(6)) else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert numbers(list(loader)) == list(range(6)), "its workers are still there"
    loader.shutdown()


def test_an_epoch_with_kept_workers_has_a_length_and_ends_for_good() -> None:
    with BatchedDataLoader(PairDataset(5), batch_size=2, num_workers=1, keep_workers=True) as loader:
        batches = iter(loader)
        assert len(batches) == len(list(batches)) == 3  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(batches)


def test_a_loader_can_be_pickled_whatever_its_workers_do() -> None:
    with BatchedDataLoader(PairDataset(6), batch_size=2, num_workers=1, persistent_workers=True) as loader:
        assert numbers(list(loader)) == list(range(6))
        with pickle.loads(pickle.dumps(loader)) as twin:
            assert numbers(list(twin)) == list(range(6))


SCRIPT = """
import torch
from torch.utils.data import TensorDataset
from chirpid_patch import OptimalDataLoaderFactory as Factory
loader = Factory.create_training_loader(TensorDataset(torch.arange(6.0)), 2, num_workers=4)
print(sum(len(x) for x, in loader))
"""


@pytest.mark.slow
def test_a_script_without_main_guard_never_starts_processes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    prologue = "import torch.multiprocessing as mp; mp.set_start_method('spawn')\n"
    script.write_text(prologue + SCRIPT, encoding="utf-8")
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["6"]), done.stderr


def test_generators_are_drawn_once_when_workers_cannot_start(monkeypatch: Any) -> None:
    generator, twin = torch.Generator().manual_seed(4), torch.Generator().manual_seed(4)
    list(DataLoader(tensor_data(5), 2, shuffle=True, num_workers=1, generator=twin))
    seed_all(1)
    before = global_states()
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", no_process)
    with pytest.warns(RuntimeWarning):
        list(BatchedDataLoader(tensor_data(5), batch_size=2, shuffle=True, num_workers=1, generator=generator))
    assert torch.equal(generator.get_state(), twin.get_state())
    assert global_states() == before
