"""What belongs to the whole process is as it was after loaders are made, read and dropped (docs/loader.md)."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from originals import PairDataset, tensor_data
from torch.utils.data import Sampler

from chirpid_patch import OptimalDataLoaderFactory as Factory
from chirpid_patch import WorkerSafeStandardizedDataset


def load(**options: Any) -> None:
    """Two epochs each of a loader in memory, of one with threads, and of one with a worker."""
    rows = tensor_data(40)
    standardized = WorkerSafeStandardizedDataset(rows, list(range(40)), 0.5, 2.0)
    for dataset, arguments in (
        (rows, {}),
        (standardized, {"num_workers": 2}),
        (rows, {"prefetch_threads": 2}),
        (PairDataset(6), {"num_workers": 1}),
    ):
        loader = Factory.create_loader(dataset, batch_size=4, shuffle=True, **arguments, **options)
        for _ in range(2):
            list(loader)


def in_a_thread(ask: Callable[[], Any]) -> Any:
    """What ``ask`` gives in a thread that is new."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(ask()))
    thread.start()
    thread.join()
    return found[0]


def logging_state() -> Any:
    loggers = [logging.getLogger(), logging.getLogger("chirpid_patch")]
    return [
        (one.level, list(one.handlers), one.propagate, one.disabled) for one in loggers
    ], logging.root.manager.disable


STATES: dict[str, Callable[[], Any]] = {
    "warning filters": lambda: list(warnings.filters),
    "function that shows warnings": lambda: warnings.showwarning,
    "logging": logging_state,
    "threads of PyTorch": torch.get_num_threads,
    "threads of PyTorch, in new threads": lambda: in_a_thread(torch.get_num_threads),
    "threads between operations": torch.get_num_interop_threads,
    "environment": lambda: dict(os.environ),
    "signal handlers": lambda: {number: signal.getsignal(number) for number in signal.valid_signals() - _OF_WORKERS},
    "default dtype and device": lambda: (torch.get_default_dtype(), torch.get_default_device()),
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "gradient mode": torch.is_grad_enabled,
    "working directory": os.getcwd,
    "recursion limit and switch interval": lambda: (sys.getrecursionlimit(), sys.getswitchinterval()),
    "sharing strategy": torch.multiprocessing.get_sharing_strategy,
    "import path": lambda: list(sys.path),
}
#: PyTorch's own loader handles the death of its workers, and so does ours, by PyTorch's code.
_OF_WORKERS = {getattr(signal, "SIGCHLD", None)}


@pytest.mark.parametrize("state", STATES)
def test_the_process_is_as_it_was(state: str) -> None:
    before = STATES[state]()
    load()
    assert STATES[state]() == before


def noisy() -> None:
    warnings.warn("a noisy step", UserWarning, stacklevel=1)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_warning_that_is_shown_once_is_shown_once(workers: int) -> None:
    """Entering ``catch_warnings`` makes Python forget which warnings it has shown."""
    program = f"""
        import warnings
        from chirpid_patch import OptimalDataLoaderFactory
        from torch.utils.data import TensorDataset
        import torch

        rows = TensorDataset(torch.ones(6))
        loader = OptimalDataLoaderFactory.create_loader(rows, batch_size=2, num_workers={workers})
        for epoch in range(3):
            for batch in loader:
                warnings.warn("a noisy step")
            OptimalDataLoaderFactory.create_loader(rows, num_workers={workers})
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=100)
    assert done.stderr.count("UserWarning: a noisy step") == 1, done.stderr


class Silencing(Sampler[int]):
    """Adds a filter when it is first asked, as a library does that is imported then."""

    def __iter__(self) -> Any:
        warnings.filterwarnings("ignore", message="a noisy step")
        return iter(range(4))

    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("workers", [0, 1])
def test_a_filter_that_is_set_while_an_epoch_begins_stays(workers: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = Factory.create_loader(PairDataset(4), batch_size=2, sampler=Silencing(), num_workers=workers)
        for _ in loader:
            noisy()


def blocks_of_their_own(lines: str) -> int:
    """How many of four blocks of 24 MiB glibc maps by themselves after ``lines`` ran: it does while it keeps none."""
    program = f"""
        import ctypes, torch
        {textwrap.dedent(lines).strip().replace(chr(10), chr(10) + " " * 8)}
        class Info(ctypes.Structure):
            _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]
        mallinfo = ctypes.CDLL(None).mallinfo2
        mallinfo.restype = Info
        before = mallinfo().hblks
        blocks = [torch.UntypedStorage(24 << 20) for _ in range(4)]
        print(mallinfo().hblks - before)
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def has_mallinfo() -> bool:
    try:
        return hasattr(ctypes.CDLL(None), "mallinfo2")
    except TypeError:  # there is no one library of C
        return False


@pytest.mark.slow
@pytest.mark.skipif(not has_mallinfo(), reason="asks glibc 2.33 or newer")
def test_freed_memory_is_kept_only_where_that_is_asked_for() -> None:
    loading = """
        from chirpid_patch import OptimalDataLoaderFactory, keep_freed_memory
        from torch.utils.data import TensorDataset
        for batch in OptimalDataLoaderFactory.create_loader(TensorDataset(torch.zeros(64, 1 << 17)), batch_size=16):
            pass
        del batch
        """
    assert blocks_of_their_own(loading) == 4
    assert blocks_of_their_own(loading + "keep_freed_memory()\n") == 0
