"""Loading batches in the training process itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from chirpid_patch.accelerator import pinning_device
from chirpid_patch.fetch import Collate, load_batch
from chirpid_patch.separate_random import SeparateRandomness
from chirpid_patch.tasks import EpochTasks, LoadTask


class InProcessIterator(Iterator[Any]):
    """One epoch loaded in this process.

    ``ahead`` index batches are kept drawn in advance, as a loader with workers keeps them; 0 draws each
    when it is needed. ``randomness`` is given where the original ran user code in workers.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Collate,
        tasks: EpochTasks,
        *,
        length: Callable[[], int],
        ahead: int,
        pin: bool,
        randomness: SeparateRandomness | None,
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._tasks = tasks
        self._length = length
        self._draws_ahead = ahead > 0
        self._pin = pinning_device() if pin else None
        self._randomness = randomness
        while len(tasks.owed) < ahead and self._draw():
            pass

    def _draw(self) -> bool:
        return next(self._tasks, None) is not None

    def __len__(self) -> int:
        return self._length()

    def __next__(self) -> Any:
        # The name under which profilers show the wait for PyTorch's own loader, with our class in it.
        with torch.autograd.profiler.record_function("enumerate(DataLoader)#BatchedDataLoader.__next__"):
            if not self._tasks.owed and not self._draw():
                raise StopIteration
            task = self._tasks.owed.popleft()
            if self._draws_ahead:
                self._draw()
            with self._user_randomness():
                batch = load_task(self._dataset, task, self._collate)
            return batch if self._pin is None else pin_memory(batch, self._pin)  # type: ignore[no-untyped-call]

    def _user_randomness(self) -> AbstractContextManager[None]:
        return nullcontext() if self._randomness is None else self._randomness()


def load_task(dataset: Any, task: LoadTask, collate: Collate) -> Any:
    """The batch of one task, or the single converted sample where automatic batching is off."""
    if task.is_batch:
        return load_batch(dataset, task.indices, task.key, collate)
    return collate(dataset[task.indices])
