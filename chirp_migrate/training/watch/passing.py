"""A loader's own iterator, passed on batch by batch to code that does something around each of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from chirp_migrate.training.watch.interception import Interception

__all__ = ["PassingIterator"]


class PassingIterator(Iterator[Any]):
    """Behaves as the iterator it stands for; subclasses say in :meth:`__next__` what happens around a batch.

    Args:
        interception: the interception that made this iterator.
        loader: the loader that is walked over.
        iterator: the loader's own iterator.
    """

    def __init__(self, interception: Interception, loader: Any, iterator: Iterator[Any]) -> None:
        self._interception = interception
        self._loader = loader
        self._iterator = iterator

    def _advance(self) -> Any:
        """The next batch; StopIteration at the end."""
        with self._interception.inside(self._loader):
            return next(self._iterator)

    @abstractmethod
    def __next__(self) -> Any:
        """The next batch, with what is done around it."""

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)
