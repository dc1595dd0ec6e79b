"""Loading batches in the training process itself."""

from __future__ import annotations

from collections import deque
from typing import Any

from chirpid_patch.loading.adjusting import LoadController
from chirpid_patch.loading.batch_reader import BatchReader
from chirpid_patch.loading.batch_requests import EpochRequests, Request
from chirpid_patch.loading.loader_parts import LoaderParts, quiet
from chirpid_patch.loading.pinning import pin_what_can_be
from chirpid_patch.loading.prefetch_threads import KeptThreads, PrefetchQueue
from chirpid_patch.loading.samplers import tasks_drawn_freely
from chirpid_patch.torch_private import SingleProcessIterator, pin_batch, profiler_enabled


class InProcessIterator(SingleProcessIterator):  # type: ignore[misc]
    """An epoch of a loader, read in this process: PyTorch's own iterator, which draws as the original's would have.

    ``ahead`` index batches are kept drawn in advance, as a loader with workers keeps them; 0 draws each when it is
    needed, except for threads, where the sampler's draws do not depend on the moment. ``reader`` reads batches as a
    whole; None has PyTorch's code read the samples.
    ``controller`` says how many threads of ``threads`` load ahead; None: none may.

    ``seed`` is the base seed where it was drawn before: then nothing more is drawn than for a next epoch.
    ``pins_own``: batches are the loader's own memory, and pinned where that is possible.
    """

    def __init__(
        self,
        loader: Any,
        parts: LoaderParts,
        *,
        reader: BatchReader | None,
        ahead: int,
        controller: LoadController | None,
        threads: KeptThreads,
        seed: int | None = None,
        pins_own: bool = False,
    ) -> None:
        self._reader = reader
        self._pins_own = pins_own
        self._ahead = ahead
        self._parts = parts
        self._free: int | None = None
        self._controller = controller
        self._threads = threads
        self._queue: PrefetchQueue | None = None
        super().__init__(parts if seed is None else quiet(parts, seed))
        if seed is not None:
            self._base_seed, self._index_sampler = seed, parts._index_sampler
        self._begin(loader, ask_again=ahead > 0 or seed is not None)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """The next epoch of a loader that keeps its iterator, as one with persistent workers does."""
        self._drop_queue()
        self._begin(loader, ask_again=True)

    def _begin(self, loader: Any, *, ask_again: bool) -> None:
        kept_drawn = range(self._ahead)  # refuses a part of a worker, as starting it would
        if ask_again:  # an iterator with workers asks its sampler twice, and once more for each epoch it is kept
            super()._reset(loader)
        self._requests: EpochRequests = loader._epoch_requests(self._base_seed)
        self._undelivered: deque[Request] = deque()
        self._free = None
        self._requests.skip(self._sampler_iter)
        for _ in kept_drawn:
            if not self._draw():
                break
        if self._controller is not None:
            self._controller.begin_epoch()

    @property
    def taken(self) -> int:
        """Batches of this epoch that the loop was given, or that failed."""
        return self._requests.drawn - len(self._undelivered)

    @property
    def ended(self) -> bool:
        """Whether the epoch is surely over."""
        return self._requests.exhausted and not self._undelivered

    def _draw(self) -> bool:
        try:
            self._undelivered.append(self._requests.draw(self._sampler_iter))
        except StopIteration:
            return False
        return True

    def __next__(self) -> Any:
        if profiler_enabled():
            return super().__next__()  # which opens a range for the profiler, whether or not one runs
        batch = self._next_data()
        self._num_yielded += 1
        return batch

    def _next_data(self) -> Any:
        if not self._undelivered and not self._draw():
            raise StopIteration
        batch = self._read_here() if self._controller is None else self._load_ahead(self._controller)
        if self._pin_memory:
            return pin_batch(batch, self._pin_memory_device)
        return pin_what_can_be(batch) if self._pins_own else batch

    def _read_here(self) -> Any:
        request = self._next_request()
        return self._dataset_fetcher.fetch(request.indices) if self._reader is None else self._reader.read(request)

    def _next_request(self) -> Request:
        request = self._undelivered.popleft()
        if self._ahead:
            self._draw()
        return request

    def _load_ahead(self, controller: LoadController) -> Any:
        assert self._reader is not None
        controller.asked()
        queue, wanted = self._queue, controller.threads
        usable = queue is not None and (len(queue) > 0 or (queue.at_work and queue.threads == wanted))
        if wanted and not usable:
            queue = self._queue = PrefetchQueue(self._threads.get(wanted), self._reader)
        if queue is not None and not len(queue) and wanted and not queue.reads_at_once(self._undelivered[0]):
            self._order(queue, 0.0)
        if queue is None or not len(queue):
            batch, threads = self._read_here(), 0  # also the first of an epoch: no thread could have it sooner
        else:
            self._next_request()
            batch, threads = queue.take(), queue.threads
        if queue is not None and wanted == queue.threads:
            self._order(queue, controller.pause)
        controller.delivered(threads)
        return batch

    def _order(self, queue: PrefetchQueue, pause: float) -> None:
        """Order as many requests as keep the threads at work."""
        while queue.wants_more and self._is_drawn(len(queue)):
            queue.order(self._undelivered[len(queue)], pause)

    def _is_drawn(self, position: int) -> bool:
        """Whether the request that many places after the next one is drawn, or may be, and now is."""
        while len(self._undelivered) <= position:
            # Short of the epoch's end: what a sampler does there happens when the loop gets there.
            if self._free is None:
                self._free = tasks_drawn_freely(self._parts)
            if self._requests.drawn >= self._free or not self._draw():
                return False
        return True

    def _drop_queue(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.drop()

    def __del__(self) -> None:
        self._drop_queue()
