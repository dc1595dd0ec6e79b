"""Find out whether other code has changed a class of loaders, or has put another object in the place of the class."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, WrapperDescriptorType
from typing import Any

from torch.utils import data

from chirpid_patch.loading.overridable import Overridable
from chirpid_patch.torch_private import READER_PLACES, DataLoader, MultiProcessingIterator, SingleProcessIterator

#: The object that the program imports as ``torch.utils.data.DataLoader``. Debugging code may replace the class there.
_IMPORTED: Callable[..., Any] = data.DataLoader
#: Packages whose methods may replace methods of a loader. Methods of a framework record arguments or batches, and build
#: and iterate over the loader as before.
_KNOWN = frozenset({"chirp_migrate", "chirpid_patch", "lightning", "lightning_fabric", "pytorch_lightning", "torch"})
#: The methods and classes with which a loader of PyTorch yields its batches.
_ITERATION: tuple[tuple[object, str], ...] = (
    (DataLoader, "__iter__"),
    (DataLoader, "_get_iterator"),
    *((kind, name) for kind in (SingleProcessIterator, MultiProcessingIterator) for name in ("__next__", "_next_data")),
    *READER_PLACES,
    (getattr(*READER_PLACES[-1], object), "fetch"),
)


def find_replaced_loader() -> Callable[..., Any] | None:
    """Return the object by which the program has replaced PyTorch's ``DataLoader``; None without a replacement."""
    return None if _IMPORTED is DataLoader else _IMPORTED


def is_class_changed(kind: type[DataLoader[Any]]) -> bool:
    """Return whether other code has replaced a method or a public attribute of the class ``kind``."""
    return any(_is_changed_attribute(*one) for one in vars(kind).items())


def is_iteration_changed() -> bool:
    """Return whether other code has replaced a method or class with which PyTorch's loader yields its batches."""
    for owner, name, value in _VALUES_AT_IMPORT:  # this runs in each epoch, which may be short
        if getattr(owner, name, None) is not value:
            return any(_is_changed_attribute(name, getattr(owner, name, None)) for owner, name in _ITERATION)
    return _CHANGED_AT_IMPORT


def _is_changed_attribute(name: str, value: object) -> bool:
    """Return whether other code has assigned ``value`` to an attribute of a loader or iterator."""
    function: object = value
    if isinstance(value, property):
        function = value.fget
    elif isinstance(value, classmethod | staticmethod):
        function = value.__func__
    if isinstance(function, type):
        return function.__module__.partition(".")[0] not in _KNOWN
    if isinstance(function, FunctionType):
        return str(function.__globals__.get("__name__")).partition(".")[0] not in _KNOWN
    if isinstance(function, WrapperDescriptorType):  # a method of `object`, which Lightning keeps under another name
        return False
    # The classes have no public attributes with other values.
    return callable(function) or not (name.startswith("_") or isinstance(function, Overridable))


_VALUES_AT_IMPORT = tuple((owner, name, getattr(owner, name, None)) for owner, name in _ITERATION)
_CHANGED_AT_IMPORT = any(_is_changed_attribute(name, value) for _, name, value in _VALUES_AT_IMPORT)
