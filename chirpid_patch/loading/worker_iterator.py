"""Loading of batches in worker processes: PyTorch's own iterator and workers, with dead workers replaced once."""

from __future__ import annotations

import errno
import itertools
import logging
import multiprocessing
import os
import queue
import signal
import threading
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import torch
from torch.utils.data import Dataset, get_worker_info

from chirpid_patch.datasets.samples import Collate
from chirpid_patch.datasets.sent_copy import sent_copy
from chirpid_patch.loading.batch_reader import BatchReader
from chirpid_patch.loading.batch_requests import BatchRequest, EpochRequests
from chirpid_patch.loading.by_value import NotSendableError, send_by_value
from chirpid_patch.loading.loader_parts import LoaderParts, loader_attributes, without_random_calls
from chirpid_patch.loading.pinning import PinnableBatch, PinnableCollate
from chirpid_patch.machine.accelerator import pinning_device
from chirpid_patch.randomness.seeding import worker_init_fn
from chirpid_patch.torch_private import MultiProcessingIterator, raise_for_dead_worker, unwatch_workers, watch_workers

logger = logging.getLogger("chirpid_patch")

#: Seconds to wait for the end of a process whose connection broke.
_SECONDS_TO_DIE = 10.0
#: Seconds to wait for a request that was sent to a worker and that the worker may not have taken.
_SECONDS_TO_ARRIVE = 0.1
#: Errors of the operating system if it cannot create a process, or its pipes and semaphores.
_NO_PROCESS = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOSYS, errno.EPERM, errno.EACCES}
)
#: Packages whose code reads what a worker sent. An error that is raised by other code while a batch is awaited was
#: raised by a signal handler, or by a class of the user that is being unpickled.
_READING = frozenset({"chirpid_patch", "multiprocessing", "queue", "socket", "torch"})
#: Number of indices of a batch in the message about a dead worker.
_MOST_SHOWN = 64


#: The queues of all iterators with workers, by the iterator's id. The garbage collector finalizes the objects of a
#: cycle in any order: it could close a queue's pipe before the iterator has ended its workers. The queue's thread would
#: close the same descriptor again, which may be another file by then. A queue that is listed here is part of no cycle.
_queues_in_use: dict[int, list[Any]] = {}

#: Attributes of PyTorch's iterator about the running epoch, with which new workers continue.
_OF_THE_EPOCH = (
    "_base_seed", "_index_sampler", "_num_yielded", "_rcvd_idx", "_sampler_iter", "_send_idx", "_task_info",
)  # fmt: skip


class WorkersNotStartedError(Exception):
    """Worker processes cannot be started; ``seed`` is their base seed if it is already drawn."""

    def __init__(self, reason: str, seed: int | None) -> None:
        super().__init__(reason)
        self.seed = seed


class _WorkerDiedError(Exception):
    """A worker process has died."""


class _RequestedBatches(Dataset[Any]):
    """A dataset in the workers whose item for a request is the batch of that request."""

    def __init__(self, dataset: Any, collate: Collate, *, batches: bool) -> None:
        self.dataset = dataset
        self._reader = BatchReader(self.dataset, collate, batches=batches)

    def __getitem__(self, request: BatchRequest) -> Any:
        return self._reader.read(request)


class _WorkerStart:
    """The user's ``worker_init_fn``, called such that ``get_worker_info()`` returns the user's dataset."""

    def __init__(self, start: Callable[[int], None] | None) -> None:
        self._start = start

    def __call__(self, worker_id: int) -> None:
        info = get_worker_info()
        assert info is not None
        seen: Any = info.dataset
        object.__setattr__(info, "dataset", seen.dataset)  # PyTorch's object refuses assignments
        if self._start is not None:
            self._start(worker_id)


def _as_it_is(batch: Any) -> Any:
    return batch


def _parts(loader: Any, reads_batches: bool, keep: bool) -> LoaderParts:
    """Return the attributes of ``loader`` for PyTorch's iterator; changed if the dataset is read a batch at a time."""
    can_pin = pinning_device() is not None
    changed: dict[str, Any] = {"pin_memory": loader.pin_memory and can_pin}
    if keep:
        changed["persistent_workers"] = True
    if reads_batches:
        # A user's function may refer to the dataset by another way than the worker's information: then it must be that
        # object.
        known = loader.worker_init_fn is None or loader.worker_init_fn is worker_init_fn
        dataset = sent_copy(loader.dataset) if known else loader.dataset
        changed |= {
            "dataset": _RequestedBatches(dataset, loader.collate_fn, batches=loader.batch_sampler is not None),
            "collate_fn": _as_it_is,
            "batch_sampler": None,
            "sampler": loader._index_sampler,
            "worker_init_fn": _WorkerStart(loader.worker_init_fn),
        }
    if loader.pins_own_batches and can_pin and not loader.pin_memory:
        changed |= {"pin_memory": True, "collate_fn": PinnableCollate(changed.get("collate_fn", loader.collate_fn))}
    return send_by_value(loader_attributes(loader, **changed))


class WorkerIterator(MultiProcessingIterator):  # type: ignore[misc]
    """PyTorch's iterator over batches of worker processes, with another reaction to the death of a worker.

    PyTorch raises RuntimeError at any line of the main thread. Here only the wait for a batch notices the death, and
    new workers take over. They first read the unfinished batches of the dead worker again, one at a time, and then
    continue with the other batches. If a worker dies again over an unfinished batch, that batch fails with PyTorch's
    error and its indices. The training process never reads these samples.

    New workers use other random streams than earlier ones, so that no random numbers repeat. Augmentation by this
    package is the same, because it is keyed.

    ``keep`` keeps the processes at the end of an epoch, for ``start_over``. ``seed`` is the base seed if it is already
    drawn; the iterator then makes only the random calls of a next epoch.

    Raises:
        WorkersNotStartedError: the operating system cannot start a worker, and ``may_do_without`` is true.
        Exception: otherwise, the errors of PyTorch's iterator.
    """

    #: Attribute of PyTorch: before the start there is no worker to shut down, or whose death is reported.
    _shutdown = True
    _worker_pids_set = False
    #: The process whose children the workers are.
    _owner = 0

    def __init__(
        self, loader: Any, *, reads_batches: bool, may_do_without: bool, keep: bool = False, seed: int | None = None
    ) -> None:
        self._loader = weakref.ref(loader)
        self._reads_batches = reads_batches
        self._parts = _parts(loader, reads_batches, keep)
        self._seed = seed
        self._is_started = False
        #: The request that was sent for each batch that is not delivered yet, and for some delivered batches.
        self._sent: dict[int, Any] = {}
        #: After a death: batches of the dead worker, to read alone, and all requests to send again.
        self._suspects: set[int] = set()
        self._resend: deque[int] = deque()
        self._is_behind = False
        self._is_broken = False
        self._restarts = 0
        #: Workers that have answered a request.
        self._heard_from: set[int] = set()
        self._epoch_state: dict[str, Any] | None = None
        if may_do_without:
            _check_processes()
        try:
            self._start(self._parts if seed is None else without_random_calls(self._parts, seed))
        except NotSendableError as error:
            if not reads_batches or loader.worker_init_fn is not None:
                raise  # as PyTorch's program stops, in the worker or here; in this process the data might be other data
            self._end_partial_start()
            raise WorkersNotStartedError(str(error), self._base_seed if seed is None else seed) from error
        except OSError as error:
            # Between PyTorch's own checks of arguments and the first batch, only processes are started.
            starting = "_worker_init_fn" in vars(self) and not self._is_started
            if not may_do_without or not starting or error.errno not in _NO_PROCESS:
                raise
            self._end_partial_start()
            raise WorkersNotStartedError(_reason(error), self._base_seed if seed is None else seed) from error

    def _start(self, parts: LoaderParts) -> None:
        self._owner = os.getpid()
        super().__init__(parts)

    def _end_partial_start(self) -> None:
        for worker in getattr(self, "_workers", ()):
            worker.terminate()
            worker.join()
        self._shutdown = True

    # -- epochs

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._is_started = True
        self._unwatch()
        self._pids = tuple(worker.pid for worker in self._workers)
        _queues_in_use[id(self)] = [self._worker_result_queue, *self._index_queues]
        if self._epoch_state is not None:
            self._take_up_epoch()
            return
        if first_iter and self._seed is not None:
            self._base_seed, self._index_sampler = self._seed, self._parts._index_sampler
        owner = self._loader()
        assert owner is not None
        self._requests: EpochRequests = owner._worker_requests(self._base_seed)
        self._sent, self._suspects, self._is_broken = {}, set(), False
        self._resend.clear()
        try:
            super()._reset(loader, first_iter)
        except _WorkerDiedError as death:  # persistent workers, between two epochs
            self._recover(death)

    def start_over(self) -> None:
        """Begin the next epoch with the existing workers, with the random calls of starting new workers."""
        iter(self._index_sampler)
        generator = self._parts.generator
        self._base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
        self._reset(self._parts)

    def end_workers(self) -> None:
        """End the processes now; an epoch that is running starts new processes at its next request."""
        self._is_broken = not self._shutdown
        self._shutdown_workers()

    def _shutdown_workers(self) -> None:
        """End the workers, unless this is a forked copy: workers belong to the process that started them."""
        try:
            if os.getpid() == self._owner:
                super()._shutdown_workers()
            self._shutdown = True
        finally:
            _queues_in_use.pop(id(self), None)

    @property
    def taken(self) -> int:
        """Return the number of batches of this epoch that the loop received, or that failed.

        Raises:
            ValueError: the batches have no order.
        """
        if not self._in_order:
            raise ValueError("batches may arrive in any order (in_order=False)")
        return self._requests.drawn - len(self._task_info)

    @property
    def ended(self) -> bool:
        """Return whether the epoch is provably over."""
        return self._requests.exhausted and not self._task_info

    def _next_index(self) -> Any:
        request = self._requests.draw(self._sampler_iter)
        if len(self._sent) > 2 * len(self._task_info):
            self._sent = {number: sent for number, sent in self._sent.items() if number in self._task_info}
        self._sent[self._send_idx] = request if self._reads_batches else request.indices
        return self._sent[self._send_idx]

    # -- dead workers

    def _next_data(self) -> Any:
        while True:
            try:
                if self._is_broken and not self.ended:
                    self._start_again()
                batch = super()._next_data()
                return batch.batch if type(batch) is PinnableBatch else batch
            except _WorkerDiedError as death:
                self._recover(death)

    def _try_get_data(self, *timeout: float) -> Any:
        """Return the result of PyTorch's method; raise _WorkerDiedError for a dead worker."""
        try:
            try:
                self._watch()
                got, data = super()._try_get_data(*timeout)
            finally:
                self._unwatch()
        except Exception as error:  # from PyTorch's SIGCHLD handler, its own check, or an incomplete message
            self._unwatch()
            if not _was_raised_by_reading(error.__cause__ or error):
                raise
            if isinstance(error, OSError | EOFError):  # the other end may be closing at this moment
                _wait_for_a_death(self._workers)
            if all(worker.is_alive() for worker in self._workers):
                raise
            raise _WorkerDiedError from error
        if got and data[0] in self._task_info:
            self._heard_from.add(self._task_info[data[0]][0])
            self._suspects.discard(data[0])
        return got, data

    def _watch(self) -> None:
        """Let PyTorch's SIGCHLD handler raise an error for these workers, in this thread."""
        if threading.current_thread() is threading.main_thread():
            self._worker_pids_set = True
            watch_workers(id(self), self._pids)
            raise_for_dead_worker()

    def _unwatch(self) -> None:
        while self._worker_pids_set:
            try:
                unwatch_workers(id(self))
                self._worker_pids_set = False
            # The handler's error about a dead worker: the caller checks the workers itself.
            except RuntimeError as error:
                if not _was_raised_by_reading(error):
                    raise
            except ValueError:  # unknown by now: the error came between the two lines above
                self._worker_pids_set = False

    def _recover(self, death: _WorkerDiedError) -> None:
        """Continue with new workers; raise PyTorch's RuntimeError if a batch killed its worker again.

        Also raise that error if a worker exited before it took its first request: a new worker would do the same.
        """
        dead = {place for place, worker in enumerate(self._workers) if not worker.is_alive()}
        for place in sorted(dead):
            if (self._workers[place].exitcode or 0) > 0 and not self._has_begun(place):
                self._is_broken = True
                raise RuntimeError(
                    f"{_describe_exit(self._workers[place])} The worker could not start: it had not read a sample yet. "
                    "Its own error message is on standard error."
                ) from death.__cause__
        sent = {number: info[0] for number, info in self._task_info.items() if len(info) == 1}
        if self._suspects:
            raise self._batch_error(min(sent), dead) from death.__cause__
        self._suspects = {number for number, worker in sent.items() if worker in dead} or set(sent)
        logger.warning("%s New workers continue.", _describe_exit(self._workers[min(dead)]))
        owner = self._loader()
        if owner is not None:
            owner._lost_workers = True
        self._start_again()

    def _has_begun(self, worker: int) -> bool:
        """Return whether a dead worker had taken a request, by reading the requests that are left in its queue."""
        if worker in self._heard_from:
            return True
        sent, left = sum(info == (worker,) for info in self._task_info.values()), 0
        try:
            while left < sent:
                if self._index_queues[worker].get(timeout=_SECONDS_TO_ARRIVE) is not None:  # None: it is to end
                    left += 1
        except queue.Empty:  # also where the worker held the lock of the queue, waiting for a request
            return True
        return not sent

    def _batch_error(self, number: int, dead: set[int]) -> RuntimeError:
        """Return the error of the batch ``number``, which killed its worker twice."""
        del self._task_info[number]
        self._tasks_outstanding -= 1
        self._suspects.discard(number)
        self._is_broken = True
        indices = getattr(self._sent[number], "indices", self._sent[number])
        shown = indices
        if isinstance(indices, list | tuple) and len(indices) > _MOST_SHOWN:
            shown = f"{str(list(indices[:_MOST_SHOWN]))[:-1]}, …]"
        return RuntimeError(
            f"{_describe_exit(self._workers[min(dead)])} It was reading batch {number} of this epoch, of the indices "
            f"{shown}, for the second time, after another worker had died over it. Details are lost due to "
            "multiprocessing: reading these samples with num_workers=0 may show them."
        )

    def _start_again(self) -> None:
        """Replace all workers, and send them the requests without a received batch.

        Living workers end as at the end of an epoch.
        """
        self._epoch_state = {name: vars(self)[name] for name in _OF_THE_EPOCH}
        self._shutdown_workers()
        self._restarts += 1
        self._heard_from = set()
        self._is_broken = False
        seed = (self._base_seed + self._restarts * self._num_workers) % 2**63
        try:
            self._start(without_random_calls(self._parts, seed))
        finally:
            self._epoch_state = None

    def _take_up_epoch(self) -> None:
        """Continue the running epoch: the last step of constructing the iterator with new workers."""
        assert self._epoch_state is not None
        self.__dict__.update(self._epoch_state)
        self._workers_status = [True] * self._num_workers
        self._workers_num_tasks = [0] * self._num_workers
        self._worker_queue_idx_cycle = itertools.cycle(range(self._num_workers))
        self._tasks_outstanding = 0
        for number, info in sorted(self._task_info.items()):
            if len(info) == 1:
                self._task_info[number] = (0,)  # for PyTorch: not lost, and not received
            else:
                self._workers_num_tasks[info[0]] += 1
        self._resend = deque(number for number, info in sorted(self._task_info.items()) if len(info) == 1)
        self._is_behind = True
        self._try_put_index()

    def _try_put_index(self) -> None:
        """Send the indices of one more batch; after a death, of all missed batches, suspected batches one at a time."""
        if self._suspects and self._tasks_outstanding:
            return
        self._put_next()
        while self._is_behind and not self._suspects:
            outstanding = self._tasks_outstanding
            if self._resend or len(self._task_info) < self._prefetch_factor * self._num_workers:
                self._put_next()
            self._is_behind = self._tasks_outstanding > outstanding

    def _put_next(self) -> None:
        if not self._resend:
            super()._try_put_index()
            return
        number, worker = self._resend.popleft(), next(self._worker_queue_idx_cycle)
        self._index_queues[worker].put((number, self._sent[number]))
        self._task_info[number] = (worker,)
        self._workers_num_tasks[worker] += 1
        self._tasks_outstanding += 1


def _wait_for_a_death(workers: list[Any]) -> None:
    """Wait until one of ``workers`` has ended, for up to ``_SECONDS_TO_DIE`` seconds."""
    closed = wait([worker.sentinel for worker in workers], _SECONDS_TO_DIE)
    for worker in workers:
        if worker.sentinel in closed:
            worker.join(_SECONDS_TO_DIE)  # its files are closed a moment before a wait for it succeeds


def _describe_exit(worker: Any) -> str:
    """Return how a worker process ended, in PyTorch's words."""
    code = worker.exitcode
    if code is not None and code < 0:
        name = signal.strsignal(-code) or f"signal {-code}"
        return f"DataLoader worker (pid {worker.pid}) is killed by signal: {name}."
    return f"DataLoader worker (pid {worker.pid}) exited unexpectedly with exit code {code}."


def _was_raised_by_reading(error: BaseException) -> bool:
    """Return whether ``error`` was raised by the code that receives data from a worker."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    name = "" if traceback is None else str(traceback.tb_frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in _READING


def _check_processes() -> None:
    """Raise WorkersNotStartedError if this process can start no other process, or could not receive data from it."""
    if multiprocessing.current_process().daemon:
        raise WorkersNotStartedError("daemonic processes are not allowed to have children", None)
    try:
        torch.empty(1, device="cpu").share_memory_()  # type: ignore[no-untyped-call]
    except (RuntimeError, OSError) as error:
        if type(error) is not RuntimeError and getattr(error, "errno", None) not in _NO_PROCESS:
            raise  # of a signal handler
        raise WorkersNotStartedError(f"there is no shared memory: {_reason(error)}", None) from error


def _reason(error: BaseException) -> str:
    """Return the first sentence of an error's message, as part of another sentence."""
    return str(error).strip().split("\n", 1)[0].split(". ", 1)[0].rstrip(". ") or type(error).__name__
