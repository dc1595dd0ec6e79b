"""Who counts the epochs of a loader: itself, or what a loader asks and ``distributed`` answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any


class Epochs(ABC):
    """Numbers the epochs of one loader, and seeds each, as a part of the loader: it refers to none."""

    #: The rank that goes into the keys of samples.
    rank: int

    @abstractmethod
    def attach(self, loader: Any) -> None:
        """Get ready for ``loader``, which is being made. Raises TypeError where its sampler does not go with this."""

    @abstractmethod
    def begin(self, loader: Any) -> int:
        """The number of the epoch that begins; the generator of ``loader`` is seeded for it."""

    @abstractmethod
    def count(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """``batches`` of that epoch, which is counted once it is really read."""

    @abstractmethod
    def number(self, loader: Any) -> int:
        """The number of the next epoch."""

    @abstractmethod
    def go_on(self, loader: Any, number: int) -> None:
        """Make the next epoch that of ``number``."""
