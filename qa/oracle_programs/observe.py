"""Run one program with one loader, and record everything that can be observed from outside."""

from __future__ import annotations

import gc
import hashlib
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory

from . import parts
from .cases import Case
from .samples import held_by

#: Ways to create the loader: PyTorch's class, the class of this project, and the factory as in migrated code.
SIDES: dict[str, Callable[..., Any]] = {
    "torch": DataLoader,
    "ours": BatchedDataLoader,
    "factory": OptimalDataLoaderFactory.create_loader,
}
_MOST_STEPS = 150
_MOST_ERRORS = 12


def observe(case: Case, side: str, folder: Path) -> dict[str, Any]:
    """Run a program with one loader, and return all observed values by name.

    Args:
        case: the program.
        side: name of the loader in ``SIDES``.
        folder: empty folder, which becomes the current folder.
    """
    os.chdir(folder)
    os.environ[parts.LOG] = str(folder / "log")
    (folder / "this_is_lazy.py").write_text("VALUE = 7\n", encoding="utf-8")
    sys.path.insert(0, str(folder))
    warnings.simplefilter("ignore")
    torch.manual_seed(case.seed)
    np.random.seed(case.seed)
    random.seed(case.seed)
    threads = threading.active_count()
    if case.replaced is not None:
        parts.replace_method(case.replaced)
    program = _Program(case, side)
    program.run()
    loads_here = getattr(program.loader, "worker_processes", None) == 0
    program.loader = None
    gc.collect()
    deadline = time.monotonic() + 3  # PyTorch does not end the thread that feeds a dead worker
    while _is_busy(threads) and time.monotonic() < deadline:
        time.sleep(0.01)
    return {
        "events": program.events,
        "states": _states(),
        "generator": None if program.generator is None else _digest(program.generator.get_state().numpy().tobytes()),
        "dataset": _looks(program.dataset),
        "caches": [_looks(parts.CachesOnClass.kept), _looks(parts.CACHE)],
        "calls": _calls(folder / "log"),
        "loads here": loads_here,
        "start method": multiprocessing.get_start_method(allow_none=True),
        "imported": "this_is_lazy" in sys.modules,
        "handlers": [str(signal.getsignal(one)) for one in (signal.SIGINT, signal.SIGTERM)],
        "logging": sum(len(logging.getLogger(name).handlers) for name in (None, "chirpid_patch")),
        "threads": threading.active_count() - threads,
        "children": len(multiprocessing.active_children()),
    }


def _is_busy(threads: int) -> bool:
    """Return whether child processes remain, or more threads than ``threads``."""
    return bool(multiprocessing.active_children()) or threading.active_count() > threads


class _Program:
    """A running program. The attribute ``events`` lists the batches and errors that a training loop would see."""

    def __init__(self, case: Case, side: str) -> None:
        self.case = case
        self.events: list[Any] = []
        self.dataset: Any = case.make_dataset(ours=side != "torch")
        self.loader: Any = None
        self.generator: torch.Generator | None = None
        self._steps = self._errors = 0
        self._make = SIDES[side]

    @property
    def _may_change(self) -> bool:
        """Return whether every loader shares the memory of a batch with the same objects.

        If not, the program must not write into its batches, because the results would differ.
        """
        if self.case.is_collated:
            return True
        # A worker may share the memory of a single sample with its dataset, which depends on timing. The datasets of
        # this package may return a copy, where the user's dataset returns a view.
        alone = self.case.options.get("batch_size", 1) is None
        return not (alone and self.case.workers) and "shipped" not in str(self.case.dataset)

    def run(self) -> None:
        """Create the loader and use it."""
        try:
            arguments = self.case.make_arguments(self.dataset)
            self.generator = arguments.get("generator")
            self.loader = self._make(self.dataset, **arguments)
            {
                "epochs": self._epochs, "break": self._break, "two at once": self._two, "nested": self._nested,
                "zip": self._zip, "few": self._few, "len": self._len, "again": self._again,
            }[self.case.use]()  # fmt: skip
        except Exception as error:
            self._record_error(error)
        if not self.case.options.get("in_order", True):
            self.events.sort(key=repr)

    def _record_error(self, error: Exception) -> None:
        where = str(error).split("\n", 1)[0]
        if not self.case.options.get("in_order", True):
            where = where.rstrip("0123456789.")  # any worker may have read the batch
        self.events.append(("error", type(error).__name__, where if where.startswith("Caught ") else ""))
        # PyTorch's worker errors are part of a reference cycle. Without this line, workers would end only after 5 s.
        traceback.clear_frames(error.__traceback__)

    def _batches(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches of an iterator, and use random numbers between batches. After an error, continue."""
        while self._steps < _MOST_STEPS and self._errors < _MOST_ERRORS:
            self._steps += 1
            try:
                batch = next(iterator)
            except StopIteration:
                return
            except Exception as error:
                self._errors += 1
                self._record_error(error)
                continue
            self.events.append(("batch", _looks(batch)))
            if self._may_change:
                _change(batch)
            torch.rand(1)
            random.random()
            yield batch

    def _epoch(self) -> None:
        for _ in self._batches(iter(self.loader)):
            pass
        self.events.append(("end", _states()))

    def _epochs(self) -> None:
        for _ in range(3):
            self._epoch()

    def _break(self) -> None:
        for count, _ in enumerate(self._batches(iter(self.loader))):
            if count == 1:
                break
        self.events.append(("broken off", _states()))
        self._epoch()
        self._epoch()

    def _two(self) -> None:
        one, other = self._batches(iter(self.loader)), self._batches(iter(self.loader))
        alive = [one, other]
        while alive:
            alive = [each for each in alive if next(each, None) is not None]
        self._epoch()

    def _nested(self) -> None:
        for count, _ in enumerate(self._batches(iter(self.loader))):
            if count < 2:
                for _ in self._batches(iter(self.loader)):
                    pass
        self._epoch()

    def _zip(self) -> None:
        for pair in zip(self.loader, self.loader, strict=False):
            self.events.append(("pair", _looks(pair)))
        self._epoch()

    def _few(self) -> None:
        for _ in range(3):
            next(self._batches(iter(self.loader)), None)
        self._epoch()

    def _len(self) -> None:
        self.events.append(("len", len(self.loader), len(iter(self.loader))))
        self._epoch()

    def _again(self) -> None:
        iterator = iter(self.loader)
        for _ in range(3):
            for _ in self._batches(iterator):
                pass
            self.events.append(("end", _states()))
        self._epoch()


def _change(batch: Any) -> None:
    """Write into a batch, as code of the user may do."""
    if isinstance(batch, torch.Tensor):
        if not (batch.is_inference() or batch.requires_grad) and batch.numel():
            batch.zero_()
    elif isinstance(batch, dict):
        _change(list(batch.values()))
    elif isinstance(batch, list | tuple):
        if any(isinstance(part, str | bytes) for part in batch):
            return  # not collated, so it may be memory that a worker shares with its dataset
        for part in batch:
            _change(part)


def _looks(value: Any) -> Any:
    """Return a text with everything that can be observed of a value."""
    held = list(held_by(value))
    if held:
        return ["dataset over", *map(_looks, held)]
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return f"tensor {value.layout} {_looks(value.to_dense())}"
        layout = f"{tuple(value.shape)} {value.stride()} {value.requires_grad} {value.is_conj()}"
        return f"{type(value).__name__} {value.dtype} {layout} {_digest(repr(value.tolist()).encode())}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} {_digest(value.tobytes())}"
    if isinstance(value, torch.Generator):
        return _digest(value.get_state().numpy().tobytes())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, dict):
        return {str(name): _looks(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(_looks, value)]
    if type(value).__module__.startswith(("qa.oracle_programs", "torch.utils.data")):
        return [type(value).__name__, _looks(getattr(value, "__dict__", {}))]
    if isinstance(value, int | float | str | bytes | None):
        return f"{type(value).__name__} {value!r}"
    return type(value).__name__


def _states() -> str:
    return _digest(repr((torch.get_rng_state().tolist(), np.random.get_state(), random.getstate())).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _calls(log: Path) -> dict[str, dict[str, int]]:
    """Return kind of process → method of the user → number of calls."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    found: dict[str, Counter[str]] = {"main": Counter(), "worker": Counter()}
    for line in lines:
        kind, _, call = line.partition(" ")
        found[kind][call] += 1
    return {kind: dict(counted) for kind, counted in found.items()}
