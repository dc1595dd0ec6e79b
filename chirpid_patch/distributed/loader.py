"""The loader of one rank, which counts the epochs itself (R-001)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DistributedSampler

from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.randomness.keyed_random import derive


class DistributedDataLoader(BatchedDataLoader[Any]):
    """A ``BatchedDataLoader`` of one rank: all that is random follows from ``seed``, epoch and rank.

    The epoch is that of its ``sampler``, a ``torch.utils.data.DistributedSampler``. It counts on by itself as soon as
    a second batch is asked for, so that ``next(iter(loader))`` is a look and no epoch: a rank that takes it alone stays
    with the others. ``set_epoch``, of the loader or the sampler, says which epoch the next iteration is; a resumed
    run needs nothing else. ``sampler.epoch`` is, between epochs, the one that comes next.

    The order of samples follows from seed and epoch; augmentation and the seeds of workers follow from the rank as
    well, so that no two ranks share a random stream. Neither draws from the global generators. Code of the dataset's
    own that draws from global generators in workers goes on from epoch to epoch with ``persistent_workers``, as in
    PyTorch, and begins anew in a resumed run; the package's own augmentation does not.

    Raises TypeError if ``sampler`` is no ``DistributedSampler``.
    """

    def __init__(self, dataset: Any, *args: Any, seed: int = 0, rank: int = 0, **kwargs: Any) -> None:
        super().__init__(dataset, *args, **kwargs)
        if not isinstance(self.sampler, DistributedSampler):
            raise TypeError(f"the sampler of one rank must be a DistributedSampler, not {type(self.sampler).__name__}")
        self.seed = seed
        self.rank = rank
        if self.generator is None:
            self.generator = torch.Generator()

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration that of ``epoch``."""
        self._ranks_sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        sampler = self._ranks_sampler
        epoch = self._epochs_begun = sampler.epoch
        # Kept workers have one base seed in their life; the epoch is then told apart by the keys alone.
        is_kept = self.persistent_workers if self.num_workers else self.draws_like_persistent_workers
        words = (self.seed, self.rank) if is_kept else (self.seed, self.rank, epoch)
        assert self.generator is not None
        self.generator.manual_seed(int(derive(np.zeros(1, dtype=np.uint64), *words)[0]))
        return _CountedEpoch(super().__iter__(), sampler)

    @property
    def _key_rank(self) -> int:
        return self.rank

    @property
    def _ranks_sampler(self) -> DistributedSampler[Any]:
        assert isinstance(self.sampler, DistributedSampler)
        return self.sampler

    def state_dict(self) -> dict[str, Any]:
        """What lets a new loader with the same seed go on as this one would: the epoch, and what was read of it."""
        state = super().state_dict()
        return state if "taken" in state else {**state, "epochs_begun": self._ranks_sampler.epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the loader whose ``state_dict`` this is would have. Raises KeyError for anything else's state."""
        super().load_state_dict(state)
        self._kept_seed = None  # it follows from seed and rank
        self.set_epoch(self._epochs_begun)


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
