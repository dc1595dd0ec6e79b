"""PyTorch's iterator over batches of worker processes, with one addition: dead workers are replaced."""

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
from functools import partial
from multiprocessing.connection import wait
from typing import Any

import torch
from torch.utils.data import Dataset, get_worker_info

from chirpid_patch.datasets.samples import Collate
from chirpid_patch.datasets.sent_copy import copy_for_workers
from chirpid_patch.loading.batch_reader import BatchReader
from chirpid_patch.loading.batch_requests import BatchRequest, EpochRequests
from chirpid_patch.loading.by_value import NotSendableError, make_picklable_for_workers
from chirpid_patch.loading.loader_parts import LoaderParts, copy_loader_attributes, replace_sampler_and_generator
from chirpid_patch.loading.pinning import PinnableBatch, collate_pinnable
from chirpid_patch.machine.accelerator import pinning_device
from chirpid_patch.randomness.seeding import worker_init_fn
from chirpid_patch.torch_private import MultiProcessingIterator, raise_for_dead_worker, unwatch_workers, watch_workers

logger = logging.getLogger("chirpid_patch")

#: Seconds to wait for the end of a process after its connection is lost.
_SECONDS_TO_DIE = 10.0
#: Seconds to wait for a request that may still be in the queue of a dead worker.
_SECONDS_TO_ARRIVE = 0.1
#: Error numbers of the operating system when it refuses a new process, pipe or semaphore.
_REFUSED_PROCESS_ERRORS = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOSYS, errno.EPERM, errno.EACCES}
)
#: Packages whose code receives the data of a worker. While data is received, errors in other code come from signal
#: handlers, or from user classes that are being unpickled.
_RECEIVING_PACKAGES = frozenset({"chirpid_patch", "multiprocessing", "queue", "socket", "torch"})
#: Largest number of indices in the message about a dead worker.
_MOST_SHOWN_INDICES = 64


#: Maps the ``id`` of each iterator with workers to its queues. Without this reference, the garbage collector could
#: close the pipe of a queue before the iterator ends its workers. The thread of the queue would then close the same
#: file descriptor again, although the descriptor may already belong to another file.
_queues_in_use: dict[int, list[Any]] = {}

#: Attributes of PyTorch's iterator that describe the running epoch. New workers do not change these attributes.
_OF_THE_EPOCH = (
    "_base_seed", "_index_sampler", "_num_yielded", "_rcvd_idx", "_sampler_iter", "_send_idx", "_task_info",
)  # fmt: skip


class WorkersNotStartedError(Exception):
    """Worker processes cannot be started. ``seed`` is the base seed of the epoch; None if no seed is drawn yet."""

    def __init__(self, reason: str, seed: int | None) -> None:
        super().__init__(reason)
        self.seed = seed


class _WorkerDiedError(Exception):
    """A worker process has died."""


class _RequestedBatches(Dataset[Any]):
    """The dataset that workers receive. An index is a ``BatchRequest``, and its item is the batch of this request."""

    def __init__(self, dataset: Any, collate: Collate, *, batches: bool) -> None:
        self.dataset = dataset
        self._reader = BatchReader(self.dataset, collate, batches=batches)

    def __getitem__(self, request: BatchRequest) -> Any:
        return self._reader.read(request)


def _start_worker(start: Callable[[int], None] | None, worker_id: int) -> None:
    """Call ``start``, the user's ``worker_init_fn``, with the user's dataset as ``get_worker_info().dataset``."""
    info = get_worker_info()
    assert info is not None
    seen: Any = info.dataset
    object.__setattr__(info, "dataset", seen.dataset)  # ``WorkerInfo`` refuses ordinary assignments
    if start is not None:
        start(worker_id)


def _return_unchanged(batch: Any) -> Any:
    return batch


def _parts(loader: Any, reads_batches: bool, keep: bool) -> LoaderParts:
    """Return a ``DataLoader`` with the attributes of ``loader``, from which PyTorch's iterator starts the workers.

    Args:
        loader: the loader.
        reads_batches: whether the workers use batched reading (see ``permits_batched_reading``). If True, the dataset,
            ``collate_fn`` and ``worker_init_fn`` of the result are objects of this package, and the sampler of the
            result yields the indices of whole batches (single indices if automatic batching is off).
        keep: whether the workers stay alive after an epoch.
    """
    can_pin = pinning_device() is not None
    changed: dict[str, Any] = {"pin_memory": loader.pin_memory and can_pin}
    if keep:
        changed["persistent_workers"] = True
    if reads_batches:
        # The user's ``worker_init_fn`` may refer to the dataset, and must then change the same object in the worker.
        known = loader.worker_init_fn is None or loader.worker_init_fn is worker_init_fn
        dataset = copy_for_workers(loader.dataset) if known else loader.dataset
        changed |= {
            "dataset": _RequestedBatches(dataset, loader.collate_fn, batches=loader.batch_sampler is not None),
            "collate_fn": _return_unchanged,
            "batch_sampler": None,
            "sampler": loader._index_sampler,
            "worker_init_fn": partial(_start_worker, loader.worker_init_fn),
        }
    if loader.pins_own_batches and can_pin and not loader.pin_memory:
        collate = changed.get("collate_fn", loader.collate_fn)
        changed |= {"pin_memory": True, "collate_fn": partial(collate_pinnable, collate)}
    return make_picklable_for_workers(copy_loader_attributes(loader, **changed))


class WorkerIterator(MultiProcessingIterator):  # type: ignore[misc]
    """PyTorch's iterator over batches of worker processes, which also replaces workers that die.

    With PyTorch's own iterator, the death of a worker can raise RuntimeError at any line of the main thread. This
    iterator checks its workers only when the loop waits for a batch. If a worker has died, the iterator starts new
    workers. First, the new workers read the unfinished batches of the dead worker again, one at a time. If a worker
    dies again on one of these batches, the iterator raises PyTorch's error with the indices of this batch. The main
    process never reads the samples of this batch, because these samples could also end the main process.

    New workers have new base seeds, so that they do not repeat the random numbers of earlier workers. The augmentation
    of this package does not depend on the worker, so the augmentation stays the same.

    Args:
        loader: the loader.
        reads_batches: whether the workers use batched reading (see ``permits_batched_reading``).
        can_load_in_process: whether the loader may load in this process if workers cannot be started.
        keep: whether the workers stay alive after an epoch, for ``start_over``.
        seed: the base seed, if it has already been drawn. If ``seed`` is passed, only the sampler makes random calls,
            as at the start of a later epoch with PyTorch's persistent workers. None: the iterator draws the base seed.

    Raises:
        WorkersNotStartedError: the operating system cannot start a worker, and ``can_load_in_process`` is True. The
            error also occurs if an object of ``__main__`` cannot be pickled for the workers, but only with
            ``reads_batches`` and without a ``worker_init_fn``. Otherwise the iterator raises ``NotSendableError``.
        Exception: any other error of PyTorch's iterator.
    """

    #: The next two lines set attributes of PyTorch's iterator to the values of an iterator that has no workers yet.
    _shutdown = True
    _worker_pids_set = False
    #: Id of the process that started the workers.
    _owner = 0

    def __init__(
        self,
        loader: Any,
        *,
        reads_batches: bool,
        can_load_in_process: bool,
        keep: bool = False,
        seed: int | None = None,
    ) -> None:
        self._loader = weakref.ref(loader)
        self._reads_batches = reads_batches
        self._parts = _parts(loader, reads_batches, keep)
        self._seed = seed
        self._is_started = False
        #: Maps batch numbers to the requests that were sent to workers. Old requests are removed later.
        self._sent: dict[int, Any] = {}
        #: After the death of a worker, ``_suspects`` contains the numbers of the worker's unfinished batches, which are
        #: read one at a time. ``_resend`` contains the numbers of all requests to send again.
        self._suspects: set[int] = set()
        self._resend: deque[int] = deque()
        self._is_behind = False
        self._is_broken = False
        self._restarts = 0
        #: Numbers of the workers that have returned a batch.
        self._responded: set[int] = set()
        self._epoch_state: dict[str, Any] | None = None
        if can_load_in_process:
            _check_processes()
        try:
            self._start(self._parts if seed is None else replace_sampler_and_generator(self._parts, seed))
        except NotSendableError as error:
            if not reads_batches or loader.worker_init_fn is not None:
                raise  # loading in this process could yield other data, so the error ends the iteration, as in PyTorch
            self._end_partial_start()
            raise WorkersNotStartedError(str(error), self._base_seed if seed is None else seed) from error
        except OSError as error:
            # If PyTorch has already checked the arguments, an OSError comes from the start of a process.
            starting = "_worker_init_fn" in vars(self) and not self._is_started
            if not can_load_in_process or not starting or error.errno not in _REFUSED_PROCESS_ERRORS:
                raise
            self._end_partial_start()
            raise WorkersNotStartedError(_reason(error), self._base_seed if seed is None else seed) from error

    def _start(self, parts: LoaderParts) -> None:
        self._owner = os.getpid()
        super().__init__(parts)
        self._profile_name = f"enumerate(DataLoader)#{MultiProcessingIterator.__name__}.__next__"  # as in PyTorch

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
            self._continue_epoch()
            return
        if first_iter and self._seed is not None:
            self._base_seed, self._index_sampler = self._seed, self._parts._index_sampler
        owner = self._loader()
        assert owner is not None
        self._requests = EpochRequests(copy_loader_attributes(owner), self._base_seed, *owner._current_epoch())
        self._sent, self._suspects, self._is_broken = {}, set(), False
        self._resend.clear()
        try:
            super()._reset(loader, first_iter)
        except _WorkerDiedError as death:  # a persistent worker has died between two epochs
            self._recover(death)

    def start_over(self) -> None:
        """Begin another epoch with the same workers. The random calls are the same as with new workers."""
        iter(self._index_sampler)
        generator = self._parts.generator
        self._base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
        self._reset(self._parts)

    def end_workers(self) -> None:
        """End the worker processes. If an epoch is running, its next request starts new workers."""
        self._is_broken = not self._shutdown
        self._shutdown_workers()

    def _shutdown_workers(self) -> None:
        """End the workers. In a forked copy of the process that started the workers, do nothing."""
        try:
            if os.getpid() == self._owner:
                super()._shutdown_workers()
            self._shutdown = True
        finally:
            _queues_in_use.pop(id(self), None)

    @property
    def taken(self) -> int:
        """Return how many batches of this epoch the loop has received, including batches that raised an error.

        Raises:
            ValueError: the number is unknown, because batches may arrive in any order (``in_order=False``).
        """
        if not self._in_order:
            raise ValueError(
                "the loader has no state during an epoch with in_order=False: save the state between epochs"
            )
        return self._requests.drawn - len(self._task_info)

    @property
    def ended(self) -> bool:
        """Return whether the epoch has ended: the sampler is at its end, and the loop has received all batches."""
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
        """Return the result of PyTorch's method of this name; raise ``_WorkerDiedError`` if a worker has died."""
        try:
            try:
                self._watch()
                got, data = super()._try_get_data(*timeout)
            finally:
                self._unwatch()
        except Exception as error:  # from PyTorch's SIGCHLD handler, its check, or an incomplete message
            self._unwatch()
            if not _was_raised_by_reading(error.__cause__ or error):
                raise
            if isinstance(error, OSError | EOFError):  # a worker may be ending at this moment
                _wait_for_a_death(self._workers)
            if all(worker.is_alive() for worker in self._workers):
                raise
            raise _WorkerDiedError from error
        if got and data[0] in self._task_info:
            self._responded.add(self._task_info[data[0]][0])
            self._suspects.discard(data[0])
        return got, data

    def _watch(self) -> None:
        """Raise an error if one of these workers has died, or dies before the call of ``_unwatch``.

        PyTorch's SIGCHLD handler raises the error in the main thread. In other threads, this method does nothing.
        """
        if threading.current_thread() is threading.main_thread():
            self._worker_pids_set = True
            watch_workers(id(self), self._pids)
            raise_for_dead_worker()

    def _unwatch(self) -> None:
        while self._worker_pids_set:
            try:
                unwatch_workers(id(self))
                self._worker_pids_set = False
            # This loop ignores the handler's error about a dead worker, because the caller checks the workers
            # afterwards.
            except RuntimeError as error:
                if not _was_raised_by_reading(error):
                    raise
            except ValueError:  # the handler's error came after the ids had been removed
                self._worker_pids_set = False

    def _recover(self, death: _WorkerDiedError) -> None:
        """Start new workers after the death of a worker.

        Raises:
            RuntimeError: two workers died while they read the same batch. The error also occurs if a worker exited with
                an error code before its first request, because a new worker would exit in the same way. The error
                message begins with PyTorch's message.
        """
        dead = {place for place, worker in enumerate(self._workers) if not worker.is_alive()}
        for place in sorted(dead):
            if (self._workers[place].exitcode or 0) > 0 and not self._took_request(place):
                self._is_broken = True
                raise RuntimeError(
                    f"{_describe_exit(self._workers[place])} The worker could not start, so it read no sample. "
                    "The worker's own error message is on standard error."
                ) from death.__cause__
        sent = {number: info[0] for number, info in self._task_info.items() if len(info) == 1}
        if self._suspects:
            raise self._batch_error(min(sent), dead) from death.__cause__
        self._suspects = {number for number, worker in sent.items() if worker in dead} or set(sent)
        logger.warning("%s New workers continue the epoch.", _describe_exit(self._workers[min(dead)]))
        owner = self._loader()
        if owner is not None:
            owner._lost_workers = True
        self._start_again()

    def _took_request(self, worker: int) -> bool:
        """Return whether a dead worker had removed a request from its queue.

        The method compares the number of sent requests with the number of requests that are left in the queue.
        """
        if worker in self._responded:
            return True
        sent, left = sum(info == (worker,) for info in self._task_info.values()), 0
        try:
            while left < sent:
                if self._index_queues[worker].get(timeout=_SECONDS_TO_ARRIVE) is not None:  # None is the signal to end
                    left += 1
        except queue.Empty:  # also raised if the worker died while it held the queue's lock
            return True
        return not sent

    def _batch_error(self, number: int, dead: set[int]) -> RuntimeError:
        """Return the error for the batch ``number``, at which two workers have died."""
        del self._task_info[number]
        self._tasks_outstanding -= 1
        self._suspects.discard(number)
        self._is_broken = True
        indices = getattr(self._sent[number], "indices", self._sent[number])
        shown = indices
        if isinstance(indices, list | tuple) and len(indices) > _MOST_SHOWN_INDICES:
            shown = f"{str(list(indices[:_MOST_SHOWN_INDICES]))[:-1]}, …]"
        return RuntimeError(
            f"{_describe_exit(self._workers[min(dead)])} The worker was reading batch {number} of this epoch with the "
            f"indices {shown}. Another worker had already died while reading this batch. Details are lost due to "
            "multiprocessing: read these samples with num_workers=0 to see the error."
        )

    def _start_again(self) -> None:
        """Replace all workers, and send the new workers the requests whose batches have not arrived.

        Workers that are still alive receive the signal to end, as at the end of an epoch.
        """
        self._epoch_state = {name: vars(self)[name] for name in _OF_THE_EPOCH}
        self._shutdown_workers()
        self._restarts += 1
        self._responded = set()
        self._is_broken = False
        seed = (self._base_seed + self._restarts * self._num_workers) % 2**63
        try:
            self._start(replace_sampler_and_generator(self._parts, seed))
        finally:
            self._epoch_state = None

    def _continue_epoch(self) -> None:
        assert self._epoch_state is not None
        self.__dict__.update(self._epoch_state)
        self._workers_status = [True] * self._num_workers
        self._workers_num_tasks = [0] * self._num_workers
        self._worker_queue_idx_cycle = itertools.cycle(range(self._num_workers))
        self._tasks_outstanding = 0
        for number, info in sorted(self._task_info.items()):
            if len(info) == 1:
                self._task_info[number] = (0,)  # PyTorch then counts the batch neither as lost nor as received
            else:
                self._workers_num_tasks[info[0]] += 1
        self._resend = deque(number for number, info in sorted(self._task_info.items()) if len(info) == 1)
        self._is_behind = True
        self._try_put_index()

    def _try_put_index(self) -> None:
        """Send the next request to a worker.

        After the death of a worker, first send again the requests whose batches have not arrived, in the order of the
        batches. Until the dead worker's batches have arrived, send only one request at a time.
        """
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
            worker.join(_SECONDS_TO_DIE)  # a process closes its files shortly before it ends


def _describe_exit(worker: Any) -> str:
    """Return how a worker process ended, in the words of PyTorch's error message."""
    code = worker.exitcode
    if code is not None and code < 0:
        name = signal.strsignal(-code) or f"signal {-code}"
        return f"DataLoader worker (pid {worker.pid}) is killed by signal: {name}."
    return f"DataLoader worker (pid {worker.pid}) exited unexpectedly with exit code {code}."


def _was_raised_by_reading(error: BaseException) -> bool:
    """Return whether code that receives data from a worker raised ``error``."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    name = "" if traceback is None else str(traceback.tb_frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in _RECEIVING_PACKAGES


def _check_processes() -> None:
    """Check that this process can start worker processes and has shared memory for their batches.

    Raises:
        WorkersNotStartedError: this process is not allowed to start processes, or there is no shared memory.
    """
    if multiprocessing.current_process().daemon:
        raise WorkersNotStartedError("daemonic processes are not allowed to have children", None)
    try:
        torch.empty(1, device="cpu").share_memory_()  # type: ignore[no-untyped-call]
    except (RuntimeError, OSError) as error:
        if type(error) is not RuntimeError and getattr(error, "errno", None) not in _REFUSED_PROCESS_ERRORS:
            raise  # a signal handler raised the error
        raise WorkersNotStartedError(f"there is no shared memory: {_reason(error)}", None) from error


def _reason(error: BaseException) -> str:
    """Return the first sentence of an error message without its full stop."""
    return str(error).strip().split("\n", 1)[0].split(". ", 1)[0].rstrip(". ") or type(error).__name__
