"""What a loader tells of itself under a name that its owner may take for something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

_V_co = TypeVar("_V_co", covariant=True)


class Overridable(Generic[_V_co]):
    """An attribute to read. Whoever sets one of that name, as on PyTorch's loader, has it, and changes nothing else."""

    def __init__(self, tell: Callable[[Any], _V_co], meaning: str) -> None:
        self._tell = tell
        self.__doc__ = meaning

    @overload
    def __get__(self, loader: None, owner: type) -> Overridable[_V_co]: ...

    @overload
    def __get__(self, loader: object, owner: type) -> _V_co: ...

    def __get__(self, loader: object | None, owner: type) -> Any:
        return self if loader is None else self._tell(loader)
