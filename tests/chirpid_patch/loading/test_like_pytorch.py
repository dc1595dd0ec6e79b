"""What a program can see of a loader: each test holds for PyTorch's class and for ours in its place.

They follow what PyTorch's own tests of its DataLoader look at.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from originals import PairDataset, tensor_data
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    SequentialSampler,
    TensorDataset,
    get_worker_info,
)

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory, WorkerSafeAugmentedDataset

LOADERS: dict[str, Callable[..., Any]] = {
    "PyTorch's": DataLoader,
    "ours": BatchedDataLoader,
    "the factory's": OptimalDataLoaderFactory.create_loader,
}
posix = pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="needs fork and signals")


#: PyTorch's own loader shows that each test is right, which only another version of PyTorch changes.
REFERENCE = pytest.param("PyTorch's", marks=[pytest.mark.slow, pytest.mark.exhaustive])


@pytest.fixture(params=[REFERENCE, pytest.param("ours", marks=pytest.mark.slow), "the factory's"])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """What makes the loader."""
    return LOADERS[request.param]


@pytest.fixture(autouse=True)
def no_workers_of_others() -> None:
    """Workers of loaders that earlier tests left to the garbage collector, with an error's traceback, end first."""
    gc.collect()


def children() -> int:
    return len(multiprocessing.active_children())


# --- arguments


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"num_workers": 1, "prefetch_factor": -1},
        {"persistent_workers": True},
        {"multiprocessing_context": "fork"},
        {"num_workers": 1, "multiprocessing_context": "no such method"},
        {"num_workers": 1, "multiprocessing_context": 7},
        {"sampler": [0, 1], "shuffle": True},
        {"batch_sampler": [[0, 1]], "batch_size": 2},
        {"batch_sampler": [[0, 1]], "shuffle": True},
        {"batch_sampler": [[0, 1]], "sampler": [0]},
        {"batch_sampler": [[0, 1]], "drop_last": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"batch_size": True},
        {"no_such_argument": 1},
        {"dataset": "stream", "shuffle": True},
        {"dataset": "stream", "sampler": [0]},
        {"dataset": "stream", "batch_sampler": [[0]]},
    ],
    ids=str,
)
def test_arguments_are_refused_as_pytorch_refuses_them(arguments: dict[str, Any], make: Callable[..., Any]) -> None:
    options = dict(arguments)
    for dataset in (tensor_data(6), PairDataset(6)) if options.pop("dataset", None) is None else (Stream(),):
        with pytest.raises((ValueError, TypeError)) as expected:
            DataLoader(dataset, **options)
        with pytest.raises(expected.type):
            make(dataset, **options)


def test_the_class_can_be_given_a_type() -> None:
    loader: BatchedDataLoader[int] = BatchedDataLoader[int](PairDataset(3), batch_size=2)
    assert len(list(loader)) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_what_is_fixed_stays_fixed(name: str, make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="should not be set"):
        setattr(make(PairDataset(3)), name, None)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))

    def __len__(self) -> int:
        return 5


# --- processes


class Tells(Dataset[Any]):
    """Where a sample was read, and with which seeds."""

    def __init__(self, n: int = 8) -> None:
        self.n = n
        self.reads = 0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> dict[str, Any]:
        info = get_worker_info()
        assert info is not None
        self.reads += 1
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        return {
            "worker": info.id, "workers": info.num_workers, "seed": info.seed, "torch": torch.initial_seed(),
            "reads": self.reads, "pid": os.getpid(), "threads": torch.get_num_threads(), "cpus": cpus,
            "python": random.random(), "numpy": float(np.random.rand()), "drawn": float(torch.rand(())),
        }  # fmt: skip


def epoch(loader: Any) -> list[dict[str, Any]]:
    return [sample for batch in loader for sample in batch]


def test_workers_have_the_seeds_that_pytorch_gives_them(make: Callable[..., Any]) -> None:
    def seen() -> list[dict[str, Any]]:
        generator = torch.Generator().manual_seed(3)
        found = epoch(make(Tells(), batch_size=2, num_workers=2, collate_fn=list, generator=generator))
        return [{name: value for name, value in one.items() if name != "pid"} for one in found]

    found = seen()
    assert [one["worker"] for one in found] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert {one["seed"] - one["worker"] for one in found} == {found[0]["seed"]}
    assert all(one["torch"] == one["seed"] and one["threads"] == 1 and one["workers"] == 2 for one in found)
    assert len({one["drawn"] for one in found}) == len({one["numpy"] for one in found}) == 8
    generator = torch.Generator().manual_seed(3)
    pytorchs = epoch(DataLoader(Tells(), 2, num_workers=2, collate_fn=list, generator=generator))
    assert found == seen() == [{name: one[name] for name in found[0]} for one in pytorchs]


@pytest.mark.parametrize("persistent", [False, True])
def test_kept_workers_keep_their_datasets(persistent: bool, make: Callable[..., Any]) -> None:
    loader = make(Tells(), batch_size=2, num_workers=2, collate_fn=list, persistent_workers=persistent)
    epochs = [epoch(loader) for _ in range(3)]
    assert [one[-1]["reads"] for one in epochs] == ([4, 8, 12] if persistent else [4, 4, 4])
    assert len({one["pid"] for each in epochs for one in each}) == (2 if persistent else 6)
    assert len({one["seed"] for each in epochs for one in each}) == (2 if persistent else 6)


@posix
def test_workers_end_with_their_iterator(make: Callable[..., Any]) -> None:
    loader = make(Tells(40), batch_size=2, num_workers=2, collate_fn=list)
    iterator = iter(loader)
    next(iterator)
    workers = iterator._workers
    assert [worker.is_alive() for worker in workers] == [True, True] and children() == 2
    del iterator
    assert not any(worker.is_alive() for worker in workers) and children() == 0
    for _ in loader:
        break
    assert children() == 0


@posix
def test_kept_workers_end_with_their_loader(make: Callable[..., Any]) -> None:
    loader = make(Tells(40), batch_size=2, num_workers=2, collate_fn=list, persistent_workers=True)
    for _ in loader:
        break
    assert children() == 2
    del loader
    assert children() == 0


def one_cpu(worker_id: int) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
def test_a_worker_can_be_bound_to_a_cpu(make: Callable[..., Any]) -> None:
    found = epoch(make(Tells(4), batch_size=2, num_workers=1, collate_fn=list, worker_init_fn=one_cpu))
    assert {one["cpus"] for one in found} == {1}


class Counts(Sampler[int]):
    """How often it was asked for what."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.asked = {"len": 0, "iter": 0, "next": 0}

    def __len__(self) -> int:
        self.asked["len"] += 1
        return self.n

    def __iter__(self) -> Iterator[int]:
        self.asked["iter"] += 1
        for index in range(self.n):
            self.asked["next"] += 1
            yield index


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("prefetch", [None, 3])
def test_samplers_are_asked_as_often_and_as_early(workers: int, prefetch: int | None, make: Callable[..., Any]) -> None:
    options = {"num_workers": workers, "prefetch_factor": prefetch} if workers else {}
    for dataset in (PairDataset(20), tensor_data(20)):

        def asked(make: Callable[..., Any], dataset: Any = dataset) -> list[dict[str, int]]:
            sampler = Counts(20)
            iterator = iter(make(dataset, batch_size=2, sampler=sampler, **options))
            found = [dict(sampler.asked)]
            next(iterator)
            found.append(dict(sampler.asked))
            assert len(list(iterator)) == 9
            return [*found, sampler.asked]

        assert asked(make) == asked(DataLoader)


class Sleeps(PairDataset):
    def __getitem__(self, index: Any) -> Any:
        time.sleep(3 if index == 0 else 0)
        return super().__getitem__(index)


@pytest.mark.slow
def test_a_timeout_is_raised_and_the_batch_can_still_be_had(make: Callable[..., Any]) -> None:
    iterator = iter(make(Sleeps(4), batch_size=2, num_workers=1, timeout=1))
    with pytest.raises(RuntimeError, match="timed out after 1"):
        next(iterator)
    seen = []
    while len(seen) < 2:
        try:
            seen.append(next(iterator)[1].tolist())
        except RuntimeError as error:
            assert "timed out" in str(error)
    assert seen == [[0, 1], [2, 3]]


class Fails(PairDataset):
    def __getitem__(self, index: Any) -> Any:
        raise ZeroDivisionError("in the user's code")


@pytest.mark.slow
def test_the_traceback_of_the_worker_is_told(make: Callable[..., Any]) -> None:
    with pytest.raises(ZeroDivisionError, match="Caught ZeroDivisionError in DataLoader worker process 0") as caught:
        next(iter(make(Fails(2), num_workers=1)))
    assert "Original Traceback" in str(caught.value) and "in the user's code" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_a_class_of_the_users_pin_themselves(
    workers: int, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stand-in for a device: what is tested is who is asked to pin what.
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda _: None)
    loader = make(PairDataset(4), batch_size=2, collate_fn=Pins, pin_memory=True, num_workers=workers)
    assert [batch.is_pinned for batch in loader] == [True, True]


class Pins:
    def __init__(self, samples: Any) -> None:
        self.numbers = [number for _, number in samples]
        self.is_pinned = False

    def pin_memory(self, *_: Any) -> Pins:
        self.is_pinned = True
        return self


def test_an_iterable_dataset_that_lied_about_its_length_is_warned_of(make: Callable[..., Any]) -> None:
    class Liar(Stream):
        def __len__(self) -> int:
            return 2

    loader = make(Liar())
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="was reported to be 2"):
        assert len(list(loader)) == 5


# --- whole programs

HEAD = """
import multiprocessing, os, queue, signal, sys, torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory
make = {"PyTorch's": DataLoader, "ours": BatchedDataLoader, "the factory's": OptimalDataLoaderFactory.create_loader}[
    sys.argv[1]
]

class Numbers(Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return torch.tensor(i)
"""
PROGRAMS = {
    "ends in the middle": """
if __name__ == "__main__":
    for batch in make(Numbers(100), batch_size=2, num_workers=2, persistent_workers=True):
        break
    print("left")
""",
    "a crash": """
class Crashes(Numbers):
    def __getitem__(self, i): os.kill(os.getpid(), signal.SIGSEGV)
if __name__ == "__main__":
    try:
        next(iter(make(Crashes(4), num_workers=1)))
    except RuntimeError as error:
        assert str(error).startswith("DataLoader worker (pid"), error
        # A fork server's workers are no children of this process: PyTorch sees a death where it waits in vain.
        causes = (type(None), RuntimeError, ConnectionResetError, EOFError, queue.Empty)
        assert type(error.__cause__) in causes, error.__cause__
        print("told")
""",
    "too many files": """
import resource
class Rows(Dataset):
    def __len__(self): return 100_000
    def __getitem__(self, i): return torch.rand(10)
if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    kept = []
    try:
        for batch in make(Rows(), num_workers=1, pin_memory=False):
            kept.append(batch)
    except RuntimeError as error:
        assert "ulimit -n" in str(error), error
        print("told")
    except OSError as error:
        print("told")
""",
    "sets the start method later": """
if __name__ == "__main__":
    loader = make(TensorDataset(torch.zeros(4)), batch_size=2)
    list(loader)
    make(Numbers(3), num_workers=1)
    assert multiprocessing.get_start_method(allow_none=True) is None
    multiprocessing.set_start_method("forkserver")
    print("free")
""",
    "handlers": """
import logging
if __name__ == "__main__":
    names = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGCHLD", "SIGSEGV")]
    list(DataLoader(Numbers(4), num_workers=1))
    before = list(map(signal.getsignal, names))
    list(make(Numbers(4), num_workers=1))
    list(make(Numbers(4)))
    assert list(map(signal.getsignal, names)) == before
    assert not logging.root.handlers and not logging.getLogger("chirpid_patch").handlers
    print("as they were")
""",
}


@pytest.mark.slow
@posix
@pytest.mark.parametrize("kind", [REFERENCE, pytest.param("ours", marks=pytest.mark.exhaustive), "the factory's"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_programs_end_as_with_pytorch(name: str, kind: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(HEAD + PROGRAMS[name], encoding="utf-8")
    done = subprocess.run([sys.executable, script, kind], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = {"ends in the middle": "left", "sets the start method later": "free", "handlers": "as they were"}
    assert done.stdout.split("\n")[0] == said.get(name, "told")


# --- memory


class Many(Dataset[Any]):
    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        return 0


def foreign(n: int) -> Any:
    dataset = Many(n)
    return BatchedDataLoader(dataset, batch_size=500, sampler=SequentialSampler(dataset), collate_fn=len)


def keyed(n: int) -> Any:
    data = TensorDataset(torch.zeros(n, 1, 1), torch.zeros(n))
    return BatchedDataLoader(WorkerSafeAugmentedDataset(data, {"p": 0.0}), batch_size=500, prefetch_threads=0)


@pytest.mark.slow
@pytest.mark.parametrize("make_loader", [foreign, keyed])
def test_memory_does_not_grow_with_the_samples_of_an_epoch(make_loader: Callable[[int], Any]) -> None:
    def peak(n: int) -> int:
        loader = make_loader(n)
        tracemalloc.start()
        try:
            assert sum(1 for _ in loader) == n // 500
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10_000)
    assert peak(200_000) < peak(10_000) + 100_000  # a count for each sample would take over 10 MB
