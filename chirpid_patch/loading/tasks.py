"""What is to be loaded in one epoch: batches of indices, each with the key of its randomness."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import index as as_int
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chirpid_patch.loading.slots import Slot
from chirpid_patch.randomness.keyed_random import RandomKey


@dataclass(frozen=True)
class LoadTask:
    """One step of the sampler.

    ``indices`` is the list of a batch's indices, or, where automatic batching is off (``is_batch`` false),
    whatever the sampler gave for one item. ``slots`` is shared memory for the batch, where a worker loads it.
    """

    number: int
    indices: Any
    is_batch: bool
    key: RandomKey | None
    slots: tuple[Slot, ...] = ()


def draw_base_seed(generator: torch.Generator | None) -> int:
    """The draw by which PyTorch's loader seeds its workers, from ``generator`` or the global one."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


class EpochTasks(Iterator[LoadTask]):
    """Draws one epoch's tasks from a running sampler and remembers those not yet delivered, in order."""

    def __init__(self, sampler: Iterator[Any], *, batches: bool, seed: int, epoch: int, rank: int) -> None:
        self._sampler = sampler
        self._batches = batches
        #: The base seed of the epoch, and the state of the generator before it was drawn, where that is known.
        self.seed = seed
        self.seed_state: Tensor | None = None
        self._epoch = epoch
        self._rank = rank
        #: Number of tasks drawn so far.
        self.drawn = 0
        self._seen: dict[int, int] = {}
        self.owed: deque[LoadTask] = deque()
        #: Set when the sampler raises: the error on its way up is the user's, not that of a worker. The error
        #: itself is not kept, for its traceback would keep the processes' queues alive.
        self.failed = False

    def __next__(self) -> LoadTask:
        try:
            indices = next(self._sampler)
        except StopIteration:
            raise
        except BaseException:
            self.failed = True
            raise
        if self._batches and not isinstance(indices, list | tuple):
            indices = list(indices)
        task = LoadTask(self.drawn, indices, self._batches, self._key(indices))
        self.drawn += 1
        self.owed.append(task)
        return task

    def settle(self, number: int) -> None:
        """Strike out the task ``number``: its batch was delivered."""
        self.owed = deque(task for task in self.owed if task.number != number)

    def _key(self, indices: Any) -> RandomKey | None:
        """The key of a batch of integer indices; other indices have none."""
        if not self._batches:
            return None
        try:
            plain = indices if set(map(type, indices)) == {int} else [as_int(index) for index in indices]
            numbers = np.array(plain, dtype=np.int64)
        except (TypeError, OverflowError):
            return None
        return RandomKey(
            self.seed, self._epoch, self._rank, numbers, np.array(self._occurrences(plain), dtype=np.int64)
        )

    def _occurrences(self, indices: Sequence[int]) -> list[int]:
        """How often each index had been drawn before in this epoch."""
        seen = self._seen
        drawn = dict.fromkeys(indices, 1)
        if len(drawn) == len(indices) and seen.keys().isdisjoint(drawn):  # as most samplers have it
            seen.update(drawn)
            return [0] * len(indices)
        occurrences = []
        for index in indices:
            count = seen.get(index, 0)
            occurrences.append(count)
            seen[index] = count + 1
        return occurrences
