"""Inspect the objects that a dataset contains, without running code of the dataset.

The objects are in attributes, lists, tuples and dictionaries. An attribute path names the place of an object, such as
``dataset.transform.steps[2]``.
"""

from __future__ import annotations

import io
import os
import random
import stat
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from dis import get_instructions
from functools import _lru_cache_wrapper, cached_property, lru_cache
from itertools import islice
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from chirp_migrate.training.watch.samples import short_hash
from chirpid_patch.randomness.random_states import generator_state

_MAX_DEPTH, _MAX_OBJECTS, _MAX_ENTRIES = 5, 300, 32
_MAX_TEXT_LENGTH = 80
_LARGE_LENGTH, _LARGE_BYTES, _MAX_VALUES = 10_000, 8 * 2**20, 4_096
_MAX_COUNTED_LENGTH = 20_000
_PLAIN_TYPES = (int, float, bool, str)
#: Names that code uses to read attributes with a computed name, as in ``getattr(self, name)``.
_COMPUTED_NAME_READERS = frozenset({"getattr", "vars", "__dict__", "attrgetter"})
_LIBRARY_PACKAGES = frozenset({"torch", *sys.stdlib_module_names})
_CONTAINERS = (dict, list, set, OrderedDict, defaultdict, deque)
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_TYPES_WITHOUT_CHILDREN = (
    torch.Tensor,
    torch.nn.Module,
    np.ndarray,
    str,
    bytes,
    type,
    FunctionType,
    ModuleType,
    *_GENERATORS,
)


def attributes_with_paths(root: Any, root_name: str = "dataset") -> Iterator[tuple[str, Any]]:
    """Yield (attribute path, object) for ``root`` and for the objects in ``root``, outermost first.

    Each object occurs once. The function yields at most 300 objects, and follows at most 5 levels of nested objects.
    """
    seen = {id(root)}
    level = [(root_name, root)]
    left = _MAX_OBJECTS
    for _ in range(_MAX_DEPTH):
        below: list[tuple[str, Any]] = []
        for path, value in level:
            yield path, value
            left -= 1
            if left == 0:
                return
            for inner, child in _child_objects(path, value):
                if isinstance(child, (int, float, str, bytes, bool, type(None))) or id(child) not in seen:
                    seen.add(id(child))
                    below.append((inner, child))
        level = below


def dataset_and_inner_datasets(dataset: Any) -> list[Any]:
    """Return ``dataset`` and all datasets that ``dataset`` wraps, with the outermost dataset first."""
    return [value for _, value in attributes_with_paths(dataset) if isinstance(value, torch.utils.data.Dataset)] or [
        dataset
    ]


def generator_states(dataset: Any) -> dict[str, str]:
    """Return a dictionary: name of a random generator → its state as text.

    The generators are the global generators of Python, NumPy and PyTorch, and all generators in the dataset. The name
    of a generator in the dataset is its attribute path.
    """
    numpy_state: Any = np.random.get_state(legacy=False)
    states = {
        "random": str(hash(random.getstate()[1])),
        "numpy.random": short_hash(repr(numpy_state["state"]["pos"]).encode() + numpy_state["state"]["key"].tobytes()),
        "torch": short_hash(torch.get_rng_state().numpy().tobytes()),
    }
    for path, value in attributes_with_paths(dataset):
        if isinstance(value, _GENERATORS) and not isinstance(value, random.SystemRandom):
            state = generator_state(value)
            content = (
                state.numpy().tobytes() if isinstance(state, torch.Tensor) else repr(_arrays_as_lists(state)).encode()
            )
            states[path] = short_hash(content)
    return states


def container_lengths(dataset: Any) -> dict[str, int]:
    """Return a dictionary: attribute path of a container, or of a method with ``lru_cache`` → number of its entries.

    In lists of up to 20,000 entries, entries with the value None do not count, so that a list that the dataset fills
    step by step counts as growing. The result omits queues of limited length, because they cannot grow. The result also
    omits containers of open files, archives or connections. Such a container grows in every process for a good reason,
    because each process must open its own files.
    """
    found: dict[str, int] = {}
    for path, value in attributes_with_paths(dataset):
        is_named = not path.endswith("]")
        if type(value) in _CONTAINERS and (is_named or path.endswith("']")):
            if _holds_handles(value) or (type(value) is deque and value.maxlen is not None):
                continue
            is_counted = is_named and type(value) is list and len(value) <= _MAX_COUNTED_LENGTH
            found[path] = sum(one is not None for one in value) if is_counted else len(value)
        elif isinstance(value, torch.utils.data.Dataset):
            for kind in type(value).__mro__:
                for name, member in vars(kind).items():
                    if isinstance(member, _lru_cache_wrapper):
                        found[f"{path}.{name}()"] = member.cache_info().currsize
    return found


def _holds_handles(container: Any) -> bool:
    """Return whether the first entry of a container is a memory map, or has a method ``close`` as files have.

    Images do not count, although they have ``close``.
    """
    first = next(iter(container.values() if isinstance(container, dict) else container), None)
    return isinstance(first, np.memmap) or (hasattr(type(first), "close") and not hasattr(type(first), "tobytes"))


def large_containers(dataset: Any) -> dict[str, int]:
    """Return a dictionary: attribute path of a large container in the dataset → number of its entries.

    A container is large if it has at least 10,000 entries, and these entries take about 8 MiB or more. Only containers
    of Python objects count, not containers of tensors or arrays.
    """
    found = {}
    for path, value in attributes_with_paths(dataset):
        if type(value) in (*_CONTAINERS, tuple) and len(value) >= _LARGE_LENGTH:
            some = list(islice(value.values() if isinstance(value, dict) else value, _MAX_ENTRIES))
            is_object = type(some[0]) in (str, bytes, tuple, list, dict, float, int) or hasattr(some[0], "__dict__")
            if is_object and sum(map(_object_bytes, some)) / len(some) * len(value) >= _LARGE_BYTES:
                found[path] = len(value)
    return found


def _object_bytes(value: Any) -> int:
    """Return the size in bytes of an object, including the objects that it directly contains."""
    held = value if type(value) in (tuple, list) else getattr(value, "__dict__", value)
    inner = held.values() if type(held) is dict else held if type(held) in (tuple, list) else ()
    return sys.getsizeof(value) + sum(map(sys.getsizeof, inner))


def count_tensor_bytes(dataset: Any) -> int:
    """Return the total size in bytes of the tensors, arrays and pandas tables in a dataset.

    The function assumes that all entries of a container have the size of the first entry.
    """
    found = 0
    for path, value in attributes_with_paths(dataset):
        if isinstance(value, (torch.Tensor, np.ndarray)) and not path.endswith("]"):
            found += value.nbytes
        elif type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "memory_usage"):
            found += int(np.sum(value.memory_usage()))
        elif type(value) in (*_CONTAINERS, tuple) and value:
            first = next(iter(value.values() if isinstance(value, dict) else value))
            parts = first if type(first) in (list, tuple) else (first,)
            found += sum(one.nbytes for one in parts if isinstance(one, (torch.Tensor, np.ndarray))) * len(value)
    return found


def opened_files(dataset: Any) -> dict[str, int]:
    """Return a dictionary: attribute path of a file that the dataset opened for reading → its file descriptor."""
    found = {}
    for path, value in attributes_with_paths(dataset):
        if isinstance(value, io.IOBase) and not value.closed:
            with suppress(OSError, ValueError):  # the file has no descriptor, or it cannot be accessed
                if value.readable() and stat.S_ISREG(os.fstat(value.fileno()).st_mode):
                    found[path] = value.fileno()
    return found


def read_plain_attributes(dataset: Any) -> dict[str, str]:
    """Return a dictionary: attribute path → value as text, for attributes that the dataset's code reads.

    Only attributes with plain values are in the dictionary.

    Plain values are numbers, bools and short strings, and small lists, arrays and tensors of such values. The text of a
    list, array or tensor consists of its length and a hash. An attribute counts as read if the code of the dataset, or
    of an object in the dataset, reads any attribute with this name. If this code computes attribute names, as in
    ``getattr(self, name)``, every attribute counts as read.
    """
    held = dict(attributes_with_paths(dataset))
    readers: set[Any] = {one if isinstance(one, FunctionType) else type(one) for one in held.values()}
    read = frozenset(name for one in readers for name in _names_read(one))
    return {
        path: text
        for path, value in held.items()
        if not path.endswith("]")
        and (path.rpartition(".")[2] in read or not read.isdisjoint(_COMPUTED_NAME_READERS))
        and (text := _value_text(value)) is not None
    }


@lru_cache(maxsize=256)
def _names_read(reader: Any) -> frozenset[str]:
    """Return the names of all attributes that a function reads, or that the methods of a class read."""
    if isinstance(reader, FunctionType):
        return frozenset(_loaded_attributes(reader.__code__))
    kinds = [one for one in reader.__mro__ if not is_library_class(one)]
    functions = [_function_of(one) for kind in kinds for one in vars(kind).values()]
    return frozenset(
        name for one in functions if isinstance(one, FunctionType) for name in _loaded_attributes(one.__code__)
    )


def is_library_class(cls: type) -> bool:
    """Return whether ``cls`` is a class of PyTorch or of Python's standard library."""
    return cls.__module__.partition(".")[0] in _LIBRARY_PACKAGES


def _function_of(member: Any) -> Any:
    """Return the function inside a class member such as a property or static method. Return other members unchanged."""
    match member:
        case property():
            return member.fget
        case staticmethod() | classmethod():
            return member.__func__
        case cached_property():
            return member.func
        case _lru_cache_wrapper():
            return member.__wrapped__
    return member


def _loaded_attributes(code: CodeType) -> Iterator[str]:
    for instruction in get_instructions(code):
        if instruction.opname.startswith("LOAD_") and isinstance(instruction.argval, str):
            is_attribute = "ATTR" in instruction.opname or "METHOD" in instruction.opname
            if is_attribute or instruction.argval in _COMPUTED_NAME_READERS:
                yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _loaded_attributes(constant)


def _value_text(value: Any) -> str | None:
    if type(value) in _PLAIN_TYPES:
        return text if len(text := repr(value)) <= _MAX_TEXT_LENGTH else None
    if (
        type(value) in (list, tuple)
        and 0 < len(value) <= _MAX_VALUES
        and all(type(one) in _PLAIN_TYPES for one in value)
    ):
        return f"{len(value)} values (hash {short_hash(repr(value).encode())[:6]})"
    if type(value) is torch.Tensor and value.device.type == "cpu" and value.layout is torch.strided:
        value = value.detach().numpy() if value.dtype is not torch.bfloat16 else value
    if type(value) is np.ndarray and not value.dtype.hasobject and 0 < value.size <= _MAX_VALUES:
        return f"{value.size} values (hash {short_hash(value.tobytes())[:6]})"
    return None


def _child_objects(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if type(value) in (dict, OrderedDict, defaultdict):
        some = islice(value.items(), _MAX_ENTRIES)
        yield from ((f"{path}[{key!r}]", one) for key, one in some if type(key) in (int, str))
    elif type(value) in (list, tuple):
        yield from ((f"{path}[{number}]", one) for number, one in enumerate(value[:_MAX_ENTRIES]))
    elif not isinstance(value, _TYPES_WITHOUT_CHILDREN):
        held = getattr(value, "__dict__", None)
        if type(held) is dict:
            yield from ((f"{path}.{name}", one) for name, one in list(held.items()))


def _arrays_as_lists(state: Any) -> Any:
    """Convert all arrays in the state of a generator to lists, because ``repr`` would shorten long arrays."""
    if isinstance(state, dict):
        return {key: _arrays_as_lists(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state
