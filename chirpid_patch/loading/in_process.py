"""Loading batches in the training process itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from chirpid_patch.data.fetch import Collate
from chirpid_patch.device.accelerator import pinning_device
from chirpid_patch.loading.one_task import TaskLoading
from chirpid_patch.loading.overlap import Overlap
from chirpid_patch.loading.prefetch import PrefetchQueue, PrefetchThreads
from chirpid_patch.loading.tasks import EpochTasks, LoadTask
from chirpid_patch.randomness.as_in_worker import AsInWorker

#: So many tasks more are drawn at once where the sampler's draws do not depend on the moment: between two steps of the
#: training each draw would find the CPU's caches filled with other things.
_DRAWN_AT_ONCE = 15


class InProcessIterator(Iterator[Any]):
    """One epoch loaded in this process, by threads of it that load ahead where ``overlap`` says so.

    ``ahead`` index batches are kept drawn in advance, as a loader with workers keeps them; 0 draws each
    when it is needed, except that threads may draw a whole epoch of ``free_tasks`` tasks ahead where the sampler's
    draws do not depend on the moment (0: they do). ``as_in_worker`` is given where the original ran user code in
    workers; such code is never run in threads, so ``overlap`` must be None then.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Collate,
        tasks: EpochTasks,
        *,
        length: Callable[[], int],
        ahead: int,
        free_tasks: int,
        pin: bool,
        as_in_worker: AsInWorker | None,
        overlap: Overlap | None,
        threads: Callable[[int], PrefetchThreads],
    ) -> None:
        self._loading = TaskLoading(dataset, collate)
        #: What is loaded, and what of it is still owed.
        self.tasks = tasks
        self._first: tuple[int, Any] | None = None
        self._length = length
        self._draws_ahead = ahead > 0
        self._free_tasks = free_tasks
        self._pin = pinning_device() if pin else None
        self._as_in_worker = as_in_worker
        self._surroundings = as_in_worker or nullcontext
        self._overlap = overlap
        self._threads = threads
        self._queue: PrefetchQueue | None = None
        while len(tasks.owed) < ahead and self._draw():
            pass
        if overlap is not None:
            overlap.begin_epoch()

    def _draw(self) -> bool:
        return next(self.tasks, None) is not None

    def __len__(self) -> int:
        return self._length()

    def __next__(self) -> Any:
        if not torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
            return self._next()
        # The name under which profilers show the wait for PyTorch's own loader, with our class in it.
        with torch.autograd.profiler.record_function("enumerate(DataLoader)#BatchedDataLoader.__next__"):
            return self._next()

    def _next(self) -> Any:
        if not self.tasks.owed and not self._draw():
            raise StopIteration
        if len(self.tasks.owed) == 1 and not self._draws_ahead:
            self._is_drawn(_DRAWN_AT_ONCE)  # or as many as the epoch, or the sampler, allows
        batch = self._load_here() if self._overlap is None else self._load_ahead(self._overlap)
        return batch if self._pin is None else pin_memory(batch, self._pin)  # type: ignore[no-untyped-call]

    def _load_here(self) -> Any:
        task = self._next_task()
        first, self._first = self._first, None
        if first is not None and first[0] == task.number:
            return first[1]
        with self._surroundings():
            return self._loading.load(task)

    @property
    def has_drawn(self) -> bool:
        """Whether what was last read has drawn random numbers; False where nobody looked."""
        return self._as_in_worker is not None and self._as_in_worker.has_drawn

    def load_first(self) -> None:
        """Load the next batch without delivering it: it stays owed, and no index is drawn but its own."""
        if self.tasks.owed or self._draw():
            with self._surroundings():
                self._first = self.tasks.owed[0].number, self._loading.load(self.tasks.owed[0])

    def read_samples(self, count: int) -> list[float]:
        """Read the first ``count`` samples of the next batch for nothing but the seconds that each takes."""
        seconds: list[float] = []
        if self.tasks.owed or self._draw():
            task = self.tasks.owed[0]
            for position in range(min(count, len(task.indices)) if task.is_batch else 0):
                begun = time.perf_counter()
                with self._surroundings():
                    self._loading.samples(task, range(position, position + 1))
                seconds.append(time.perf_counter() - begun)
        return seconds

    def _next_task(self) -> LoadTask:
        task = self.tasks.owed.popleft()
        if self._draws_ahead:
            self._draw()
        return task

    def _load_ahead(self, overlap: Overlap) -> Any:
        overlap.asked()
        queue = self._queue
        usable = queue is not None and (len(queue) > 0 or (queue.at_work and queue.threads == overlap.threads))
        if overlap.threads and not usable:
            queue = self._queue = PrefetchQueue(self._threads(overlap.threads), self._loading)
        if queue is not None and not len(queue) and overlap.threads and not queue.reads_at_once(self.tasks.owed[0]):
            self._order(queue, 0.0)
        if queue is None or not len(queue):
            batch, threads = self._load_here(), 0  # also the first of an epoch: no thread could have it sooner
        else:
            self._next_task()
            batch, threads = queue.take(), queue.threads
        if queue is not None and overlap.threads == queue.threads:
            self._order(queue, overlap.pause)
        overlap.delivered(threads)
        return batch

    def _order(self, queue: PrefetchQueue, pause: float) -> None:
        """Order as many tasks as keep the threads at work."""
        while queue.wants_more and self._is_drawn(len(queue)):
            queue.order(self.tasks.owed[len(queue)], pause)

    def _is_drawn(self, position: int) -> bool:
        """Whether the task that many places after the next one is drawn, or may be, and now is."""
        while len(self.tasks.owed) <= position:
            # Short of the epoch's end: what a sampler does there happens when the loop gets there.
            if self.tasks.drawn >= self._free_tasks or not self._draw():
                return False
        return True

    def __del__(self) -> None:
        if self._queue is not None:
            self._queue.drop()
