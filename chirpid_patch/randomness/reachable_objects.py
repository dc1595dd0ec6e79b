"""A function that finds all objects to which an object refers, for a search for random generators."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

GENERATORS = (torch.Generator, np.random.RandomState, np.random.Generator, np.random.BitGenerator, random.Random)

#: Packages whose objects are not searched. These objects contain only data, and reading an attribute may change them.
_DATA_PACKAGES = ("pandas", "polars", "pyarrow", "PIL")
_DEEPEST_SEARCH = 8
#: Largest number of items of a sequence that is searched. A longer sequence probably contains samples or indices.
_MOST_ITEMS = 64
_MOST_VISITED = 20_000


def reachable_objects(owners: Iterable[Any]) -> Iterator[Any]:
    """Yield ``owners`` and all objects to which ``owners`` refer, directly or indirectly, without duplicates.

    The function does not search the contents of arrays, tensors, data frames and images. Sequences, sets and
    dictionaries are searched only if they have at most ``_MOST_ITEMS`` items. The search follows at most
    ``_DEEPEST_SEARCH`` references in a row, and ends after ``_MOST_VISITED`` objects. For a function, the search also
    covers the module that defines the function. For other objects, the search also covers the modules that define the
    class and its base classes. Of the globals of these modules, the result includes only random generators.

    Args:
        owners: loaders, samplers, datasets, transforms or functions.
    """
    waiting = deque((owner, _DEEPEST_SEARCH) for owner in owners)
    seen: dict[int, Any] = {}  # keeps the visited objects alive, so that no other object can get the same id
    while waiting and len(seen) < _MOST_VISITED:
        owner, depth = waiting.popleft()
        if id(owner) in seen or type(owner).__module__.partition(".")[0] in _DATA_PACKAGES:
            continue
        seen[id(owner)] = owner
        yield owner
        if depth and not isinstance(owner, GENERATORS):
            waiting.extend((part, depth - 1) for part in _direct_references(owner))


def _direct_references(owner: Any) -> list[Any]:
    if owner is None or isinstance(owner, str | bytes | int | float | type | torch.Tensor | np.ndarray):
        return []
    if isinstance(owner, ModuleType):
        return [value for value in list(vars(owner).values()) if isinstance(value, GENERATORS)]
    if isinstance(owner, dict | list | tuple | set | frozenset | deque):
        items = owner.values() if isinstance(owner, dict) else owner
        return list(items) if len(owner) <= _MOST_ITEMS else []
    if isinstance(owner, partial):
        return [owner.func, *owner.args, *owner.keywords.values()]
    if isinstance(owner, MethodType):
        return [owner.__self__, owner.__func__]
    if isinstance(owner, BuiltinFunctionType):
        return [owner.__self__]
    if isinstance(owner, FunctionType):
        cells = [cell.cell_contents for cell in owner.__closure__ or () if _is_filled(cell)]
        defaults = [*(owner.__defaults__ or ()), *(owner.__kwdefaults__ or {}).values()]
        return [*cells, *defaults, sys.modules.get(owner.__module__)]
    kinds = type(owner).__mro__
    slots = [getattr(owner, name, None) for kind in kinds for name in _slots(kind)]
    return [*slots, *getattr(owner, "__dict__", {}).values(), *(sys.modules.get(kind.__module__) for kind in kinds)]


def _slots(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
