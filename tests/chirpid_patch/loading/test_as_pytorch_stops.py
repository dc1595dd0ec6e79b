"""Where PyTorch's program stops, ours stops, and where it goes on, ours goes on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from chirpid_patch import BatchedDataLoader
from chirpid_patch.loading import worker_iterator

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")

MAKERS = {
    "pytorch": "from torch.utils.data import DataLoader as make",
    "loader": "from chirpid_patch import BatchedDataLoader as make",
    "factory": "from chirpid_patch import OptimalDataLoaderFactory; make = OptimalDataLoaderFactory.create_loader",
}


def run_script(folder: Path, maker: str, method: str, program: str) -> tuple[int, list[str]]:
    """Exit code and the lines of the file ``log`` of a script whose loaders ``maker`` makes."""
    setup = f"import multiprocessing\nmultiprocessing.set_start_method({method!r}, force=True)\n{MAKERS[maker]}\n"
    (folder / "script.py").write_text(setup + textwrap.dedent(program), encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=120)
    log = folder / "log"
    return done.returncode, log.read_text(encoding="utf-8").splitlines() if log.exists() else []


UNGUARDED = {
    "own samples": """
        import torch
        from torch.utils.data import Dataset

        class Ones(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, i):
                return torch.ones(2) * i

        with open("log", "a") as log:
            for batch in make(Ones(), batch_size=2, num_workers=1):
                print(batch.sum().item(), file=log)
        """,
    "in memory, then own samples": """
        import torch
        from torch.utils.data import Dataset, TensorDataset

        class Ones(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, i):
                return torch.ones(2) * i

        for dataset in TensorDataset(torch.ones(4)), Ones():
            for batch in make(dataset, batch_size=2, num_workers=1):
                with open("log", "a") as log:
                    print("batch", file=log)
        """,
}


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted({"spawn", "forkserver"} & set(multiprocessing.get_all_start_methods())))
@pytest.mark.parametrize(
    "maker", [*(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("pytorch", "loader")), "factory"]
)
def test_a_script_without_a_guard_trains_nothing(maker: str, method: str, tmp_path: Path) -> None:
    assert run_script(tmp_path, maker, method, UNGUARDED["own samples"]) == (1, [])


@pytest.mark.slow
def test_no_process_that_imports_its_main_module_loads_batches(tmp_path: Path) -> None:
    """The script itself needs no workers for its first loader, but its copies stop there, as PyTorch's do."""
    code, log = run_script(tmp_path, "factory", "spawn", UNGUARDED["in memory, then own samples"])
    assert (code, log) == (1, ["batch", "batch"])


class Slow(Dataset[int]):
    """Its third sample takes longer than anybody waits."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 2:
            time.sleep(60)
        return index


class LimitError(RuntimeError):
    """A time limit of the user's, of the type that PyTorch raises for dead workers."""


@pytest.fixture
def alarm() -> Iterator[Any]:
    """Has an error raised by a signal handler soon."""

    def raise_soon(error: Exception) -> None:
        def handler(*_: Any) -> None:
            raise error

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)

    before = signal.getsignal(signal.SIGALRM)
    yield raise_soon
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@posix
@pytest.mark.parametrize("kind", [TimeoutError, ConnectionError, FileNotFoundError, EOFError, LimitError])
def test_an_error_of_a_signal_handler_reaches_the_loop_at_once(kind: Any, alarm: Any, monkeypatch: Any) -> None:
    def wait(*_: Any) -> None:
        raise AssertionError("nobody died: there is nothing to wait for")

    monkeypatch.setattr(worker_iterator, "_wait_for_a_death", wait)
    batches = iter(BatchedDataLoader(Slow(), batch_size=2, num_workers=1))
    next(batches)
    alarm(kind("time is up"))
    with pytest.raises(kind, match="time is up"):
        next(batches)
    for worker in multiprocessing.active_children():
        worker.kill()


@posix
@pytest.mark.parametrize("threads", [0, 2])
def test_a_forked_copy_goes_on_with_its_epoch(threads: int) -> None:
    """The threads that load ahead, and those that PyTorch computes on, are only in the original."""
    program = f"""
        import os, numpy, torch
        from torch.utils.data import TensorDataset
        from chirpid_patch import BatchedDataLoader

        torch.set_num_threads(2)
        rows = torch.arange(160 * 20_000.).view(160, 20_000)
        rows * 2  # on all threads
        loader = BatchedDataLoader(TensorDataset(rows), batch_size=16, prefetch_threads={threads})
        batches = iter(loader)
        seen = [next(batches) for _ in range(3)]
        pid = os.fork()
        seen += batches
        rest = numpy.concatenate([x.numpy() for x, in seen])  # PyTorch would use its threads
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
        os._exit(0 if (rest == rows.numpy()).all() else 1)
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=100, capture_output=True)
    assert done.returncode == 0, done.stderr


def accelerator(monkeypatch: Any) -> None:
    """Pretend that there is a device that pinned memory speeds copies to; PyTorch's refusals to pin stay its own."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda _: None)
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7):  # whose loader asks for CUDA
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)


def on_meta(samples: list[Any]) -> Any:
    return torch.stack([x for (x,) in samples]).to("meta")


def first_tensor(samples: list[Any]) -> Any:
    return samples[0][0]


ROWS = torch.arange(8.0).view(4, 2)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_that_cannot_be_pinned_is_an_error_only_where_pinning_was_asked_for(
    workers: int, monkeypatch: Any
) -> None:
    from chirpid_patch import OptimalDataLoaderFactory as Factory

    accelerator(monkeypatch)
    for make in (DataLoader, Factory.create_loader, Factory.create_training_loader):
        for dataset, collate in ((TensorDataset(ROWS), on_meta), (TensorDataset(ROWS.to("meta")), None)):
            options: Any = {"batch_size": 2, "collate_fn": collate, "num_workers": workers}
            if workers and collate is None:
                continue  # tensors without memory cannot be sent
            loader = make(dataset, **options)
            assert len(list(loader)) == 2 and loader.pin_memory is False
            asked = make(dataset, pin_memory=True, **options)
            assert asked.pin_memory is True
            with pytest.raises(RuntimeError, match="pin"):
                list(asked)


def test_a_collate_function_hands_out_the_datasets_own_tensor(monkeypatch: Any) -> None:
    from chirpid_patch import OptimalDataLoaderFactory as Factory

    accelerator(monkeypatch)
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    dataset = [(row,) for row in ROWS]
    loader = Factory.create_training_loader(dataset, 2, shuffle=False, collate_fn=first_tensor)
    assert [batch.data_ptr() for batch in loader] == [ROWS[0].data_ptr(), ROWS[2].data_ptr()]
    (single,) = next(iter(Factory.create_loader(dataset, batch_size=None)))
    assert single.data_ptr() == ROWS[0].data_ptr()


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_that_the_loader_allocates_are_pinned_unasked(workers: int, monkeypatch: Any) -> None:
    from chirpid_patch import OptimalDataLoaderFactory as Factory

    pinned: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_cpu:  # else of a loader of the test before, whose thread has not ended yet
            pinned.append(tensor)
        return tensor

    accelerator(monkeypatch)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    for dataset in (TensorDataset(ROWS), [(row, "label") for row in ROWS]):
        loader = Factory.create_loader(dataset, batch_size=4, num_workers=workers)
        batches = list(loader)
        assert len(batches) == 1 and pinned.pop() is batches[0][0] and not pinned
        list(Factory.create_loader(dataset, batch_size=4, num_workers=workers, pin_memory=False))
        assert not pinned
