"""Threads that load batches ahead of the training."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from chirpid_patch.dataset_state import dataset_state
from chirpid_patch.tasks import LoadTask


def _modes() -> tuple[bool, bool]:
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


class PrefetchThreads:
    """``count`` threads of this process that load batches, each computing on one CPU."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._process = os.getpid()
        here = torch.get_num_threads()
        all_there = threading.Barrier(count + 1)
        self._executor = ThreadPoolExecutor(count, "chirpid-prefetch", _begin_thread, (all_there,))
        for _ in range(count):
            self._executor.submit(int)
        all_there.wait()
        # The number of compute threads is each thread's own, but threads still to come inherit the last one set.
        torch.set_num_threads(here)

    @property
    def are_here(self) -> bool:
        """Whether this process has the threads; a forked copy of it has not."""
        return self._process == os.getpid()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Have ``call`` made on one of the threads."""
        return self._executor.submit(call)

    def close(self, *, wait: bool) -> None:
        """Drop what has not begun and end the threads, which finish the batches being loaded; ``wait`` for that.

        Never wait where garbage collection may be the caller: it can run anywhere, with any lock held.
        """
        self._executor.shutdown(wait=wait, cancel_futures=True)


def _begin_thread(all_there: threading.Barrier) -> None:
    torch.get_num_threads()  # a thread's first use of its number takes over the common one: let that be now
    torch.set_num_threads(1)
    all_there.wait()


class PrefetchQueue:
    """Tasks being loaded on threads, their batches taken in the order they were ordered.

    A batch is what ``load(task)`` gives where it is taken: with the gradient and inference mode the taker is in, and
    from the dataset as it is then. One that was loaded in another mode, or before the dataset changed, is loaded
    again.
    """

    def __init__(self, threads: PrefetchThreads, load: Callable[[LoadTask], Any], dataset: Any) -> None:
        self._threads = threads
        self._load = load
        self._dataset = dataset
        self._ordered: deque[tuple[LoadTask, Future[tuple[Any, Any]]]] = deque()

    def __len__(self) -> int:
        return len(self._ordered)

    @property
    def threads(self) -> int:
        """How many threads load."""
        return self._threads.count

    def order(self, task: LoadTask) -> None:
        """Have ``task`` loaded."""
        self._ordered.append((task, self._threads.submit(partial(self._load_there, task, _modes()))))

    def _load_there(self, task: LoadTask, modes: tuple[bool, bool]) -> tuple[Any, Any]:
        grad, inference = modes
        with torch.inference_mode(inference), torch.set_grad_enabled(grad and not inference):
            state = dataset_state(self._dataset)
            return (modes, state), self._load(task)

    def take(self) -> Any:
        """The batch of the task ordered first. Raises what loading it raised, and IndexError if none was ordered."""
        task, future = self._ordered.popleft()
        loaded_from, batch = future.result()
        if loaded_from != (_modes(), dataset_state(self._dataset)):
            return self._load(task)
        return batch

    def drop(self) -> None:
        """Forget what was ordered; what has begun is finished for nothing."""
        while self._ordered:
            self._ordered.popleft()[1].cancel()
