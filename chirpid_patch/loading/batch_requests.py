"""The requests of one epoch: batches of indices, each with the key of its random numbers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from chirpid_patch.datasets.gather import WRITTEN_DOWN
from chirpid_patch.datasets.rows import as_ints
from chirpid_patch.randomness.keyed_random import RandomKey

logger = logging.getLogger("chirpid_patch")


class BatchRequest(NamedTuple):
    """One step of the sampler: the indices of a batch, or of one item if automatic batching is off."""

    indices: Any
    key: RandomKey | None = None


class RequestKind(NamedTuple):
    """Properties that all requests for a dataset share.

    Attributes:
        rank: rank of this process; separates its random numbers from those of other ranks.
        keyed: whether batches have keys, because the dataset uses them.
        listed: called if indices are not in a list; returns whether to convert them. It converts batches of indices to
            lists, except objects of a user's class without a key.
    """

    rank: int
    keyed: bool
    listed: Callable[[], bool]


class EpochRequests:
    """Creates the requests of one epoch from the items of its sampler.

    Args:
        seed, epoch: separate this epoch's random numbers from all others.
        kind: called at the first request.
        counted: whether an index may occur twice in an epoch, so that occurrences are counted.
        drops_last: the sampler omits an incomplete batch. An epoch without batches then leads to a warning.
        skipped: number of batches that another loader has read before; the requests continue after them.
    """

    def __init__(
        self,
        seed: int,
        epoch: int,
        kind: Callable[[], RequestKind],
        counted: bool,
        drops_last: bool = False,
        skipped: int = 0,
    ) -> None:
        self._seed, self._epoch = seed, epoch
        self._find_kind = kind
        self._kind: RequestKind | None = None
        self._seen: dict[int, int] | None = {} if counted else None
        self._drops_last = drops_last
        self._skipped = skipped
        #: Number of requests so far, made or skipped.
        self.drawn = 0
        #: Whether the sampler has come to its end.
        self.exhausted = False

    def draw(self, sampler: Iterator[Any]) -> BatchRequest:
        """Return the next request; raise the errors of ``sampler``, and StopIteration at its end."""
        try:
            if self.drawn < self._skipped:
                self.skip(sampler)
            return self._request(next(sampler))
        except StopIteration:
            if self._drops_last and not self.drawn and not self.exhausted and not self._epoch:
                logger.warning("drop_last=True leaves no batch in an epoch: choose a smaller batch_size")
            self.exhausted = True
            raise

    def skip(self, sampler: Iterator[Any]) -> None:
        """Skip the requests that another loader has read, with the same random calls of the sampler."""
        while self.drawn < self._skipped:
            try:
                self._request(next(sampler))
            except StopIteration:  # it is shorter now
                self._skipped = self.drawn

    def _request(self, indices: Any) -> BatchRequest:
        kind = self._kind
        if kind is None:
            kind = self._kind = self._find_kind()
        if type(indices) not in (list, tuple) and kind.listed() and _can_iterate_early(indices, kind.keyed):
            with contextlib.suppress(TypeError):  # raised where it is read, as PyTorch does
                indices = list(indices)
        self.drawn += 1
        return BatchRequest(indices, self._key(indices, kind.rank)) if kind.keyed else BatchRequest(indices)

    def _key(self, indices: Any, rank: int) -> RandomKey | None:
        """Return the key of a batch of integer indices; other indices have none."""
        plain = as_ints(indices)
        if plain is None:
            return None
        try:
            numbers = np.array(plain, dtype=np.int64)
        except OverflowError:
            return None
        occurrences = np.zeros(len(numbers), dtype=np.int64) if self._seen is None else self._occurrences(plain)
        return RandomKey(self._seed, self._epoch, rank, numbers, occurrences)

    def _occurrences(self, indices: Sequence[int]) -> Any:
        """Return how often each index had been drawn before in this epoch."""
        seen = self._seen
        assert seen is not None
        occurrences = np.zeros(len(indices), dtype=np.int64)
        for place, index in enumerate(indices):
            occurrences[place] = count = seen.get(index, 0)
            seen[index] = count + 1
        return occurrences


def _can_iterate_early(indices: Any, keyed: bool) -> bool:
    """Return whether ``indices`` may be iterated over now.

    A user's object is iterated over only when the batch is read.
    """
    return keyed or type(indices) in WRITTEN_DOWN or isinstance(indices, Iterator)
