"""Epoch numbers and seeds for the loader of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DistributedSampler

from chirpid_patch.randomness.keyed_random import hash_into_keys


class RankEpochs:
    """Count the epochs of one rank's loader, and seed the random numbers of each epoch.

    Pass this object to ``BatchedDataLoader`` as ``epochs``.

    The number of the epoch is the attribute ``epoch`` of the loader's ``torch.utils.data.DistributedSampler``. The
    number increases when the loop requests the second batch of an epoch. So if only one of the ranks calls
    ``next(iter(loader))``, this call does not count as an epoch, and all ranks keep the same number. If an epoch has
    only one batch, the number increases at the end of the loop. Between epochs, ``sampler.epoch`` is the number of the
    next epoch. To resume a training, a program only has to call ``sampler.set_epoch``.

    The epoch and the seed of the sampler determine the order of the samples. ``seed``, ``rank`` and the epoch determine
    the augmentation and the seeds of the workers, so different ranks have different random numbers. Order, augmentation
    and seeds do not depend on the global generators.

    With ``persistent_workers``, the seeds of the workers do not depend on the epoch, and the global generators in
    workers continue from epoch to epoch, as in PyTorch. A resumed run starts new workers with the same seeds. So a
    dataset that uses the global generators then gets the random numbers of the first epoch again. The augmentation of
    this package does not use the global generators.

    Args:
        seed: seed that all ranks share.
        rank: number of this rank, from 0.
    """

    def __init__(self, seed: int, rank: int) -> None:
        self.seed = seed
        self.rank = rank

    def attach(self, loader: Any) -> None:
        """Check the sampler of ``loader``, and set a new generator if ``loader`` has no generator.

        The loader's constructor calls this method.

        Raises:
            TypeError: the sampler is not a ``DistributedSampler``.
        """
        if not isinstance(loader.sampler, DistributedSampler):
            kind = type(loader.sampler).__name__
            raise TypeError(f"a loader for distributed training needs a DistributedSampler, not {kind}")
        if loader.generator is None:
            loader.generator = torch.Generator()

    def begin(self, loader: Any) -> int:
        """Return the number of the new epoch, and seed the generator of ``loader`` for this epoch."""
        epoch = int(loader.sampler.epoch)
        # Persistent workers have one base seed for all epochs. The random keys of the samples contain the epoch.
        words = (self.seed, self.rank) if loader.persistent_workers else (self.seed, self.rank, epoch)
        loader.generator.manual_seed(int(hash_into_keys(np.zeros(1, dtype=np.uint64), *words)[0]))
        return epoch

    def count(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator over ``batches`` that counts the epoch when the loop requests the second batch."""
        return _CountedEpoch(batches, loader.sampler)

    def next_epoch(self, loader: Any) -> int:
        """Return the number of the next epoch."""
        return int(loader.sampler.epoch)

    def set_next_epoch(self, loader: Any, number: int) -> None:
        """Set the number of the next epoch."""
        loader.sampler.set_epoch(number)


class _CountedEpoch(Iterator[Any]):
    """An iterator over batches that sets the sampler to the next epoch when the loop requests the second batch."""

    def __init__(self, batches: Iterator[Any], sampler: DistributedSampler[Any]) -> None:
        self._batches = batches
        self._sampler = sampler
        self._epoch = sampler.epoch
        self._requests = 0

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        self._requests += 1
        # The order of this epoch is drawn already, so the epoch number may change. If the number has changed, the
        # caller has set the number, and this code keeps it.
        if self._requests == 2 and self._sampler.epoch == self._epoch:
            self._sampler.set_epoch(self._epoch + 1)
        return next(self._batches)
