"""Threads that load batches ahead of the training."""

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

from chirpid_patch.datasets.dataset_state import dataset_state
from chirpid_patch.datasets.gather import is_in_memory
from chirpid_patch.loading.batch_reader import BatchReader
from chirpid_patch.loading.batch_requests import BatchRequest

#: Number of parts of a request for each thread, so that no thread is idle for long at the end.
_PARTS_PER_THREAD = 2


def _current_modes() -> tuple[bool, bool]:
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


class PrefetchThreads:
    """``count`` threads of this process that load batches, each computing on one CPU.

    Attributes:
        are_refused: whether the system starts no more threads, or the interpreter is exiting and accepts no more work.
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
        # Each thread has its own number of compute threads, but new threads inherit the last number set.
        torch.set_num_threads(here)

    @property
    def exist(self) -> bool:
        """Return whether this process has the threads.

        A forked copy has no threads, and their locks stay locked there.
        """
        return self._process == os.getpid()

    @property
    def at_work(self) -> bool:
        """Return whether the threads accept work."""
        return not self._closed and self.exist

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Run ``call`` on one of the threads; return a cancelled future if the threads accept no more work."""
        try:
            return self._executor.submit(call)
        except RuntimeError:
            self._closed = self.are_refused = True
            refused: Future[Any] = Future()
            refused.cancel()
            return refused

    def close(self, *, wait: bool) -> None:
        """Drop waiting work and end the threads, which finish their current batches; ``wait`` waits for that.

        Pass ``wait=False`` if garbage collection may be the caller: it can run anywhere, with any lock held.
        """
        self._closed = True
        if self.exist:
            self._executor.shutdown(wait=wait, cancel_futures=True)


def _begin_thread(all_there: threading.Barrier) -> None:
    torch.get_num_threads()  # the first use copies the common number to this thread: do it now
    torch.set_num_threads(1)
    with suppress(threading.BrokenBarrierError):  # others could not be started
        all_there.wait()


class KeptThreads:
    """The threads of one loader, kept from epoch to epoch, because the memory of new threads is slow at first."""

    def __init__(self) -> None:
        self._threads: PrefetchThreads | None = None

    def get(self, count: int) -> PrefetchThreads:
        """Return ``count`` threads; if the system once refused threads, do not try again for this loader."""
        threads = self._threads
        if (
            threads is None
            or threads.count != count
            or not (threads.at_work or (threads.exist and threads.are_refused))
        ):
            self.close(wait=False)
            threads = self._threads = PrefetchThreads(count)
        return threads

    def close(self, *, wait: bool) -> None:
        """End the threads (see ``PrefetchThreads.close``); the next ``get`` starts new threads."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close(wait=wait)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close(wait=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptThreads, ()


class PrefetchQueue:
    """Requests that threads read, and their batches in the order of the requests.

    Each batch has the values that it would have if it were read only when the loop takes it: from the dataset as it is
    then, and in the gradient and inference mode of the caller. A batch that was loaded in another mode, or from
    memory before the dataset changed, is loaded again.
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
        """Return whether one thread loads ``request``."""
        return not self._reader.parts(request, 1)

    @property
    def at_work(self) -> bool:
        """Return whether the threads accept work."""
        return self._threads.at_work

    @property
    def wants_more(self) -> bool:
        """Return whether there are too few requests to keep all threads at work."""
        ordered = self._ordered
        if not self.at_work:
            return False
        if ordered and ordered[-1].parts:
            return len(ordered) < 2 or sum(len(order.parts) for order in ordered) < _PARTS_PER_THREAD * self.threads
        return len(ordered) < self.threads

    def order(self, request: BatchRequest, pause: float = 0.0) -> None:
        """Read ``request`` after ``pause`` seconds; read it now and in parts if its samples are read one by one."""
        modes = _current_modes()
        ranges = self._reader.parts(request, _PARTS_PER_THREAD * self.threads)
        parts = [self._submit(modes, 0.0, partial(self._reader.samples, request, part)) for part in ranges]
        # Threads take the oldest request first: all parts of a batch have begun when the batch itself begins.
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
        """Return the state on which samples in memory depend.

        Other samples are read once, in the way worker processes read them.
        """
        dataset = self._reader.dataset
        return dataset_state(dataset) if is_in_memory(dataset) else None

    def _collate_parts(self, parts: Sequence[Future[Any]]) -> Any:
        return self._reader.collate([sample for part in parts for sample in part.result()[1]])

    def take(self) -> Any:
        """Return the batch of the first request; raise the error of reading it, or IndexError without a request."""
        order = self._ordered.popleft()
        if not self._threads.exist:
            return self._reader.read(order.request)
        try:
            loaded_from, batch = order.batch.result()
        except CancelledError:  # the threads were closed before this request, or accept no more requests
            return self._reader.read(order.request)
        except Exception:
            if not is_in_memory(self._reader.dataset):
                raise
            # Raises the same error, unless the dataset was changed at that moment.
            return self._reader.read(order.request)
        now = _current_modes(), self._state()
        if loaded_from != now or any(part.result()[0] != now for part in order.parts):
            return self._reader.read(order.request)
        return batch

    def drop(self) -> None:
        """Drop all requests; the threads finish requests that they have begun, and the results are not used."""
        while self._ordered and self._threads.exist:
            order = self._ordered.popleft()
            for future in (*order.parts, order.batch):
                future.cancel()


@dataclass(frozen=True)
class _QueuedRequest:
    """A queued request: the parts of its samples, if it is read in parts, and its batch."""

    request: BatchRequest
    parts: list[Future[Any]]
    batch: Future[Any]
