"""Long trainings: memory that stays flat, and nothing left behind however a loop ends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from originals import PairDataset
from torch.utils.data import RandomSampler, Subset, TensorDataset

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory, WorkerSafeStandardizedDataset

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, forks and signals")

MIB = 2**20
LONG = 200_000
FORK: dict[str, Any] = {"multiprocessing_context": "fork"}


# --- memory -----------------------------------------------------------------------------------------------------


def long_lists() -> list[Any]:
    """Datasets with long lists of indices."""
    data = TensorDataset(torch.rand(LONG, 4), torch.arange(LONG))
    return [
        WorkerSafeStandardizedDataset(data, list(range(LONG)), 0.5, 0.3),
        Subset(WorkerSafeStandardizedDataset(data, range(LONG), 0.5, 0.3), list(range(LONG))),
    ]


def private(pid: int) -> int:
    """Memory that a process shares with no other, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def held(pids: list[int]) -> int:
    """Memory of these processes in bytes, what they share with each other counted once.

    Pages of files are left out: how much of a library counts for a process changes when others that use it, too, come
    and go.
    """
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                total += int(line.split()[1]) * 1024
    assert total, "the kernel tells"
    return total


@pytest.fixture
def untracked_heap() -> Iterator[None]:
    """Keep the collector of forked workers from copying the pages of objects from earlier tests."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.usefixtures("untracked_heap")
@pytest.mark.parametrize("number", [0, 1], ids=["standardized", "subset"])
def test_memory_is_flat_over_200_epochs(number: int) -> None:
    dataset = long_lists()[number]
    # A few samples an epoch, from all over the list: what each look at an index costs adds up to the end.
    sampler = RandomSampler(dataset, replacement=True, num_samples=16)
    options: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "persistent_workers": True, **FORK}
    before = set(multiprocessing.active_children())
    with BatchedDataLoader(dataset, sampler=sampler, **options) as loader:
        readings = {}
        for epoch in range(1, 201):
            assert sum(len(y) for _, y in loader) == 16
            if epoch in (20, 200):
                gc.collect()
                workers = sorted(child.pid or 0 for child in set(multiprocessing.active_children()) - before)
                readings[epoch] = held([os.getpid(), *workers]), {pid: private(pid) for pid in workers}
    (early, early_each), (late, late_each) = readings[20], readings[200]
    assert len(early_each) == 2 and early_each.keys() == late_each.keys()
    for pid, used in early_each.items():
        # A list of so many indices is 7 MiB; what the process was forked from becomes its own little by little.
        assert late_each[pid] <= used + 3 * MIB
    assert late <= 1.02 * early + 6 * MIB


def test_memory_is_flat_with_prefetch_threads() -> None:
    dataset = WorkerSafeStandardizedDataset(TensorDataset(torch.rand(256, 4096), torch.arange(256)), range(256), 0, 1)
    with BatchedDataLoader(dataset, batch_size=64, shuffle=True, prefetch_threads=2) as loader:
        readings = []
        for epoch in range(1, 201):
            assert sum(len(y) for _, y in loader) == 256
            if epoch in (20, 200):
                gc.collect()
                readings.append(held([os.getpid()]))
    assert readings[1] <= 1.02 * readings[0] + 2 * MIB


# --- what is left behind ----------------------------------------------------------------------------------------


def shared_files(pids: set[int]) -> set[str]:
    """Files in shared memory that PyTorch made in these processes."""
    return {path.name for path in Path("/dev/shm").glob("torch_*") if int(path.name.split("_")[1]) in pids}


def descriptors() -> list[str]:
    found = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(path.readlink()).split(":")[0])
        except OSError:  # that of the listing itself
            continue
    return sorted(found)


class Traces:
    """What there is now of processes, threads, open files and shared memory."""

    def __init__(self) -> None:
        gc.collect()
        self.pids = {os.getpid(), *(child.pid or 0 for child in multiprocessing.active_children())}
        self.threads = set(threading.enumerate())
        self.descriptors = descriptors()
        self.shared = shared_files(self.pids)

    def new(self) -> list[Any]:
        """What is there now and was not."""
        children = {child.pid for child in multiprocessing.active_children()} - self.pids
        threads = [thread.name for thread in threading.enumerate() if thread not in self.threads]
        more = len(descriptors()) - len(self.descriptors)
        return [*children, *threads, *(shared_files(self.pids) - self.shared), *([more] if more > 0 else [])]

    def are_all(self) -> bool:
        """Whether that is all again, soon; threads finish the batches being loaded."""
        until = time.monotonic() + 20
        while self.new() and time.monotonic() < until:
            time.sleep(0.01)
        return not self.new()


class Batches(PairDataset):
    """Samples large enough to come through shared memory."""

    def __init__(self) -> None:
        super().__init__(24, (64, 64))


WAYS: dict[str, dict[str, Any]] = {
    "workers": {"num_workers": 2, **FORK},
    "persistent workers": {"num_workers": 2, "persistent_workers": True, **FORK},
    "kept workers": {"num_workers": 2, "keep_workers": True, **FORK},
    "threads": {"prefetch_threads": 3, "thread_safe": True},
}


def train(way: str, end: str) -> list[Any]:
    """A loop that ends early in its second epoch; what it kept of the batches."""
    loader = BatchedDataLoader(Batches(), batch_size=4, shuffle=True, **WAYS[way])
    kept = []
    for epoch in range(2):
        for number, (x, _) in enumerate(loader):
            kept.append(float(x.sum()))
            if epoch and number == 1:
                if end == "break":
                    break
                if end == "error":
                    raise ArithmeticError("loss is NaN")
                if end == "shutdown":
                    loader.shutdown()
    return kept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "end"),
    [(way, end) for way in WAYS for end in ("complete", "break", "error", "shutdown")],
)
def test_nothing_is_left_of_a_loader_that_was_dropped(way: str, end: str) -> None:
    train(way, "complete")  # whatever Python and PyTorch keep once and for all
    before = Traces()
    gc.disable()  # nothing may depend on the garbage collector
    try:
        if end == "error":
            with pytest.raises(ArithmeticError, match="loss is NaN"):
                train(way, end)
        else:
            assert len(train(way, end)) == (8 if end == "break" else 12)
        assert before.are_all(), before.new()
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_an_iterator_that_outlives_its_loader_ends_what_loads_with_itself(way: str) -> None:
    train(way, "complete")
    before = Traces()
    batches = iter(BatchedDataLoader(Batches(), batch_size=4, **WAYS[way]))
    assert [len(y) for _, y in batches] == 6 * [4]
    del batches
    assert before.are_all(), before.new()


@pytest.mark.slow
def test_many_loaders_one_after_the_other_leave_nothing() -> None:
    train("persistent workers", "complete")
    before = Traces()
    for _ in range(3):
        for way in WAYS:
            train(way, "break")
    assert before.are_all(), before.new()


Make = Callable[[], Any]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: BatchedDataLoader(Batches(), batch_size=4, num_workers=1, persistent_workers=True),
        lambda: BatchedDataLoader(Batches(), batch_size=4, num_workers=1, keep_workers=True),
        lambda: OptimalDataLoaderFactory.create_training_loader(
            Batches(), 4, num_workers=1, persistent_workers=True, benchmark=True
        ),
    ],
    ids=["persistent", "kept", "made by the factory"],
)
def test_kept_workers_of_a_finished_fold_do_not_live_on(make: Make) -> None:
    before = len(multiprocessing.active_children())
    gc.disable()
    try:
        for _ in range(3):
            training, validation = make(), make()
            for _ in range(2):
                assert sum(len(y) for _, y in training) == sum(len(y) for _, y in validation) == 24
            assert len(multiprocessing.active_children()) - before == 2  # those of this fold alone
            del training, validation
            assert len(multiprocessing.active_children()) == before
    finally:
        gc.enable()


# --- Ctrl-C -----------------------------------------------------------------------------------------------------

SCRIPT = """
import multiprocessing, sys, threading, time
import torch
from torch.utils.data import Dataset
from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory

class Waiting(Dataset):
    later = 0.01
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(0.01 if index < 24 else self.later)
        return torch.full((128, 128), float(index)), index

def ready():
    children = [child.pid for child in multiprocessing.active_children()]
    threads = [one for one in threading.enumerate() if one.name.startswith("chirpid-prefetch")]
    print("ready", len(threads), *children, flush=True)

way = sys.argv[1]
said = False
def step(batch):
    global said
    under_way = multiprocessing.active_children() if way == "measuring workers" else threading.active_count() > 1
    if under_way and not said:
        said = True
        ready()
        time.sleep(60)  # a long step, so that the signal comes before the end of the measuring

if way.startswith("measuring"):
    OptimalDataLoaderFactory.create_training_loader(
        Waiting(), 4, tune=True, tune_seconds=2, tune_step=step, thread_safe=way == "measuring threads",
        multiprocessing_context="fork", num_workers=2)
else:
    options = {"workers": {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
               "threads": {"prefetch_threads": 4, "thread_safe": True}}[way]
    if way == "workers":
        Waiting.later = 30  # so that the signal finds the loop waiting, not in a finaliser, which would swallow it
    loader = BatchedDataLoader(Waiting(), batch_size=8, **options)
    for number, batch in enumerate(loader):
        if number == 2:
            ready()
time.sleep(60)
"""

INTERRUPTED = ["workers", "threads", "measuring workers", "measuring threads"]


class Interrupted:
    """A script that gets what Ctrl-C in its terminal sends: SIGINT, to it and its workers."""

    def __init__(self, script: Path, way: str, profile: Path) -> None:
        places = os.pathsep.join(entry for entry in sys.path if entry)
        self.process = subprocess.Popen(
            [sys.executable, str(script), way],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": places, "CHIRPID_PROFILE": str(profile)},
        )

    def interrupt(self) -> tuple[int, set[int], float, str]:
        """Once it is ready: the threads and workers it had, the seconds it took to end, what it wrote last."""
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        assert words[:1] == ["ready"], self.process.communicate()[1]
        os.killpg(self.process.pid, signal.SIGINT)
        sent = time.monotonic()
        try:
            _, errors = self.process.communicate(timeout=45)
        finally:
            seconds = time.monotonic() - sent
            self.end_all()
        return int(words[1]), {int(word) for word in words[2:]}, seconds, errors

    def processes(self) -> list[int]:
        """Those of its session that still run."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                except OSError:
                    continue
                if int(session) == self.process.pid and state != "Z":
                    found.append(int(entry.name))
        return found

    def end_all(self) -> None:
        """Nothing may outlive the test, whatever it finds."""
        self.left = self.processes()
        until = time.monotonic() + 5
        while self.left and time.monotonic() < until:
            time.sleep(0.05)
            self.left = self.processes()
        for pid in self.left:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_ctrl_c_ends_everything_soon(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    running = {way: Interrupted(script, way, tmp_path / "profile.json") for way in INTERRUPTED}
    with ThreadPoolExecutor(len(running)) as at_once:
        results = dict(zip(running, at_once.map(Interrupted.interrupt, running.values()), strict=True))
    for way, (threads, workers, seconds, errors) in results.items():
        assert (threads > 0, len(workers)) == ("threads" in way, 2 if "workers" in way else 0), way
        assert running[way].process.returncode == -signal.SIGINT, errors
        assert errors.rstrip().endswith("KeyboardInterrupt"), errors
        assert seconds < 10, way
        assert running[way].left == [], way
        assert shared_files({running[way].process.pid}) == set(), way
        # A worker of PyTorch's ends without waiting for its thread that hands over the last batch: the file which that
        # has made and not yet removed stays.
        assert len(shared_files(workers)) <= len(workers), way
    assert not (tmp_path / "profile.json").exists()  # what was not measured to its end is not remembered
