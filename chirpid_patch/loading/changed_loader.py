"""Find out whether other code has changed a class of loaders, or has put another object in the place of the class."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from torch.utils import data

from chirpid_patch.loading.overridable import Overridable
from chirpid_patch.torch_private import DataLoader

#: The object that the program imports as ``torch.utils.data.DataLoader``. Debugging code may replace the class there.
_IMPORTED: Callable[..., Any] = data.DataLoader
#: Packages whose methods may replace methods of a loader. Methods of a framework record arguments or batches, and build
#: and iterate over the loader as before.
_KNOWN = frozenset({"chirp_migrate", "chirpid_patch", "lightning", "lightning_fabric", "pytorch_lightning", "torch"})


def replaced_loader() -> Callable[..., Any] | None:
    """Return the object that the program has put in the place of PyTorch's ``DataLoader``; None if there is none."""
    return None if _IMPORTED is DataLoader else _IMPORTED


def is_changed(kind: type[DataLoader[Any]]) -> bool:
    """Return whether other code has assigned to a method or public attribute of a class."""
    return any(is_changed_attribute(*one) for one in vars(kind).items())


def is_changed_attribute(name: str, value: object) -> bool:
    """Return whether other code has assigned the value of an attribute of ``DataLoader`` or of our loader."""
    function: object = value
    if isinstance(value, property):
        function = value.fget
    elif isinstance(value, classmethod | staticmethod):
        function = value.__func__
    if isinstance(function, FunctionType):
        return str(function.__globals__.get("__name__")).partition(".")[0] not in _KNOWN
    # The classes have no public attributes with other values.
    return callable(function) or not (name.startswith("_") or isinstance(function, Overridable))
