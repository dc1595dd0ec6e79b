"""Threads of this process that load batches before the training requests them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from chirpid_patch.datasets.dataset_state import state_fingerprint
from chirpid_patch.datasets.gather import is_in_memory
from chirpid_patch.loading.batch_reader import BatchReader
from chirpid_patch.loading.batch_requests import BatchRequest

#: A batch is divided into this many parts for each thread. With small parts, no thread is idle for long.
_PARTS_PER_THREAD = 2


def _current_modes() -> tuple[bool, bool]:
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


class PrefetchThreads:
    """A pool of ``count`` threads that load batches. In each thread, PyTorch computes on one CPU.

    Attributes:
        are_refused: whether the threads refused a call, for example because the system starts no more threads, or
            because the interpreter is exiting.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._process = os.getpid()
        self._closed = self.are_refused = False
        here = torch.get_num_threads()
        all_there = threading.Barrier(count + 1)
        self._executor = ThreadPoolExecutor(count, "chirpid-prefetch", _begin_thread, (all_there,))
        if any(self.submit(int).cancelled() for _ in range(count)):
            all_there.abort()
            self.close(wait=True)
        else:
            all_there.wait()
        # A new thread inherits the number of compute threads that was set last in any thread, so this line sets the
        # number of this thread again.
        torch.set_num_threads(here)

    @property
    def exist_in_this_process(self) -> bool:
        """Return whether the threads exist in this process.

        In a forked process, the threads do not exist, and locks that the threads held stay locked.
        """
        return self._process == os.getpid()

    @property
    def accepts_work(self) -> bool:
        """Return whether the threads accept work."""
        return not self._closed and self.exist_in_this_process

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Run ``call`` in a thread, and return the future of its result.

        If the threads accept no more work, the future is cancelled.
        """
        try:
            return self._executor.submit(call)
        except RuntimeError:
            self._closed = self.are_refused = True
            refused: Future[Any] = Future()
            refused.cancel()
            return refused

    def close(self, *, wait: bool) -> None:
        """End the threads after their current batches, and drop the work that has not begun.

        Args:
            wait: whether to wait until the threads have ended. Pass False if the garbage collector may be the caller.
                The garbage collector can run while the current thread holds a lock for which the threads wait. In this
                case, waiting for the threads would never end.
        """
        self._closed = True
        if self.exist_in_this_process:
            self._executor.shutdown(wait=wait, cancel_futures=True)


def _begin_thread(all_there: threading.Barrier) -> None:
    torch.get_num_threads()  # the first call in a thread overwrites the number that is set below
    torch.set_num_threads(1)
    with suppress(threading.BrokenBarrierError):  # another thread could not be started
        all_there.wait()


class ReusedThreads:
    """The threads of a loader, which all epochs share.

    New threads in each epoch would be slow at first, because the system must first provide memory for each new thread.
    """

    def __init__(self) -> None:
        self._threads: PrefetchThreads | None = None

    def get(self, count: int) -> PrefetchThreads:
        """Return a pool of ``count`` threads, and start the pool if necessary.

        If starting a pool of this size failed before, return the failed pool, and do not try again.
        """
        threads = self._threads
        if (
            threads is None
            or threads.count != count
            or not (threads.accepts_work or (threads.exist_in_this_process and threads.are_refused))
        ):
            self.close(wait=False)
            threads = self._threads = PrefetchThreads(count)
        return threads

    def close(self, *, wait: bool) -> None:
        """End the threads, as ``PrefetchThreads.close`` does. The next call of ``get`` starts new threads."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close(wait=wait)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close(wait=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return ReusedThreads, ()


class PrefetchQueue:
    """A queue of requests. Threads load the batches, and the queue returns the batches in the order of the requests.

    The batches are the same as without threads. So the queue loads a batch of an in-memory dataset again if the dataset
    has changed since a thread loaded the batch. The queue also loads a batch again if the loop has switched gradient
    mode or inference mode since the batch was requested.
    """

    def __init__(self, threads: PrefetchThreads, reader: BatchReader) -> None:
        self._threads = threads
        self._reader = reader
        self._ordered: deque[_QueuedRequest] = deque()

    def __len__(self) -> int:
        return len(self._ordered)

    @property
    def threads(self) -> int:
        """Return the number of threads."""
        return self._threads.count

    def reads_at_once(self, request: BatchRequest) -> bool:
        """Return whether one thread reads the batch of ``request``; False if several threads each read a part."""
        return not self._reader.parts(request, 1)

    @property
    def accepts_work(self) -> bool:
        """Return whether the threads accept work."""
        return self._threads.accepts_work

    @property
    def needs_requests(self) -> bool:
        """Return whether the queue needs more requests to keep all threads busy."""
        ordered = self._ordered
        if not self.accepts_work:
            return False
        if ordered and ordered[-1].parts:
            return len(ordered) < 2 or sum(len(order.parts) for order in ordered) < _PARTS_PER_THREAD * self.threads
        return len(ordered) < self.threads

    def append(self, request: BatchRequest, pause: float = 0.0) -> None:
        """Append ``request`` to the queue.

        If the samples can be read with separate calls, several threads each read a part of the batch. Otherwise one
        thread reads the whole batch. This thread first waits for ``pause`` seconds, in which the training loop can run
        Python code.
        """
        modes = _current_modes()
        ranges = self._reader.parts(request, _PARTS_PER_THREAD * self.threads)
        parts = [self._submit(modes, 0.0, partial(self._reader.samples, request, part)) for part in ranges]
        # Threads begin the oldest work first. So when a thread begins to join the parts of a batch, threads have begun
        # to read all parts.
        load = partial(self._collate_parts, parts) if parts else partial(self._reader.read, request)
        self._ordered.append(_QueuedRequest(request, parts, self._submit(modes, pause, load)))

    def _submit(self, modes: tuple[bool, bool], pause: float, load: Callable[[], Any]) -> Future[Any]:
        return self._threads.submit(partial(self._load_there, modes, pause, load))

    def _load_there(self, modes: tuple[bool, bool], pause: float, load: Callable[[], Any]) -> tuple[Any, Any]:
        if pause:
            time.sleep(pause)
        grad, inference = modes
        with torch.inference_mode(inference), torch.set_grad_enabled(grad and not inference):
            return (modes, self._state()), load()

    def _state(self) -> object:
        """Return the state of the loader's dataset, to detect changes; None if the dataset is not in memory.

        With None, the queue detects no changes. Loading a batch of such a dataset again could have side effects.
        """
        dataset = self._reader.dataset
        return state_fingerprint(dataset) if is_in_memory(dataset) else None

    def _collate_parts(self, parts: Sequence[Future[Any]]) -> Any:
        return self._reader.collate([sample for part in parts for sample in part.result()[1]])

    def take(self) -> Any:
        """Remove the first request from the queue, and return its batch.

        Raises:
            IndexError: the queue is empty.
            Exception: any error that reading the batch raises.
        """
        order = self._ordered.popleft()
        if not self._threads.exist_in_this_process:
            return self._reader.read(order.request)
        try:
            loaded_from, batch = order.batch.result()
        except CancelledError:  # the threads ended before they read this batch
            return self._reader.read(order.request)
        except Exception:
            if not is_in_memory(self._reader.dataset):
                raise
            # Reading again raises the same error, unless the dataset changed while the thread read it.
            return self._reader.read(order.request)
        now = _current_modes(), self._state()
        if loaded_from != now or any(part.result()[0] != now for part in order.parts):
            return self._reader.read(order.request)
        return batch

    def drop(self) -> None:
        """Remove all requests. Threads finish the batches that they are reading, but these batches are not used."""
        while self._ordered and self._threads.exist_in_this_process:
            order = self._ordered.popleft()
            for future in (*order.parts, order.batch):
                future.cancel()


@dataclass(frozen=True)
class _QueuedRequest:
    """A request in the queue. ``batch`` is the future of the loaded batch.

    If several threads each read a part of the batch, ``parts`` contains the futures of the parts. Otherwise ``parts``
    is empty.
    """

    request: BatchRequest
    parts: list[Future[Any]]
    batch: Future[Any]
