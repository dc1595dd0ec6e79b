"""Loading batches in worker processes, by PyTorch's own machinery, and noticing when that fails."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pickle import PicklingError
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from chirpid_patch.data.collate import stacks_samples
from chirpid_patch.data.compact import compact
from chirpid_patch.data.fetch import Collate, is_in_memory
from chirpid_patch.loading.child_watch import watch
from chirpid_patch.loading.one_task import TaskLoading
from chirpid_patch.loading.slots import BatchSlots, load_packed, open_slots
from chirpid_patch.loading.tasks import EpochTasks, LoadTask, draw_base_seed

_NOT_THE_USERS = (
    "DataLoader worker (pid",
    "Pin memory thread exited",
    "Too many open files",
    "received 0 items of ancdata",
    "unable to open shared memory",
    "unable to mmap",
    "unable to write to file",
    "can't start new thread",
)


class WorkersLostError(Exception):
    """Worker processes cannot be started or died; what they owed has to be loaded elsewhere."""


class WorkersClosedError(WorkersLostError):
    """Worker processes were shut down on purpose in the middle of an epoch."""


def _is_infrastructure(error: BaseException) -> bool:
    """Whether ``error``, raised while waiting for a batch, tells of the workers and not of the user's code.

    PyTorch's message for an exception in a user's code begins with "Caught …".
    """
    text = str(error)
    if isinstance(error, OSError | EOFError):
        return not text.startswith("Caught ")
    return isinstance(error, RuntimeError) and text.startswith(_NOT_THE_USERS)


class _TaskDataset(Dataset[tuple[int, Any]]):
    """The dataset the workers see: a task in, its number and collated batch out."""

    def __init__(self, dataset: Any, collate: Collate) -> None:
        self.dataset = compact(dataset)
        self.collate = collate
        self._loading = TaskLoading(self.dataset, collate)

    def __getitem__(self, task: LoadTask) -> tuple[int, Any]:
        return task.number, load_packed(partial(self._load, task), task.slots)

    def _load(self, task: LoadTask) -> Any:
        with open_slots(stacks_samples(self.collate) and is_in_memory(self.dataset)):
            return self._loading.load(task)


class _WorkerStart:
    """The user's ``worker_init_fn``, which finds the user's dataset in ``get_worker_info()``."""

    def __init__(self, start: Callable[[int], None] | None) -> None:
        self._start = start

    def __call__(self, worker_id: int) -> None:
        info = get_worker_info()
        assert info is not None
        seen: Any = info.dataset
        object.__setattr__(info, "dataset", seen.dataset)
        if self._start is not None:
            self._start(worker_id)


def _as_it_is(loaded: Any) -> Any:
    return loaded


class _TaskSampler(Sampler[LoadTask]):
    """Gives PyTorch's loader tasks for indices, and draws its base seed so that this process knows it.

    PyTorch's iterator asks for an iterator, draws its base seed, and asks again; kept workers' later epochs
    only ask. The seed is drawn here at that place, and ``mirror``, the generator PyTorch's loader draws
    from, is set to the same state just before, so that it comes to the same number and every generator
    moves once.
    """

    def __init__(
        self, sampler: Any, generator: torch.Generator | None, batches: bool, seed: int | None, slots: BatchSlots
    ) -> None:
        self._sampler = sampler
        self._generator = generator
        self._batches = batches
        self.mirror = torch.Generator()
        self.seed = seed
        self._slots = slots
        self.epoch = 0
        self.rank = 0
        self.tasks: EpochTasks | None = None
        self._going_on: EpochTasks | None = None
        self._again: deque[LoadTask] = deque()
        self.drawing = False
        self.died: str | None = None

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[LoadTask]:
        self.begin()
        return self

    def go_on(self, tasks: EpochTasks | None) -> None:
        """Give the rest of ``tasks`` when next asked for an iterator, beginning with those owed; None: all anew."""
        self._going_on = tasks
        if tasks is not None:
            self.seed = tasks.seed
            if tasks.seed_state is not None:
                self.mirror.set_state(tasks.seed_state)

    def begin(self) -> None:
        """Start the sampler over, drawing the base seed where it is due."""
        if self._going_on is not None:
            self.tasks, self._again = self._going_on, deque(self._going_on.owed)
            return
        self._again.clear()
        indices = iter(self._sampler)
        if self.seed is None:
            generator = self._generator
            self.mirror.set_state(torch.get_rng_state() if generator is None else generator.get_state())
            self.seed = draw_base_seed(generator)
        self.tasks = EpochTasks(indices, batches=self._batches, seed=self.seed, epoch=self.epoch, rank=self.rank)

    def __next__(self) -> LoadTask:
        assert self.tasks is not None
        self.drawing = True
        try:
            task = self._again.popleft() if self._again else next(self.tasks)
        finally:
            self.drawing = False
        if self.died is not None:  # the news came while the sampler ran, where raising it would have broken it
            raise RuntimeError(self.died)
        return replace(task, slots=self._slots.lend(task.number))


class WorkerPool:
    """The worker processes of one loader and the epoch they are loading."""

    def __init__(
        self,
        dataset: Any,
        collate: Collate,
        sampler: Any,
        *,
        batches: bool,
        generator: torch.Generator | None,
        worker_init_fn: Callable[[int], None] | None,
        seed: int | None,
        **options: Any,
    ) -> None:
        self._slots = BatchSlots(options["num_workers"] * (options.get("prefetch_factor") or 2))
        self._sampler = _TaskSampler(sampler, generator, batches, seed, self._slots)
        with warnings.catch_warnings():
            # Of more workers than CPUs: said when the loader itself was made.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            self._loader: DataLoader[Any] = DataLoader(
                _TaskDataset(dataset, collate),
                batch_size=None,
                sampler=self._sampler,
                collate_fn=_as_it_is,
                generator=self._sampler.mirror,
                worker_init_fn=_WorkerStart(worker_init_fn),
                **options,
            )
        self._iterator: Any = None
        self._waiting = False
        self._owner = os.getpid()
        self.pids: frozenset[int] | None = frozenset()
        #: The iterator that goes on in this process once the workers are lost.
        self.successor: Iterator[Any] | None = None

    @property
    def seed(self) -> int | None:
        """The base seed, once drawn."""
        return self._sampler.seed

    @property
    def tasks(self) -> EpochTasks | None:
        """The tasks of the running epoch; None before anything was drawn for it."""
        return self._sampler.tasks

    def start_epoch(self, epoch: int, rank: int, *, new_seed: bool, going_on: EpochTasks | None = None) -> None:
        """Begin an epoch, starting the workers if none run; with a base seed of its own where ``new_seed``.

        Or take over the rest of an epoch that began elsewhere, with its seed: what ``going_on`` owes and draws.

        Raises WorkersLostError if workers cannot be started.
        """
        sampler = self._sampler
        sampler.epoch, sampler.rank, sampler.tasks = epoch, rank, going_on
        if new_seed:
            sampler.seed = None
        sampler.go_on(going_on)
        self._slots.begin_epoch()
        first = self._iterator is None
        if first:
            self._check_means()
            self.pids = None
            watch(self)
        if sampler.died is None and not all(worker.is_alive() for worker in self._workers()):
            sampler.died = "a worker process ended between epochs"
        if sampler.died is not None:
            sampler.begin()
            raise WorkersLostError(_first_sentence(sampler.died))
        begun_before = sampler.seed is not None
        try:
            with self._waited_for():
                self._iterator = iter(self._loader)
        except Exception as error:
            if sampler.tasks is not None and sampler.tasks.failed:
                raise
            pickling = first and isinstance(error, TypeError | AttributeError | PicklingError)
            if not (pickling or _is_infrastructure(error)):
                raise
            if not begun_before and sampler.tasks is not None and not sampler.tasks.owed:
                sampler.begin()  # the second time PyTorch would have asked, see _TaskSampler
            raise WorkersLostError(_reason(error)) from None
        self.pids = frozenset(worker.pid for worker in self._workers())

    def _workers(self) -> Sequence[Any]:
        """The processes; none before the first epoch."""
        return getattr(self._iterator, "_workers", ())

    def _check_means(self) -> None:
        """Raise WorkersLostError where workers could not run or could not hand anything over."""
        if multiprocessing.current_process().daemon:
            raise WorkersLostError("this process is a worker itself and may not start others")
        try:
            torch.empty(1).share_memory_()  # type: ignore[no-untyped-call]
        except (RuntimeError, OSError) as error:
            raise WorkersLostError(f"there is no shared memory: {_reason(error)}") from None

    @contextmanager
    def _waited_for(self) -> Iterator[None]:
        """Within the context a worker's death is raised at once, instead of being remembered."""
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    def next_batch(self) -> Any:
        """The next batch. Raises StopIteration, the user's exception, or WorkersLostError."""
        tasks = self._sampler.tasks
        if self._sampler.died is not None:
            raise WorkersLostError(_first_sentence(self._sampler.died))
        if self._iterator is None or tasks is None:
            raise WorkersClosedError
        try:
            with self._waited_for():
                number, batch = next(self._iterator)
        except StopIteration:
            raise
        except Exception as error:
            if tasks.failed:  # an error of the user's sampler
                tasks.failed = False
                raise
            if _is_infrastructure(error):
                raise WorkersLostError(_first_sentence(self._sampler.died or _reason(error))) from None
            if tasks.owed:  # an error of the user's dataset stands for its batch, as in PyTorch's loader
                self._slots.forget(tasks.owed.popleft().number)
            raise
        tasks.settle(number)
        return self._slots.receive(number, batch)

    def worker_died(self, error: RuntimeError) -> None:
        """Remember the death of a worker; raise only while this loader is waiting for a batch."""
        self._sampler.died = str(error)
        if self._waiting and not self._sampler.drawing:
            raise error

    def close(self) -> None:
        """End the worker processes now."""
        iterator, self._iterator = self._iterator, None
        self._loader._iterator = None
        if iterator is not None and os.getpid() == self._owner:  # a forked copy has no workers to end
            iterator._shutdown_workers()


def _first_sentence(message: str) -> str:
    """The first sentence of a message, to be quoted within another."""
    return message.strip().split("\n", 1)[0].split(". ", 1)[0].rstrip(". ")


def _reason(error: BaseException) -> str:
    return _first_sentence(str(error)) or type(error).__name__
