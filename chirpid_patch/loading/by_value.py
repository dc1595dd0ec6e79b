"""Sending of classes and functions that a notebook defines to worker processes that are not forked.

A worker process that "spawn" or "forkserver" starts imports each class and function that it receives. The worker cannot
import what a ``__main__`` without a file defines: a notebook, a Python prompt, ``python -c``. The package
``cloudpickle`` sends such classes and functions by value. Nothing changes for scripts and packages.
"""

from __future__ import annotations

import pickle
import sys
from functools import cached_property, lru_cache
from io import BytesIO, TextIOWrapper
from multiprocessing.reduction import ForkingPickler
from operator import itemgetter
from types import FunctionType, MethodType
from typing import Any

from torch.utils.data import IterDataPipe, MapDataPipe

from chirpid_patch.loading.loader_parts import LoaderParts, loader_attributes
from chirpid_patch.loading.worker_start import start_method

#: The attributes of a loader that every worker process receives.
_SENT = ("dataset", "collate_fn", "worker_init_fn")


class NotSendableError(RuntimeError):
    """Worker processes cannot import an object that ``__main__`` defines, and no package can send it by value."""


def send_by_value(parts: LoaderParts) -> LoaderParts:
    """Return ``parts`` in a form that can be sent to worker processes even if a notebook defines them.

    Outside a notebook, that is ``parts`` itself. Nothing is pickled here: a starting worker pickles all parts together,
    so that objects which they share stay shared.
    """
    method = start_method({"multiprocessing_context": parts.multiprocessing_context})
    # PyTorch prepares its data pipes in the main process, and they have their own pickling.
    if method == "fork" or not main_is_interactive() or isinstance(parts.dataset, IterDataPipe | MapDataPipe):
        return parts
    together = _JointPickle([getattr(parts, name) for name in _SENT])
    return loader_attributes(parts, **{name: _PartReference(together, place) for place, name in enumerate(_SENT)})


def main_is_interactive() -> bool:
    """Return whether no other process can import ``__main__``, because it has neither a file nor an importable name."""
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is None and (_main_file() is None or _is_read_from_input())


def _is_read_from_input() -> bool:
    """Return whether ``__main__`` is read from standard input.

    Python then names a file that no worker process finds.
    """
    file = _main_file()
    return file is not None and file.startswith("<") and file.endswith(">")


def _main_file() -> str | None:
    return getattr(sys.modules.get("__main__"), "__file__", None)


class _PartReference:
    """A reference to an item of ``together``. Unpickling it returns that item."""

    def __init__(self, together: _JointPickle, place: int) -> None:
        self._together = together
        self._place = place

    def __repr__(self) -> str:
        return repr(self._together.objects[self._place])

    def __reduce__(self) -> Any:
        return itemgetter(self._place), (self._together,)


class _JointPickle:
    """Objects that are sent in one pickle. Unpickling returns the list of them."""

    def __init__(self, objects: list[Any]) -> None:
        self.objects = objects

    def __reduce__(self) -> Any:
        if _is_read_from_input():
            raise NotSendableError(
                "the main program is read from standard input, where worker processes cannot read it again: "
                "save the program in a file"
            )
        file = BytesIO()
        pickler = _create_pickler(file)
        pickler.dump(self.objects)
        pickler.dump(pickler.defined)
        return _receive, (file.getvalue(),)


def _receive(sent: bytes) -> list[Any]:
    """Return the sent objects in a worker process, and define the names of ``__main__`` again.

    So a worker can return a batch or an exception whose class a notebook defines: pickle refers to the class by name.
    """
    unpickler = pickle.Unpickler(BytesIO(sent))
    objects: list[Any] = unpickler.load()
    vars(sys.modules["__main__"]).update(unpickler.load())
    return objects


class _ByReference(ForkingPickler):
    """Multiprocessing's pickler that refuses objects which a notebook defines."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.defined: dict[str, Any] = {}

    def reducer_override(self, found: Any) -> Any:
        """Raise NotSendableError for objects that ``__main__`` defines; reduce all others as multiprocessing does."""
        if not _is_of_main(found):
            return NotImplemented
        kind, line = "class", ""
        if not isinstance(found, type):
            kind, line = "function", f" (line {getattr(found, '__wrapped__', found).__code__.co_firstlineno})"
        raise NotSendableError(
            f"the {kind} `{found.__qualname__}`{line} is defined in a notebook or an interactive session, where worker "
            f"processes cannot import it: install cloudpickle (`pip install cloudpickle`) "
            f"or move the {kind} to a module"
        )


def _create_pickler(file: BytesIO) -> Any:
    """Return a pickler that uses ``cloudpickle`` for objects of ``__main__``; ``_ByReference`` without that package."""
    try:
        import cloudpickle
    except ImportError:
        return _ByReference(file)

    class ByValue(cloudpickle.Pickler):  # type: ignore[misc]
        def __init__(self, file: BytesIO) -> None:
            self.defined: dict[str, Any] = {}
            # A class of ``__main__`` may refer to functions that no module has by name, such as those that a decorator
            # made of its methods. Before the first such class, everything is pickled as in a script.
            self._has_met_main = False
            self.dispatch_table = ForkingPickler(file).dispatch_table
            self._reducers = {**cloudpickle.Pickler.dispatch_table, **self.dispatch_table, **_REDUCERS}
            super().__init__(file)

        def reducer_override(self, found: Any) -> Any:
            if _is_of_main(found):
                self._has_met_main = True
                name = found.__qualname__
                if vars(sys.modules["__main__"]).get(name) is found:
                    self.defined[name] = found
            if not self._has_met_main:
                return NotImplemented
            reduce = self._reducers.get(type(found))
            return super().reducer_override(found) if reduce is None else reduce(found)

    return ByValue(file)


def _reduce_property(found: Any) -> Any:
    return cached_property, (found.func,), {"attrname": found.attrname}


def _reduce_definition(found: Any) -> Any:
    return (_cache_results, (found.__wrapped__, found.cache_parameters())) if _is_of_main(found) else NotImplemented


def _cache_results(function: Any, parameters: dict[str, Any]) -> Any:
    return lru_cache(**parameters)(function)


_Cached = type(lru_cache(_cache_results))
#: In place of the reducers of ``cloudpickle`` and multiprocessing.
_REDUCERS = {
    _Cached: _reduce_definition,
    cached_property: _reduce_property,
    # Multiprocessing looks a method up by its name, which a lambda does not have.
    MethodType: lambda found: (MethodType, (found.__func__, found.__self__)),
    # ``cloudpickle`` would send a copy of the contents of a file.
    TextIOWrapper: lambda found: NotImplemented,
}


def _is_of_main(found: Any) -> bool:
    """Return whether ``found`` is a class, function or method that ``__main__`` defines."""
    kinds = type | FunctionType | MethodType | _Cached
    return issubclass(type(found), kinds) and getattr(found, "__module__", None) == "__main__"
