"""What is to be read in one epoch: batches of indices, each with the key of its randomness."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from chirpid_patch.datasets.rows import as_ints
from chirpid_patch.randomness.keyed_random import RandomKey

logger = logging.getLogger("chirpid_patch")


class Request(NamedTuple):
    """One step of the sampler: a batch's indices, or, where automatic batching is off, what it gave for one item."""

    indices: Any
    key: RandomKey | None = None


class EpochRequests:
    """Makes the requests of one epoch from what its sampler gives.

    Args:
        seed, epoch, rank: what tells this epoch's random numbers from all others.
        keyed: whether batches have keys: the dataset draws by them.
        counted: whether an index may come twice in an epoch, so that occurrences are told apart.
        listed: batches of indices are lists or tuples, whatever the sampler gives; else they are passed on untouched.
        drops_last: the sampler leaves out a batch that is not full. An epoch that has none for it is warned of.
        skipped: so many batches were read before, by another loader: the requests go on after them.
    """

    def __init__(
        self,
        *,
        seed: int,
        epoch: int,
        rank: int,
        keyed: bool,
        counted: bool,
        listed: bool,
        drops_last: bool = False,
        skipped: int = 0,
    ) -> None:
        self._identity = seed, epoch, rank
        self._keyed = keyed
        self._listed = listed
        self._seen: dict[int, int] | None = {} if counted else None
        self._drops_last = drops_last
        self._skipped = skipped
        #: Number of requests made so far, those skipped included.
        self.drawn = 0
        #: Whether the sampler has come to its end.
        self.exhausted = False

    def draw(self, sampler: Iterator[Any]) -> Request:
        """The next request. Raises what ``sampler`` raises, StopIteration at its end."""
        try:
            self.skip(sampler)
            return self._request(next(sampler))
        except StopIteration:
            if self._drops_last and not self.drawn and not self.exhausted and not self._identity[1]:
                logger.warning("drop_last=True leaves no batch in an epoch: choose a smaller batch_size")
            self.exhausted = True
            raise

    def skip(self, sampler: Iterator[Any]) -> None:
        """Pass over the requests that are to be skipped, drawing what the sampler draws for them."""
        while self.drawn < self._skipped:
            try:
                self._request(next(sampler))
            except StopIteration:  # it is shorter now
                self._skipped = self.drawn

    def _request(self, indices: Any) -> Request:
        if self._listed and type(indices) not in (list, tuple):
            with contextlib.suppress(TypeError):  # raised where it is read, as PyTorch does
                indices = list(indices)
        self.drawn += 1
        return Request(indices, self._key(indices)) if self._keyed else Request(indices)

    def _key(self, indices: Any) -> RandomKey | None:
        """The key of a batch of integer indices; other indices have none."""
        plain = as_ints(indices)
        if plain is None:
            return None
        try:
            numbers = np.array(plain, dtype=np.int64)
        except OverflowError:
            return None
        occurrences = np.zeros(len(numbers), dtype=np.int64) if self._seen is None else self._occurrences(plain)
        return RandomKey(*self._identity, numbers, occurrences)

    def _occurrences(self, indices: Sequence[int]) -> Any:
        """How often each index had been drawn before in this epoch."""
        seen = self._seen
        assert seen is not None
        occurrences = np.zeros(len(indices), dtype=np.int64)
        for place, index in enumerate(indices):
            occurrences[place] = count = seen.get(index, 0)
            seen[index] = count + 1
        return occurrences
