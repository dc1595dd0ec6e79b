"""Intercept the iteration over loaders or samplers of PyTorch, including loaders and samplers of subclasses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from torch.utils.data import DataLoader, IterableDataset, Sampler

Around = Callable[[Callable[[], Any]], Any]
"""Function that replaces ``next(iterator)``. The argument is a function that returns the next batch of the original
iterator."""

_T = TypeVar("_T", bound="Interception")


class Interception(ABC):
    """Context manager in which ``iter(loader)`` returns an iterator that a subclass creates.

    If ``__iter__`` of a loader class calls ``__iter__`` of its base class, only the outermost call is replaced. Code
    that calls ``next`` for the original iterator must run in the context :meth:`inside`, so that iterations in the
    loader's own code are not replaced.

    Attributes:
        base: class whose iteration is intercepted, including all its subclasses; by default ``DataLoader``.
    """

    base: type = DataLoader

    def __init__(self) -> None:
        self._replaced: dict[type, Callable[[Any], Iterator[Any]]] = {}
        self._inside: set[int] = set()

    def __enter__(self: _T) -> _T:
        self.cover_new_classes()
        return self

    def __exit__(self, *exception: object) -> None:
        for loader_class, original in self._replaced.items():
            loader_class.__iter__ = original  # type: ignore[attr-defined]
        self._replaced.clear()

    @abstractmethod
    def _make_iterator(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Return the iterator for an iteration over ``loader``; ``start`` creates the original iterator."""

    def cover_new_classes(self) -> None:
        """Replace iteration in loader classes that were defined or imported since the last call."""
        for loader_class in _with_subclasses(self.base):
            if "__iter__" in vars(loader_class) and loader_class not in self._replaced:
                self._replaced[loader_class] = original = vars(loader_class)["__iter__"]
                loader_class.__iter__ = self._replacement(original)  # type: ignore[attr-defined]

    @contextmanager
    def inside(self, loader: Any) -> Iterator[None]:
        """Return a context for running the code of ``loader``. Iterations that this code starts are not replaced."""
        outermost = id(loader) not in self._inside
        self._inside.add(id(loader))
        try:
            yield
        finally:
            if outermost:
                self._inside.discard(id(loader))

    def _replacement(self, original: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
        def __iter__(loader: Any) -> Iterator[Any]:
            # A second loader over which the code of a loader iterates is a part of the first loader.
            nested = bool(self._inside) if self.base is DataLoader else id(loader) in self._inside
            if nested:
                return original(loader)
            with self.inside(loader):
                return self._make_iterator(loader, lambda: original(loader))

        return __iter__


class LoaderIteratorWrapper(Iterator[Any]):
    """A wrapper of a loader's original iterator that calls the function ``around`` for each batch.

    Args:
        interception: the context manager that created this wrapper.
        loader: the loader to which the original iterator belongs.
        iterator: the original iterator of the loader. The wrapper also has all attributes of this iterator.
        around: function that is called for each batch. Its argument is a function that returns the next batch of the
            original iterator. Its return value is the batch that the training gets.
    """

    def __init__(self, interception: Interception, loader: Any, iterator: Iterator[Any], around: Around) -> None:
        self._interception = interception
        self._loader = loader
        self._iterator = iterator
        self._around = around

    def __next__(self) -> Any:
        return self._around(self._advance)

    def _advance(self) -> Any:
        with self._interception.inside(self._loader):
            return next(self._iterator)

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


class SamplerRecorder(Interception):
    """Context manager that records the indices that each iteration over the sampler of a loader yields.

    Attributes:
        into: a pair of a loader and a list, or None to record nothing. For each iteration over the sampler of this
            loader, the recorder appends to the list a new list of the indices that the sampler yields. If the loader
            has a batch sampler, each item of the new list is the list of indices of one batch.
    """

    base = Sampler

    def __init__(self) -> None:
        super().__init__()
        self.into: tuple[Any, list[list[Any]]] | None = None

    def _make_iterator(self, sampler: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        loader, recorded = self.into or (None, [])
        # PyTorch's loader iterates over ``batch_sampler``, or over ``sampler`` if the loader has no ``batch_sampler``.
        if loader is None or sampler is not (loader.sampler if loader.batch_sampler is None else loader.batch_sampler):
            return start()
        drawn: list[Any] = []
        recorded.append(drawn)

        def around(advance: Callable[[], Any]) -> Any:
            given = advance()
            drawn.append(list(given) if isinstance(given, (list, tuple)) else given)
            return given

        return LoaderIteratorWrapper(self, sampler, start(), around)


@contextmanager
def limit_workers(loader: Any, max_workers: int) -> Iterator[None]:
    """Return a context in which ``loader`` starts at most ``max_workers`` worker processes (0: no worker process).

    The loader of an iterable dataset keeps one worker, because the dataset may call ``get_worker_info``.
    """
    workers, timeout = loader.num_workers, loader.timeout
    loader.num_workers = min(workers, max(max_workers, int(isinstance(loader.dataset, IterableDataset))))
    loader.timeout = timeout if loader.num_workers else 0  # PyTorch accepts a timeout only with workers
    try:
        yield
    finally:
        loader.num_workers, loader.timeout = workers, timeout


def _with_subclasses(base: type) -> Iterator[type]:
    yield base
    subclasses: list[type] = base.__subclasses__()
    for subclass in subclasses:
        yield from _with_subclasses(subclass)
