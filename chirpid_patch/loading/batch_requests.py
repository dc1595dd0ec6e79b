"""The requests for batches that a loader sends to its workers or threads in an epoch.

A request contains the indices of a batch, and its *random key*, which determines the random numbers of the batch.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from chirpid_patch.datasets.gather import INDEX_CONTAINERS
from chirpid_patch.datasets.rows import to_integer_list
from chirpid_patch.randomness.keyed_random import RandomKey

logger = logging.getLogger("chirpid_patch")


class BatchRequest(NamedTuple):
    """A request for a batch, with the indices of the samples and the random key of the batch.

    If automatic batching is off, ``indices`` is a single index. ``key`` is None if the dataset uses no random keys.
    """

    indices: Any
    key: RandomKey | None = None


class SharedRequestSettings(NamedTuple):
    """Properties that all requests of an epoch share.

    Attributes:
        rank: rank of this process, which is a part of each random key.
        keyed: whether requests have random keys; True if the dataset uses random keys.
        listed: function that returns whether to convert the indices of a batch to a list. The function is called only
            if the indices are not in a list or tuple.
    """

    rank: int
    keyed: bool
    listed: Callable[[], bool]


class EpochRequests:
    """Create the requests of an epoch from the items of the sampler.

    Args:
        seed: base seed of the epoch, which is a part of each random key.
        epoch: number of the epoch, from 0, which is a part of each random key.
        kind: function that returns the ``SharedRequestSettings`` of the epoch. It is called only once.
        counted: whether an index may occur twice in an epoch, so that the occurrences of each index must be counted.
        drops_last: whether the sampler omits an incomplete batch. If True and the epoch has no batches, ``draw`` logs a
            warning.
        skipped: number of batches at the start of the epoch that get no request, because the training used these
            batches before the restart from a saved state.
    """

    def __init__(
        self,
        seed: int,
        epoch: int,
        kind: Callable[[], SharedRequestSettings],
        counted: bool,
        drops_last: bool = False,
        skipped: int = 0,
    ) -> None:
        self._seed, self._epoch = seed, epoch
        self._find_kind = kind
        self._kind: SharedRequestSettings | None = None
        self._seen: dict[int, int] | None = {} if counted else None
        self._drops_last = drops_last
        self._skipped = skipped
        #: Number of requests so far, including skipped requests.
        self.drawn = 0
        #: Whether the sampler has reached its end.
        self.exhausted = False

    def draw(self, sampler: Iterator[Any]) -> BatchRequest:
        """Return the request for the next item of ``sampler``.

        Raises:
            StopIteration: the sampler has no more items.
            Exception: any error that the sampler raises.
        """
        try:
            if self.drawn < self._skipped:
                self.skip(sampler)
            return self._request(next(sampler))
        except StopIteration:
            if self._drops_last and not self.drawn and not self.exhausted and not self._epoch:
                logger.warning("with drop_last=True, an epoch has no batches: choose a smaller batch_size")
            self.exhausted = True
            raise

    def skip(self, sampler: Iterator[Any]) -> None:
        """Skip the first ``skipped`` batches.

        The sampler still yields the indices of these batches, so the random numbers of the sampler stay the same.
        """
        while self.drawn < self._skipped:
            try:
                self._request(next(sampler))
            except StopIteration:  # the sampler has fewer batches than ``skipped``
                self._skipped = self.drawn

    def _request(self, indices: Any) -> BatchRequest:
        kind = self._kind
        if kind is None:
            kind = self._kind = self._find_kind()
        if type(indices) not in (list, tuple) and kind.listed() and _can_iterate_early(indices, kind.keyed):
            with contextlib.suppress(TypeError):  # reading the batch raises the error later, as in PyTorch
                indices = [index for index in indices]  # noqa: C416 - unlike list(), never calls a user's __len__
        self.drawn += 1
        return BatchRequest(indices, self._key(indices, kind.rank)) if kind.keyed else BatchRequest(indices)

    def _key(self, indices: Any, rank: int) -> RandomKey | None:
        """Return the random key of a batch; None if ``indices`` are not integers."""
        plain = to_integer_list(indices)
        if plain is None:
            return None
        try:
            numbers = np.array(plain, dtype=np.int64)
        except OverflowError:
            return None
        occurrences = np.zeros(len(numbers), dtype=np.int64) if self._seen is None else self._occurrences(plain)
        return RandomKey(self._seed, self._epoch, rank, numbers, occurrences)

    def _occurrences(self, indices: Sequence[int]) -> Any:
        """Return the number of earlier occurrences of each index in this epoch."""
        seen = self._seen
        assert seen is not None
        occurrences = np.zeros(len(indices), dtype=np.int64)
        for place, index in enumerate(indices):
            occurrences[place] = count = seen.get(index, 0)
            seen[index] = count + 1
        return occurrences


def _can_iterate_early(indices: Any, keyed: bool) -> bool:
    """Return whether ``indices`` may be iterated over before the batch is read.

    If the dataset uses no random keys (``keyed`` is False), the result is True only for iterators and for the types in
    ``INDEX_CONTAINERS``. Iterating over another object would run the user's code earlier than PyTorch does.
    """
    return keyed or type(indices) in INDEX_CONTAINERS or isinstance(indices, Iterator)
