"""Objects put back as they were."""

from __future__ import annotations

import sys
from collections import deque
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from chirpid_patch.data.held_objects import GENERATORS, held_objects

#: Larger containers are not copied; whether they grew is seen all the same.
_MOST_COPIED = 100_000
#: Arrays and tensors up to this size are copied, up to that much together.
_SMALL_BYTES, _MOST_COPIED_BYTES = 1 << 16, 1 << 24
_NOT_THE_USERS = {"torch", "torchvision", "torchaudio", "numpy", "chirpid_patch", *sys.stdlib_module_names}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Snapshot:
    """What ``owners`` and all that they hold have for attributes, items and globals, and in small arrays and tensors.

    Of large tensors it only notices in-place operations of PyTorch, of large arrays nothing; nor what is written into
    a file.
    """

    def __init__(self, *owners: Any) -> None:
        self._namespaces: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._containers: list[tuple[Any, int, Any]] = []
        self._numbers: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._tensors: list[tuple[Tensor, int]] = []
        self._copied_bytes = 0
        for held in held_objects(owners):
            self._take(held)

    def _take(self, held: Any) -> None:
        if isinstance(held, Tensor | np.ndarray):
            self._take_numbers(held)
        elif isinstance(held, dict | list | set | deque):
            self._containers.append((held, len(held), held.copy() if len(held) <= _MOST_COPIED else None))
        elif not isinstance(held, (type, FunctionType, *GENERATORS)) and _is_the_users(held):
            names = getattr(held, "__dict__", None)
            if isinstance(names, dict):
                self._namespaces.append((names, names.copy()))

    def _take_numbers(self, held: Tensor | NDArray[Any]) -> None:
        if isinstance(held, Tensor) and not held.is_inference():
            self._tensors.append((held, held._version))
        array = _as_array(held)
        if array is not None and self._copied_bytes + array.nbytes <= _MOST_COPIED_BYTES:
            self._copied_bytes += array.nbytes
            self._numbers.append((array, array.copy()))

    def restore(self) -> bool:
        """Put attributes, items and globals back; whether there was anything to put back."""
        changed = any(tensor._version != version for tensor, version in self._tensors)
        for array, numbers in self._numbers:
            if array.tobytes() != numbers.tobytes():
                changed = True
                array[...] = numbers
        for names, before in self._namespaces:
            if not _are_same(names, before):
                changed = True
                _put_back(names, before)
        for container, length, before in self._containers:
            if before is None:
                changed |= len(container) != length
            elif not _are_same(container, before):
                changed = True
                _put_back(container, before)
        return changed


def _as_array(held: Tensor | NDArray[Any]) -> NDArray[Any] | None:
    """The memory of a small tensor or array that can be written to; None for all others."""
    if isinstance(held, Tensor):
        try:
            held = held.detach().numpy()
        except (TypeError, RuntimeError):  # on a device, sparse, or of a dtype that NumPy does not know
            return None
    return held if held.nbytes <= _SMALL_BYTES and held.flags.writeable and not held.dtype.hasobject else None


def _put_back(container: Any, before: Any) -> None:
    """Give a container its items of ``before``; of a dictionary only what is other, since threads may be reading it."""
    if isinstance(container, dict):
        for name in container.keys() - before.keys():
            del container[name]
        for name, value in before.items():
            if name not in container or container[name] is not value:
                container[name] = value
        return
    container.clear()
    (container.update if isinstance(container, set) else container.extend)(before)


def _is_the_users(held: Any) -> bool:
    """Whether ``held`` is no module, or one whose globals are the user's own."""
    return not isinstance(held, ModuleType) or held.__name__.partition(".")[0] not in _NOT_THE_USERS


def _are_same(one: Any, other: Any) -> bool:
    """Whether two containers of a kind hold the same objects, or equal plain ones."""
    if len(one) != len(other):
        return False
    if isinstance(one, dict):
        return all(name in one and _is_same(one[name], value) for name, value in other.items())
    if isinstance(one, set):
        return bool(one == other)
    return all(map(_is_same, one, other))


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, _PLAIN) and one == other)
