"""The requests for batches that a loader sends to its workers or threads in an epoch.

A request contains the indices of a batch, and its *random key*, which determines the random numbers of the batch.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from chirpid_patch.datasets.gather import INDEX_CONTAINERS, GatherNode, gather_node
from chirpid_patch.datasets.rows import to_integer_list
from chirpid_patch.loading.loader_parts import LoaderParts
from chirpid_patch.machine.ranks import current_rank
from chirpid_patch.randomness.keyed_random import RandomKey

logger = logging.getLogger("chirpid_patch")


class BatchRequest(NamedTuple):
    """A request for a batch, with the indices of the samples and the random key of the batch.

    If automatic batching is off, ``indices`` is a single index. ``key`` is None if the dataset uses no random keys.
    """

    indices: Any
    key: RandomKey | None = None


class EpochRequests:
    """Create the requests of an epoch from the items of the sampler.

    If the dataset uses random keys, each request has a random key, which contains base seed, epoch and rank. If an
    index may occur twice in an epoch, the key also contains the number of earlier occurrences.

    Args:
        parts: a ``DataLoader`` with the attributes of the user's ``BatchedDataLoader``.
        seed: base seed of the epoch.
        epoch: number of the epoch, from 0.
        skipped: number of batches at the start of the epoch that get no request, because the training used these
            batches before the restart from a saved state.
    """

    def __init__(self, parts: LoaderParts, seed: int, epoch: int, skipped: int) -> None:
        self._parts = parts
        self._seed, self._epoch, self._skipped = seed, epoch, skipped
        self._makes_batches = parts.batch_sampler is not None
        self._seen: dict[int, int] | None = {} if parts._draws_repeatedly else None
        #: Number of requests so far, including skipped requests.
        self.drawn = 0
        #: Whether the sampler has reached its end.
        self.exhausted = False

    @cached_property
    def node(self) -> GatherNode:
        """Return the ``GatherNode`` of the dataset."""
        return gather_node(self._parts.dataset)

    @cached_property
    def _rank(self) -> int | None:
        """Return the rank of this process for random keys; None if the requests have no random keys."""
        if not (self._makes_batches and self.node.keyed):
            return None
        return current_rank() if self._parts._epochs is None else self._parts._epochs.rank

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
            if self._parts.drop_last and not self.drawn and not self.exhausted and not self._epoch:
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
        rank = self._rank
        if type(indices) not in (list, tuple) and self._may_iterate_early(indices):
            with contextlib.suppress(TypeError):  # reading the batch raises the error later, as in PyTorch
                indices = [index for index in indices]  # noqa: C416 - unlike list(), never calls a user's __len__
        self.drawn += 1
        return BatchRequest(indices, None if rank is None else self._key(indices, rank))

    def _may_iterate_early(self, indices: Any) -> bool:
        """Return whether the indices of a batch may be converted to a list before the batch is read.

        If the requests have no random keys, the result is True only for iterators and for the types in
        ``INDEX_CONTAINERS``. Iterating over another object would run the user's code earlier than PyTorch does.
        """
        if not self._makes_batches or not (self._parts.thread_safe or self.node.reads_batches):
            return False
        return self._rank is not None or type(indices) in INDEX_CONTAINERS or isinstance(indices, Iterator)

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
