"""Find the objects in a loader that cannot be pickled for spawned workers, with their attribute paths.

First, the pickler of :mod:`multiprocessing` pickles the dataset and the functions of the loader, as for ``spawn``. If
an error occurs, a pickler that is written in Python pickles the same objects again. This pickler keeps a list of the
objects that it has begun and not finished. When the error occurs again, this list is the path to the object that cannot
be pickled.
"""

from __future__ import annotations

import io
import pickle
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from multiprocessing.reduction import ForkingPickler
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch

from chirp_migrate.doctor.recording import UnpicklablePart
from chirp_migrate.doctor.watch.places import LineFinder
from chirp_migrate.verify.equivalence.picklability import (
    allow_process_start_pickling,
    check_picklable,
    is_always_picklable,
)

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PARTS = ("dataset", "collate_fn", "worker_init_fn")
_LONGEST_TEXT = 320
_KINDS: tuple[tuple[Any, str], ...] = (
    (io.IOBase, "open file"),
    (GeneratorType, "generator"),
    (ModuleType, "module"),
    ((type({}.keys()), type({}.values()), type({}.items())), "view of a dictionary"),
)


def unpicklable_parts(loader: Any, line_finder: LineFinder) -> Iterator[UnpicklablePart]:
    """For each of dataset, ``collate_fn`` and ``worker_init_fn``, yield the first object that cannot be pickled."""
    for name in _PARTS:
        part = getattr(loader, name, None)
        try:
            check_picklable(part)
        except Exception as error:  # __getstate__ or __setstate__ of the user's class may raise any error
            yield _first_failure(part, name, error, line_finder)


def count_pickled_bytes(loader: Any) -> int:
    """Return the number of bytes that are pickled for each new worker.

    Tensors do not count, because workers share them.
    """
    counter = _ByteCounter()
    with allow_process_start_pickling():
        for name in _PARTS:
            counter.dump(getattr(loader, name, None))
    return counter.arrays + counter.pickled


class _ByteCounter(ForkingPickler):
    """A pickler that counts the bytes of the pickle, and does not store these bytes."""

    def __init__(self) -> None:
        super().__init__(self)
        self.arrays = self.pickled = 0

    def write(self, data: bytes) -> int:
        self.pickled += len(data)
        return len(data)

    def persistent_id(self, value: Any) -> Any:
        """Return an id for an array or tensor, so that the pickle contains the id instead of the data."""
        if not is_always_picklable(value):
            return None
        self.arrays += 0 if isinstance(value, torch.Tensor) else value.nbytes
        return id(value)


def _first_failure(part: Any, name: str, error: Exception, line_finder: LineFinder) -> UnpicklablePart:
    tracer = _TracingPickler()
    try:
        with allow_process_start_pickling():
            tracer.dump(part)
    except Exception as again:
        error = again
    chain = tracer.begun or [part]
    path = name + "".join(
        _path_step(tracer.begun[:number], child) for number, (_, child) in enumerate(pairwise(chain), 1)
    )
    failed = chain[-1]
    place = line_finder.line_of_definition(failed if isinstance(failed, (FunctionType, type)) else type(failed))
    text = _ADDRESS.sub("", " ".join(f"{type(error).__name__}: {error}".split()))
    return UnpicklablePart(path, _describe_kind(failed), place, text[:_LONGEST_TEXT])


class _TracingPickler(pickle._Pickler):
    """A pickler that records in ``begun`` the objects that it has begun and not finished, outermost first."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.dispatch_table = ForkingPickler(io.BytesIO()).dispatch_table
        self.begun: list[Any] = []

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        """Pickle an object. The object is in the list ``begun`` until its pickle is finished."""
        self.begun.append(obj)
        super().save(obj, save_persistent_id)  # type: ignore[misc]
        self.begun.pop()

    def persistent_id(self, value: Any) -> Any:
        """Return an id for an array or tensor, to skip its data. Arrays and tensors can always be pickled."""
        return id(value) if is_always_picklable(value) else None


def _path_step(above: list[Any], child: Any) -> str:
    """Return the last part of the attribute path of the object ``child``, such as ``.name``.

    The list ``above`` contains the objects around ``child``, outermost first.

    If ``pickle`` created the object ``child``, this object is not part of the user's data, and the result is an empty
    string.
    """
    parent = above[-1]
    owner = above[-2] if len(above) > 1 else None
    if type(parent) in (tuple, list) and not _is_made_by_pickle(parent, owner):
        return next((f"[{number}]" for number, one in enumerate(parent) if one is child), "")
    if isinstance(parent, dict):
        key = next((key for key, one in parent.items() if one is child), None)
        if key is None:
            return ""
        is_state = owner is not None and not isinstance(owner, (dict, list, tuple)) and isinstance(key, str)
        return f".{key}" if is_state else f"[{key!r}]"
    if type(parent) is tuple:  # arguments of a constructor, from __reduce__
        if isinstance(owner, partial):
            return _path_step_in_partial(owner, child)
        if isinstance(owner, defaultdict):
            return ".default_factory" if owner.default_factory is child else ""
        if isinstance(owner, MethodType):
            return ".__self__" if owner.__self__ is child else ""
        held = getattr(owner, "__dict__", {})
        return next((f".{key}" for key, one in held.items() if one is child), "")
    return ""


def _is_made_by_pickle(parent: Any, owner: Any) -> bool:
    """Return whether ``pickle`` created the tuple ``parent`` in order to pickle ``owner``.

    Otherwise, ``parent`` is a tuple of the user, and so a part of the attribute path.
    """
    if owner is None or isinstance(owner, (list, tuple)):
        return False
    return not (isinstance(owner, dict) and any(one is parent for one in owner.values()))


def _path_step_in_partial(owner: partial[Any], child: Any) -> str:
    if owner.func is child:
        return ".func"
    if child is owner.args or child is owner.keywords:
        return ""
    return next((f".args[{number}]" for number, one in enumerate(owner.args) if one is child), "")


def _describe_kind(failed: Any) -> str:
    if isinstance(failed, FunctionType):
        if failed.__name__ == "<lambda>":
            return "lambda"
        return "local function" if "<locals>" in failed.__qualname__ else "function"
    if isinstance(failed, type):
        return f"local class {failed.__name__}" if "<locals>" in failed.__qualname__ else f"class {failed.__name__}"
    if isinstance(failed, torch.Tensor):
        return "non-leaf tensor with requires_grad=True"
    if isinstance(failed, BuiltinFunctionType):
        return "builtin function"
    return next((word for kinds, word in _KINDS if isinstance(failed, kinds)), type(failed).__name__)
