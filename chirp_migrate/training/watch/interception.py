"""Takes the place of iteration: every ``DataLoader`` (or sampler) class that iterates, PyTorch's own and others'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from torch.utils.data import DataLoader

__all__ = ["Interception", "MakeIterator"]

MakeIterator = Callable[[Any, Callable[[], Iterator[Any]]], Iterator[Any]]
"""Called with the loader and a function that starts the loader's own iterator; gives the one to use instead."""


_T = TypeVar("_T", bound="Interception")


class Interception:
    """Context manager under which ``iter(loader)`` gives what ``make`` returns.

    A loader class may iterate by way of its base class, at once or as it goes. Only the outermost call is
    replaced; code that advances the loader's own iterator does so within :meth:`inside`. ``base`` is the class
    whose subclasses are covered, itself included.
    """

    def __init__(self, make: MakeIterator, base: type = DataLoader) -> None:
        self._make = make
        self._base = base
        self._replaced: list[tuple[type, Callable[[Any], Iterator[Any]]]] = []
        self._inside: set[int] = set()

    def __enter__(self: _T) -> _T:
        self.cover_new_classes()
        return self

    def __exit__(self, *exception: object) -> None:
        for loader_class, original in self._replaced:
            loader_class.__iter__ = original  # type: ignore[attr-defined]
        self._replaced.clear()

    def cover_new_classes(self) -> None:
        """Replace iteration in loader classes that were defined or imported since the last call."""
        covered = {loader_class for loader_class, _ in self._replaced}
        for loader_class in _with_subclasses(self._base):
            if "__iter__" in vars(loader_class) and loader_class not in covered:
                original = vars(loader_class)["__iter__"]
                self._replaced.append((loader_class, original))
                loader_class.__iter__ = self._replacement(original)  # type: ignore[attr-defined]

    @contextmanager
    def inside(self, loader: Any) -> Iterator[None]:
        """While the loader's own code runs: its inner iterations are not replaced."""
        outermost = id(loader) not in self._inside
        self._inside.add(id(loader))
        try:
            yield
        finally:
            if outermost:
                self._inside.discard(id(loader))

    def _replacement(self, original: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
        def __iter__(loader: Any) -> Iterator[Any]:
            # What a loader's own code walks over (the loader in its pool of workers, for example) is part of it.
            nested = bool(self._inside) if self._base is DataLoader else id(loader) in self._inside
            if nested:
                return original(loader)
            with self.inside(loader):
                return self._make(loader, lambda: original(loader))

        return __iter__


def _with_subclasses(base: type) -> list[type]:
    found = [base]
    subclasses: list[type] = base.__subclasses__()
    for subclass in subclasses:
        found += [known for known in _with_subclasses(subclass) if known not in found]
    return found
