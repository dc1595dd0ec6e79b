"""Functions that send classes and functions from a notebook to worker processes that are not forked.

With the start methods ``spawn`` and ``forkserver``, a worker process must import each class and function that the main
process sends. Classes and functions of a notebook, a Python prompt or ``python -c`` cannot be imported, because their
``__main__`` has no file. The package ``cloudpickle`` pickles these classes and functions by value: the pickle contains
their code. Classes and functions of scripts and packages are pickled by name: the pickle contains only their names.
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

from chirpid_patch.loading.loader_parts import LoaderParts, copy_loader_attributes
from chirpid_patch.loading.worker_start import start_method

#: The attributes of a loader that are sent to every worker process.
_SENT_ATTRIBUTES = ("dataset", "collate_fn", "worker_init_fn")


class NotSendableError(RuntimeError):
    """An object of ``__main__`` cannot be pickled for worker processes, neither by name nor by value."""


def make_picklable_for_workers(parts: LoaderParts) -> LoaderParts:
    """Return a copy of ``parts`` that can be pickled for worker processes, even if a notebook defines its dataset.

    ``parts`` is a ``DataLoader`` with the attributes of the user's loader. Outside a notebook, and with the start
    method ``fork``, the function returns ``parts`` unchanged. In a notebook, the dataset, the collate function and
    ``worker_init_fn`` are pickled together when a worker starts. So an object that two of these three share stays a
    single object in the worker.
    """
    method = start_method({"multiprocessing_context": parts.multiprocessing_context})
    # PyTorch prepares data pipes in the main process, and data pipes pickle themselves.
    if method == "fork" or not main_is_interactive() or isinstance(parts.dataset, IterDataPipe | MapDataPipe):
        return parts
    together = _JointPickle([getattr(parts, name) for name in _SENT_ATTRIBUTES])
    return copy_loader_attributes(
        parts, **{name: _PartReference(together, place) for place, name in enumerate(_SENT_ATTRIBUTES)}
    )


def main_is_interactive() -> bool:
    """Return whether ``__main__`` is a notebook, a prompt or standard input, which no other process can import."""
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is None and (_main_file() is None or _is_read_from_input())


def _is_read_from_input() -> bool:
    """Return whether Python reads ``__main__`` from standard input.

    If so, ``__file__`` is a name such as ``<stdin>``, which no worker process can open.
    """
    file = _main_file()
    return file is not None and file.startswith("<") and file.endswith(">")


def _main_file() -> str | None:
    return getattr(sys.modules.get("__main__"), "__file__", None)


class _PartReference:
    """A reference to an object in a ``_JointPickle``. Unpickling the reference returns the object."""

    def __init__(self, together: _JointPickle, place: int) -> None:
        self._together = together
        self._place = place

    def __repr__(self) -> str:
        return repr(self._together.objects[self._place])

    def __reduce__(self) -> Any:
        return itemgetter(self._place), (self._together,)


class _JointPickle:
    """Several objects that are pickled together. Unpickling returns the list of the objects."""

    def __init__(self, objects: list[Any]) -> None:
        self.objects = objects

    def __reduce__(self) -> Any:
        if _is_read_from_input():
            raise NotSendableError(
                "worker processes cannot import the main program, because Python reads it from standard input: "
                "save the program in a file"
            )
        file = BytesIO()
        pickler = _create_pickler(file)
        pickler.dump(self.objects)
        pickler.dump(pickler.defined)
        return _receive, (file.getvalue(),)


def _receive(sent: bytes) -> list[Any]:
    """Unpickle the objects of the notebook in a worker process.

    The function also defines the classes and functions of the notebook in ``__main__`` of the worker, where pickle
    looks them up. So the worker can send a batch or an exception whose class the notebook defines.
    """
    unpickler = pickle.Unpickler(BytesIO(sent))
    objects: list[Any] = unpickler.load()
    vars(sys.modules["__main__"]).update(unpickler.load())
    return objects


class _ByReference(ForkingPickler):
    """A pickler of ``multiprocessing`` that raises an error for objects that a notebook defines."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.defined: dict[str, Any] = {}

    def reducer_override(self, found: Any) -> Any:
        """Raise NotSendableError if ``__main__`` defines ``found``. Otherwise ``multiprocessing`` pickles ``found``."""
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
    """Return a pickler that sends objects of ``__main__`` by value with ``cloudpickle``.

    Without the package ``cloudpickle``, return a pickler of the class ``_ByReference``.
    """
    try:
        import cloudpickle
    except ImportError:
        return _ByReference(file)

    class ByValue(cloudpickle.Pickler):  # type: ignore[misc]
        def __init__(self, file: BytesIO) -> None:
            self.defined: dict[str, Any] = {}
            # Whether a class of ``__main__`` has been pickled. The class may refer to functions that pickle cannot find
            # by name, such as decorated methods. As long as this attribute is False, all objects are pickled as in a
            # script.
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


def _reduce_definition(found: Any) -> Any:
    return (_cache_results, (found.__wrapped__, found.cache_parameters())) if _is_of_main(found) else NotImplemented


def _cache_results(function: Any, parameters: dict[str, Any]) -> Any:
    return lru_cache(**parameters)(function)


_Cached = type(lru_cache(_cache_results))
#: Maps types to functions that reduce an object for pickling. These functions replace functions of ``cloudpickle`` and
#: ``multiprocessing``.
_REDUCERS = {
    _Cached: _reduce_definition,
    cached_property: lambda found: (cached_property, (found.func,), {"attrname": found.attrname}),
    # ``multiprocessing`` looks up a method by its name, which fails for a lambda.
    MethodType: lambda found: (MethodType, (found.__func__, found.__self__)),
    # ``cloudpickle`` would pickle the contents of an open file.
    TextIOWrapper: lambda found: NotImplemented,
}


def _is_of_main(found: Any) -> bool:
    """Return whether ``found`` is a class, function or method that ``__main__`` defines."""
    kinds = type | FunctionType | MethodType | _Cached
    return issubclass(type(found), kinds) and getattr(found, "__module__", None) == "__main__"
