"""The epochs of one rank's loader: all that is random follows from seed, epoch and rank (R-001)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DistributedSampler

from chirpid_patch.randomness.keyed_random import fold_in


class RankEpochs:
    """The ``epochs`` of a ``BatchedDataLoader`` of one rank: numbers and seeds them, and refers to no loader.

    The epoch is that of its ``sampler``, a ``torch.utils.data.DistributedSampler``. It counts on by itself as soon as
    a second batch is asked for, so that ``next(iter(loader))`` is a look and no epoch: a rank that takes it alone stays
    with the others. ``sampler.set_epoch`` says which epoch the next iteration is; a resumed run needs nothing else.
    ``sampler.epoch`` is, between epochs, the one that comes next.

    The order of samples follows from seed and epoch; augmentation and the seeds of workers follow from the rank as
    well, so that no two ranks share a random stream. Neither draws from the global generators. Code of the dataset's
    own that draws from global generators in workers goes on from epoch to epoch with ``persistent_workers``, as in
    PyTorch, and begins anew in a resumed run; the package's own augmentation does not.
    """

    def __init__(self, seed: int, rank: int) -> None:
        self.seed = seed
        self.rank = rank

    def attach(self, loader: Any) -> None:
        """Get ready for ``loader``, which is being made. Raises TypeError for a sampler of another kind."""
        if not isinstance(loader.sampler, DistributedSampler):
            kind = type(loader.sampler).__name__
            raise TypeError(f"the sampler of one rank must be a DistributedSampler, not {kind}")
        if loader.generator is None:
            loader.generator = torch.Generator()

    def begin(self, loader: Any) -> int:
        """The number of the epoch that begins; the generator of ``loader`` is seeded for it."""
        epoch = int(loader.sampler.epoch)
        # Kept workers have one base seed in their life; the epoch is then told apart by the keys alone.
        words = (self.seed, self.rank) if loader.persistent_workers else (self.seed, self.rank, epoch)
        loader.generator.manual_seed(int(fold_in(np.zeros(1, dtype=np.uint64), *words)[0]))
        return epoch

    def count(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """``batches`` of that epoch, which is counted once a second one is asked for."""
        return _CountedEpoch(batches, loader.sampler)

    def number(self, loader: Any) -> int:
        """The number of the next epoch."""
        return int(loader.sampler.epoch)

    def go_on(self, loader: Any, number: int) -> None:
        """Make the next epoch that of ``number``."""
        loader.sampler.set_epoch(number)


class _CountedEpoch(Iterator[Any]):
    """Passes batches on and, once a second one is asked for, moves the sampler to the next epoch."""

    def __init__(self, batches: Iterator[Any], sampler: DistributedSampler[Any]) -> None:
        self._batches = batches
        self._sampler = sampler
        self._epoch = sampler.epoch
        self._asked = 0

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        self._asked += 1
        # By now the order of this epoch is drawn. Another number in the sampler is one that the caller set.
        if self._asked == 2 and self._sampler.epoch == self._epoch:
            self._sampler.set_epoch(self._epoch + 1)
        return next(self._batches)
