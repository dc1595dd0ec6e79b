"""The iterator that loads batches in the main process, with or without threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from chirpid_patch.loading.adjusting import LoadingController
from chirpid_patch.loading.batch_reader import BatchReader
from chirpid_patch.loading.batch_requests import BatchRequest, EpochRequests
from chirpid_patch.loading.loader_parts import LoaderParts
from chirpid_patch.loading.prefetch_threads import PrefetchQueue, ReusedThreads
from chirpid_patch.loading.samplers import batches_to_request_early
from chirpid_patch.torch_private import (
    MultiProcessingIterator,
    SingleProcessIterator,
    has_active_torch_modes,
    profiler_enabled,
)


class EpochReaders(NamedTuple):
    """The functions and objects that read the batches of an epoch.

    Attributes:
        read: PyTorch's function that reads the batch at a list of indices; None if ``reader`` reads the batches.
        reader: object that reads whole batches; None if ``read`` reads the batches.
        controller: object that chooses how many threads load batches in advance; None: no threads.
        pin: function that copies a batch to pinned memory; None: batches are not pinned.
    """

    read: Callable[[Any], Any] | None
    reader: BatchReader | None
    controller: LoadingController | None
    pin: Callable[[Any], Any] | None


class InProcessIterator(SingleProcessIterator):  # type: ignore[misc]
    """The iterator over an epoch of a loader that reads batches in this process.

    The iterator makes the same random calls (calls that draw numbers from a random generator) as PyTorch's iterator.
    The constructors of both iterators perform the same operations in the same order. This iterator does all other work
    later, when the loop requests a batch.

    Args:
        parts: a ``DataLoader`` with the attributes of the user's loader (see ``loader_parts.LoaderParts``).
        epoch: the arguments ``epoch`` and ``skipped`` of ``EpochRequests``.
        find_readers: function that returns the ``EpochReaders`` for the requests of the first epoch.
        ahead: number of requests to draw from the sampler in advance, as a loader with workers does. 0: each request is
            drawn when its batch is needed. If threads load batches in advance, the iterator may draw more requests in
            advance, provided that the random numbers stay the same.
        threads: the threads that load batches in advance.
        seed: base seed; None: the iterator draws the base seed. If ``seed`` is passed, the iterator makes the same
            random calls as PyTorch's iterator in a later epoch with persistent workers.
    """

    def __init__(
        self,
        parts: LoaderParts,
        epoch: tuple[int, int],
        find_readers: Callable[[EpochRequests], EpochReaders],
        *,
        ahead: int,
        threads: ReusedThreads,
        seed: int | None = None,
    ) -> None:
        self._queue: PrefetchQueue | None = None
        self._reading: EpochReaders | None = None
        self._parts = parts
        self._find_readers = find_readers
        self._ahead = ahead
        self._threads = threads
        self._index_sampler = parts._index_sampler
        was_drawn = seed is not None
        if seed is None:
            self._sampler_iter = iter(self._index_sampler)
            seed = int(torch.empty((), dtype=torch.int64).random_(generator=parts.generator).item())
        self._base_seed = seed
        if parts.timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        self._begin(epoch, restart_sampler=ahead > 0 or was_drawn)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin another epoch. PyTorch calls this method for a loader with persistent workers."""
        self._drop_queue()
        self._begin(loader._current_epoch(), restart_sampler=True)

    def _begin(self, epoch: tuple[int, int], *, restart_sampler: bool) -> None:
        kept_drawn = range(self._ahead)  # raises TypeError for a number that is not an integer, as PyTorch does
        if restart_sampler:  # with workers, PyTorch calls iter(sampler) twice, and once for each further epoch
            self._sampler_iter = iter(self._index_sampler)
        self._requests = EpochRequests(self._parts, self._base_seed, *epoch)
        if self._reading is not None and self._reading.controller is not None:
            self._reading.controller.begin_epoch()
        self._undelivered: deque[BatchRequest] = deque()
        self._free: int | None = None
        self._requests.skip(self._sampler_iter)
        for _ in kept_drawn:
            if not self._draw():
                break
        if kept_drawn and self._reading is None:
            # PyTorch's loader would send the dataset to its workers now.
            self._reading = self._find_readers(self._requests)

    @property
    def taken(self) -> int:
        """Return how many batches of this epoch the loop has received, including batches that raised an error."""
        return self._requests.drawn - len(self._undelivered)

    @property
    def ended(self) -> bool:
        """Return whether the sampler is at its end and the loop has received all batches of the epoch."""
        return self._requests.exhausted and not self._undelivered

    def _draw(self) -> bool:
        try:
            self._undelivered.append(self._requests.draw(self._sampler_iter))
        except StopIteration:
            return False
        return True

    def __next__(self) -> Any:
        if profiler_enabled() or has_active_torch_modes():
            kind = MultiProcessingIterator if self._ahead else SingleProcessIterator
            with torch.profiler.record_function(f"enumerate(DataLoader)#{kind.__name__}.__next__"):
                return self._next_data()
        return self._next_data()

    def _next_data(self) -> Any:
        if not self._undelivered and not self._draw():
            raise StopIteration
        reading = self._reading
        if reading is None:
            reading = self._reading = self._find_readers(self._requests)
        read, reader, controller, pin = reading
        if controller is not None and has_active_torch_modes():  # other threads do not have the modes of this thread
            self._drop_queue()
            batch = reader.read(self._next_request())  # type: ignore[union-attr]
        elif controller is not None:
            batch = self._load_ahead(reader, controller)
        elif read is not None:
            batch = read(self._next_request().indices)
        else:
            batch = reader.read(self._next_request())  # type: ignore[union-attr]
        return batch if pin is None else pin(batch)

    def _next_request(self) -> BatchRequest:
        request = self._undelivered.popleft()
        if self._ahead:
            self._draw()
        return request

    def _load_ahead(self, reader: Any, controller: LoadingController) -> Any:
        controller.batch_requested()
        queue, wanted = self._queue, controller.threads
        usable = queue is not None and (len(queue) > 0 or (queue.accepts_work and queue.threads == wanted))
        if wanted and not usable:
            queue = self._queue = PrefetchQueue(self._threads.get(wanted), reader)
        if queue is not None and not len(queue) and wanted and not queue.reads_at_once(self._undelivered[0]):
            self._fill_queue(queue, 0.0)
        if queue is None or not len(queue):
            # This process also reads the first batch of an epoch, because no thread could load it earlier.
            batch, threads = reader.read(self._next_request()), 0
        else:
            self._next_request()
            batch, threads = queue.take(), queue.threads
        if queue is not None and wanted == queue.threads:
            self._fill_queue(queue, controller.pause)
        controller.batch_delivered(threads)
        return batch

    def _fill_queue(self, queue: PrefetchQueue, pause: float) -> None:
        """Append requests to ``queue`` until all threads have work.

        A thread waits for ``pause`` seconds before it loads a batch.
        """
        while queue.needs_requests and self._is_drawn(len(queue)):
            queue.append(self._undelivered[len(queue)], pause)

    def _is_drawn(self, position: int) -> bool:
        """Return whether ``_undelivered[position]`` exists, so that a thread can begin to load its batch.

        If the request is missing, the method first draws the requests up to ``position`` from the sampler, provided
        that the random numbers stay the same.
        """
        while len(self._undelivered) <= position:
            # A sampler may make random calls at its end, so the end of the sampler is not reached early.
            if self._free is None:
                self._free = batches_to_request_early(self._parts)
            if self._requests.drawn >= self._free or not self._draw():
                return False
        return True

    def _drop_queue(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.drop()

    def __del__(self) -> None:
        self._drop_queue()
