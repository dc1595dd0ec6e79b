"""Threads that load batches ahead of the training."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from chirpid_patch.data.dataset_state import dataset_state
from chirpid_patch.loading.one_task import TaskLoading
from chirpid_patch.loading.tasks import LoadTask

#: A task's samples are read in so many parts for each thread, so that none is idle for long at its end.
_PARTS_PER_THREAD = 2


def _modes() -> tuple[bool, bool]:
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


class PrefetchThreads:
    """``count`` threads of this process that load batches, each computing on one CPU."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._process = os.getpid()
        self._closed = False
        here = torch.get_num_threads()
        all_there = threading.Barrier(count + 1)
        self._executor = ThreadPoolExecutor(count, "chirpid-prefetch", _begin_thread, (all_there,))
        for _ in range(count):
            self._executor.submit(int)
        all_there.wait()
        # The number of compute threads is each thread's own, but threads still to come inherit the last one set.
        torch.set_num_threads(here)

    @property
    def at_work(self) -> bool:
        """Whether they take orders: not once closed, nor in a forked copy of the process, which has no threads."""
        return not self._closed and self._process == os.getpid()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Have ``call`` made on one of the threads."""
        return self._executor.submit(call)

    def close(self, *, wait: bool) -> None:
        """Drop what has not begun and end the threads, which finish the batches being loaded; ``wait`` for that.

        Never wait where garbage collection may be the caller: it can run anywhere, with any lock held.
        """
        self._closed = True
        self._executor.shutdown(wait=wait, cancel_futures=True)


def _begin_thread(all_there: threading.Barrier) -> None:
    torch.get_num_threads()  # a thread's first use of its number takes over the common one: let that be now
    torch.set_num_threads(1)
    all_there.wait()


class PrefetchQueue:
    """Tasks being loaded on threads, their batches taken in the order they were ordered.

    A batch is what loading its task gives where it is taken: with the gradient and inference mode the taker is in, and
    from the dataset as it is then. One that was loaded in another mode, or before the dataset changed, is loaded
    again.
    """

    def __init__(self, threads: PrefetchThreads, loading: TaskLoading) -> None:
        self._threads = threads
        self._loading = loading
        self._ordered: deque[_Order] = deque()

    def __len__(self) -> int:
        return len(self._ordered)

    @property
    def threads(self) -> int:
        """How many threads load."""
        return self._threads.count

    def reads_at_once(self, task: LoadTask) -> bool:
        """Whether ``task`` is loaded by one thread."""
        return not self._loading.parts(task, 1)

    @property
    def at_work(self) -> bool:
        """Whether the threads take orders."""
        return self._threads.at_work

    @property
    def wants_more(self) -> bool:
        """Whether the tasks ordered are too few to keep all threads at work."""
        ordered = self._ordered
        if not self.at_work:
            return False
        if ordered and ordered[-1].parts:
            return len(ordered) < 2 or sum(len(order.parts) for order in ordered) < _PARTS_PER_THREAD * self.threads
        return len(ordered) < self.threads

    def order(self, task: LoadTask, pause: float = 0.0) -> None:
        """Have ``task`` loaded, after ``pause`` seconds, or at once and in parts where its samples are read singly."""
        modes = _modes()
        ranges = self._loading.parts(task, _PARTS_PER_THREAD * self.threads)
        parts = [self._submit(modes, 0.0, partial(self._loading.samples, task, part)) for part in ranges]
        # Threads take what was ordered first: all parts have been begun when their batch is.
        load = partial(self._collated, parts) if parts else partial(self._loading.load, task)
        self._ordered.append(_Order(task, parts, self._submit(modes, pause, load)))

    def _submit(self, modes: tuple[bool, bool], pause: float, load: Callable[[], Any]) -> Future[Any]:
        return self._threads.submit(partial(self._load_there, modes, pause, load))

    def _load_there(self, modes: tuple[bool, bool], pause: float, load: Callable[[], Any]) -> tuple[Any, Any]:
        if pause:
            time.sleep(pause)
        grad, inference = modes
        with torch.inference_mode(inference), torch.set_grad_enabled(grad and not inference):
            state = dataset_state(self._loading.dataset)
            return (modes, state), load()

    def _collated(self, parts: Sequence[Future[Any]]) -> Any:
        return self._loading.collate([sample for part in parts for sample in part.result()[1]])

    def take(self) -> Any:
        """The batch of the task ordered first. Raises what loading it raised, and IndexError if none was ordered."""
        order = self._ordered.popleft()
        try:
            loaded_from, batch = order.batch.result()
        except CancelledError:  # the threads were closed before they came to it
            return self._loading.load(order.task)
        now = _modes(), dataset_state(self._loading.dataset)
        if loaded_from != now or any(part.result()[0] != now for part in order.parts):
            return self._loading.load(order.task)
        return batch

    def drop(self) -> None:
        """Forget what was ordered; what has begun is finished for nothing."""
        while self._ordered:
            order = self._ordered.popleft()
            for future in (*order.parts, order.batch):
                future.cancel()


@dataclass(frozen=True)
class _Order:
    """A task on its way: parts of its samples, if it is read in parts, and its batch."""

    task: LoadTask
    parts: list[Future[Any]]
    batch: Future[Any]
