"""Whether a class does what one of this package does: it may be a subclass that replaced something."""

from __future__ import annotations

from types import FunctionType
from typing import Any

_PACKAGE = __name__.partition(".")[0]
#: What a subclass may say otherwise without its samples being read otherwise.
_FREE = frozenset({"__init__", "__len__", "__getstate__", "__setstate__", "extra_repr", "set_training"})


#: What was found for a class and a shipped one: it is asked for every batch.
_found: dict[tuple[type[Any], type[Any]], bool] = {}


def runs_code_of(kind: type[Any], shipped: type[Any]) -> bool:
    """Whether ``kind`` is ``shipped``, or inherits from it every method and property that matters for samples."""
    found = _found.get((kind, shipped))
    if found is None:
        found = _found[kind, shipped] = issubclass(kind, shipped) and _is_unchanged(kind, shipped)
    return found


def _is_unchanged(kind: type[Any], shipped: type[Any]) -> bool:
    ours = [base for base in shipped.__mro__ if base.__module__.partition(".")[0] == _PACKAGE]
    names = {name for base in ours for name, value in vars(base).items() if isinstance(value, FunctionType | property)}
    return all(getattr(kind, name) is getattr(shipped, name) for name in names - _FREE)
