"""Loading in the training process until worker processes are worth their start."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from chirpid_patch.data.held_objects import held_objects
from chirpid_patch.data.snapshot import Snapshot
from chirpid_patch.loading.in_process import InProcessIterator
from chirpid_patch.loading.worker_demand import WorkerDemand
from chirpid_patch.randomness.random_states import generator_state, held_generators, restore_generator

if TYPE_CHECKING:
    from chirpid_patch.loading.loader import BatchedDataLoader

logger = logging.getLogger("chirpid_patch")

#: Seconds that starting a worker may take, until that was measured: with "fork", and with the others, side by side.
_FORK_SECONDS = 0.03
_SPAWN_SECONDS = 3.0
#: Libraries with threads of their own: once used, they may hang in a process that is forked from here.
_NOT_FORKABLE = ("cv2", "decord", "faiss", "grpc", "jax", "numba", "tensorflow")


def demand_of(loader: BatchedDataLoader) -> WorkerDemand:
    """The demand for the workers of ``loader``; settled where something needs to be in a worker process."""
    workers = loader.num_workers
    forks = multiprocessing.get_start_method() == "fork"
    demand = WorkerDemand(
        workers,
        ahead=workers * (loader.prefetch_factor or 2),
        kept=loader.persistent_workers or loader.keep_workers,
        start_s=_FORK_SECONDS * workers if forks else _SPAWN_SECONDS,
    )
    if loader.worker_init_fn is not None:
        demand.settle("a worker_init_fn prepares them")
    elif loader.multiprocessing_context is not None:
        demand.settle("a multiprocessing_context was given")
    elif _asks_for_worker(loader.dataset, loader.collate_fn):
        demand.settle("the dataset asks in which of them it is")
    elif forks and (found := next((name for name in _NOT_FORKABLE if name in sys.modules), None)):
        demand.settle(f"{found} may hang in them once it was used in this process")
    return demand


def _asks_for_worker(*owners: Any) -> bool:
    """Whether code of a dataset, or of what it holds, mentions ``get_worker_info``."""
    return any(
        "get_worker_info" in code.co_names
        for held in held_objects(owners)
        if isinstance(held, Dataset) or callable(held)
        for code in _codes(held)
    )


def _codes(held: Any) -> Iterator[CodeType]:
    kinds = [kind for kind in type(held).__mro__ if not kind.__module__.startswith(("torch.", "chirpid_patch."))]
    functions = [held, *(value for kind in kinds for value in vars(kind).values())]
    yield from (code for function in functions if isinstance(code := getattr(function, "__code__", None), CodeType))


class OnDemandIterator(Iterator[Any]):
    """One epoch of a loader, loaded here or by its worker processes, as ``demand`` says from batch to batch.

    The very first samples are a trial: if reading them draws random numbers, fails, or changes what the dataset holds,
    all is put back and left to the worker processes, for this epoch and all that follow.
    """

    def __init__(self, loader: BatchedDataLoader, epoch: int, demand: WorkerDemand) -> None:
        self._loader = loader
        self._epoch = epoch
        self._demand = demand
        self._given = 0
        self._delivered: float | None = None
        self._ended = False
        self._tried_s = 0.0
        demand.epoch_begins()
        if not demand.wanted:
            loader._let_workers_go()
        self._batches: Any = self._start_workers() if demand.wanted else loader._iterate_here(epoch)
        if demand.untried and isinstance(self._batches, InProcessIterator):
            self._try_here(self._batches)

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        asked = time.perf_counter()
        away = None if self._delivered is None else asked - self._delivered
        here = isinstance(self._batches, InProcessIterator)
        try:
            batch = next(self._batches)
        except StopIteration:
            if not self._ended and not here:
                self._demand.epoch_ended()
            self._ended = True
            raise
        self._given += 1
        self._delivered = time.perf_counter()
        if here:
            self._was_loaded_here(self._batches, away, self._delivered - asked + self._tried_s)
            self._tried_s = 0.0
        else:
            self._demand.loaded_by_workers(away, self._delivered - asked)
            if not self._demand.wanted:
                logger.info("no worker processes for %s: %s", type(self._loader.dataset).__name__, self._demand.why)
                self._batches = self._loader._go_on_without(self._batches)
        return batch

    def _was_loaded_here(self, batches: InProcessIterator, away: float | None, load: float) -> None:
        demand, left = self._demand, self._left()
        if self._loader.lost_workers:
            return
        if batches.has_drawn:
            demand.settle("reading a sample draws random numbers")
        else:
            demand.loaded_here(away, load, left)
        if demand.wanted and left != 0:
            self._batches = self._start_workers(batches)

    def _left(self) -> int | None:
        """Batches left in the epoch; None where nobody knows."""
        try:
            return max(len(self._loader) - self._given, 0)
        except TypeError:
            return None

    def _start_workers(self, instead_of: InProcessIterator | None = None) -> Iterator[Any]:
        logger.info("worker processes for %s: %s", type(self._loader.dataset).__name__, self._demand.why)
        begun = time.perf_counter()
        batches = self._loader._iterate_with_workers(self._epoch, None if instead_of is None else instead_of.tasks)
        self._demand.started(time.perf_counter() - begun)
        return batches

    def _try_here(self, batches: InProcessIterator) -> None:
        """Read the first samples here, and see whether that can be done as well as in a worker process."""
        demand, trial = self._demand, _Trial(self._loader.dataset, self._loader.collate_fn)
        try:
            seconds = batches.read_samples(2)
            load = seconds[-1] * len(batches.tasks.owed[0].indices) if seconds else 0.0
            trial.has_drawn |= batches.has_drawn
            if load > demand.start_s:
                demand.loaded_here(None, load, self._left())
            if not demand.wanted and not trial.has_drawn:
                begun = time.perf_counter()
                batches.load_first()
                self._tried_s = time.perf_counter() - begun
                trial.has_drawn |= batches.has_drawn
            why = None
        except Exception:  # it is for the workers to fail, where the caller expects it
            why = "the first samples could not be read in this process"
        why = trial.put_back() or why
        if why is not None:
            demand.settle(why)
        demand.untried = False
        if demand.wanted:
            self._batches = self._start_workers(batches)


class _Trial:
    """What reading a few samples did to everything around."""

    def __init__(self, *owners: Any) -> None:
        self._generators = [(generator, generator_state(generator)) for generator in held_generators(*owners)]
        self._before = Snapshot(*owners)
        #: Whether it drew from the global random generators.
        self.has_drawn = False

    def put_back(self) -> str | None:
        """Put all back; what says, in words, that samples must be read elsewhere, None where nothing does."""
        moved = [(held, state) for held, state in self._generators if _differ(state, generator_state(held))]
        for held, state in moved:
            restore_generator(held, state)
        has_changed = self._before.restore()
        if moved or self.has_drawn:
            return "reading a sample draws random numbers"
        return "reading a sample changes the dataset" if has_changed else None


def _differ(one: Any, other: Any) -> bool:
    """Whether two states of a generator are different: tensors, or structures of plain numbers and arrays."""
    if isinstance(one, dict):
        return any(_differ(value, other[name]) for name, value in one.items())
    if isinstance(one, Tensor):
        return not one.equal(other)
    return not np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one != other)
