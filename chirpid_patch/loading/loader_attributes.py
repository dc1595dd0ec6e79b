"""Attributes that describe a loader. Users may assign other values, which do not affect the loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

_V_co = TypeVar("_V_co", covariant=True)


class Overridable(Generic[_V_co]):
    """An attribute of a loader, which computes the value whenever code reads the attribute.

    Users may assign another value. The attribute then has this value, but the loader loads as before.

    Args:
        compute: function that computes the attribute from the loader.
        meaning: docstring of the attribute.
    """

    def __init__(self, compute: Callable[[Any], _V_co], meaning: str) -> None:
        self._compute = compute
        self.__doc__ = meaning

    @overload
    def __get__(self, loader: None, owner: type) -> Overridable[_V_co]: ...

    @overload
    def __get__(self, loader: object, owner: type) -> _V_co: ...

    def __get__(self, loader: object | None, owner: type) -> Any:
        return self if loader is None else self._compute(loader)
