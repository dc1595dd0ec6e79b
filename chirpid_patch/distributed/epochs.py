"""The epochs of one rank's loader: all randomness follows from seed, epoch and rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DistributedSampler

from chirpid_patch.randomness.keyed_random import fold_in


class RankEpochs:
    """Numbers and seeds the epochs of one rank's ``BatchedDataLoader``, as its argument ``epochs``.

    The epoch is that of the loader's ``sampler``, a ``torch.utils.data.DistributedSampler``. It increases automatically
    when the loop requests a second batch. So ``next(iter(loader))`` alone counts no epoch, and a rank that alone makes
    this call stays in the same epoch as the other ranks. ``sampler.set_epoch`` sets the next epoch; a resumed run needs
    no other call. Between epochs, ``sampler.epoch`` is the next epoch.

    The order of samples follows from seed and epoch. Augmentation and the seeds of workers also follow from the rank,
    so no two ranks share random numbers. Neither uses the global generators. Code of the dataset that uses global
    generators in workers continues from epoch to epoch with ``persistent_workers``, as in PyTorch, and restarts in a
    resumed run; the package's own augmentation does not.
    """

    def __init__(self, seed: int, rank: int) -> None:
        self.seed = seed
        self.rank = rank

    def attach(self, loader: Any) -> None:
        """Prepare for ``loader`` during its construction; raise TypeError without a ``DistributedSampler``."""
        if not isinstance(loader.sampler, DistributedSampler):
            kind = type(loader.sampler).__name__
            raise TypeError(f"the sampler of one rank must be a DistributedSampler, not {kind}")
        if loader.generator is None:
            loader.generator = torch.Generator()

    def begin(self, loader: Any) -> int:
        """Return the number of the new epoch, and seed the generator of ``loader`` for it."""
        epoch = int(loader.sampler.epoch)
        # Persistent workers have a single base seed; only the keys distinguish the epochs.
        words = (self.seed, self.rank) if loader.persistent_workers else (self.seed, self.rank, epoch)
        loader.generator.manual_seed(int(fold_in(np.zeros(1, dtype=np.uint64), *words)[0]))
        return epoch

    def count(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the ``batches`` of the epoch, and count the epoch at the second request."""
        return _CountedEpoch(batches, loader.sampler)

    def number(self, loader: Any) -> int:
        """Return the number of the next epoch."""
        return int(loader.sampler.epoch)

    def go_on(self, loader: Any, number: int) -> None:
        """Set the number of the next epoch."""
        loader.sampler.set_epoch(number)


class _CountedEpoch(Iterator[Any]):
    """Yields batches, and moves the sampler to the next epoch when the loop requests the second batch."""

    def __init__(self, batches: Iterator[Any], sampler: DistributedSampler[Any]) -> None:
        self._batches = batches
        self._sampler = sampler
        self._epoch = sampler.epoch
        self._asked = 0

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        self._asked += 1
        # The order of this epoch is drawn already. Another number in the sampler was set by the caller.
        if self._asked == 2 and self._sampler.epoch == self._epoch:
            self._sampler.set_epoch(self._epoch + 1)
        return next(self._batches)
