"""Functions that check whether other code has changed or replaced a loader class, as debugging tools do."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType, WrapperDescriptorType
from typing import Any

from torch.utils import data

from chirpid_patch.loading.loader_attributes import Overridable
from chirpid_patch.torch_private import READER_PLACES, DataLoader, MultiProcessingIterator, SingleProcessIterator

#: The object that the program imports as ``torch.utils.data.DataLoader``. Debugging code may have replaced the class.
_IMPORTED: Callable[..., Any] = data.DataLoader
#: A method of a loader counts as unchanged if its function is from one of these packages. The functions of Lightning
#: are harmless: they record arguments or batches, and then call the original method.
_HARMLESS_PACKAGES = frozenset(
    {"chirp_migrate", "chirpid_patch", "lightning", "lightning_fabric", "pytorch_lightning", "torch"}
)
#: The module in which PyTorch looks up its iterators, and the module with the class that fetches samples.
_ITERATORS, _FETCHERS = READER_PLACES[0][0], READER_PLACES[-1][0]


def _iteration() -> tuple[Any, ...]:
    """Return the methods and classes with which a loader of PyTorch yields its batches.

    If this version of PyTorch lacks a method or class, the result is empty, and loaders use PyTorch's own iterators.
    """
    try:  # written for speed, because this code runs at the start of each epoch
        return (
            DataLoader.__iter__,
            DataLoader._get_iterator,
            SingleProcessIterator.__next__,
            SingleProcessIterator._next_data,
            MultiProcessingIterator.__next__,
            MultiProcessingIterator._next_data,
            _ITERATORS._SingleProcessDataLoaderIter,
            _ITERATORS._MultiProcessingDataLoaderIter,
            _FETCHERS._MapDatasetFetcher,
            _FETCHERS._MapDatasetFetcher.fetch,
        )
    except AttributeError:
        return ()


def find_loader_replacement() -> Callable[..., Any] | None:
    """Return the object that has replaced PyTorch's ``DataLoader`` in this program; None without a replacement."""
    return None if _IMPORTED is DataLoader else _IMPORTED


def is_loader_class_patched(kind: type[DataLoader[Any]]) -> bool:
    """Return whether other code has replaced a method or a public attribute of the class ``kind``."""
    return any(_is_changed_attribute(*one) for one in vars(kind).items())


def is_loader_iteration_patched() -> bool:
    """Return whether other code has replaced a method or class with which PyTorch's loader yields its batches."""
    found = _iteration()
    if len(found) == len(_AT_IMPORT) and all(map(operator.is_, found, _AT_IMPORT)):
        return _CHANGED_AT_IMPORT
    return not found or _is_any_changed(found)


def _is_any_changed(found: tuple[Any, ...]) -> bool:
    return any(_is_changed_attribute("_", value) for value in found)


def _is_changed_attribute(name: str, value: object) -> bool:
    """Return whether ``value``, the attribute ``name`` of a loader or iterator class, was assigned by other code."""
    function: object = value
    if isinstance(value, property):
        function = value.fget
    elif isinstance(value, classmethod | staticmethod):
        function = value.__func__
    if isinstance(function, type):
        return function.__module__.partition(".")[0] not in _HARMLESS_PACKAGES
    if isinstance(function, FunctionType):
        return str(function.__globals__.get("__name__")).partition(".")[0] not in _HARMLESS_PACKAGES
    if isinstance(function, WrapperDescriptorType):  # a method of `object` that Lightning stores under another name
        return False
    # In an unchanged class, all other attributes are private or ``Overridable``.
    return callable(function) or not (name.startswith("_") or isinstance(function, Overridable))


_AT_IMPORT = _iteration()
_CHANGED_AT_IMPORT = _is_any_changed(_AT_IMPORT)
