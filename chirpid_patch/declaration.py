"""What classes of somebody else's declare that they do, and the object of ours that does it for whole batches.

Asking here calls none of their methods, and no property: it looks at the attributes of the object itself, whenever it
is asked. Whatever is not exactly as it was declared is not served: its own code does the work then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

Class = TypeVar("Class", bound=type)

_DECLARED: WeakKeyDictionary[type, Declaration] = WeakKeyDictionary()


@dataclass(frozen=True)
class Declaration:
    """What a class declares of a method of its own.

    Attributes:
        attributes: the attributes that the method depends on.
        methods: it and the methods that it calls or is called by, as they were when the class was declared.
        held: attributes that hold methods of the object itself, and the names of these.
        build: the object of ours for the values of the attributes; None where it would not do the same.
        of_images: whether the method takes images, which no object of ours does: it only says how they are masked.
    """

    attributes: tuple[str, ...]
    methods: Mapping[str, FunctionType]
    held: Mapping[str, str]
    build: Callable[[Mapping[str, Any]], Any]
    of_images: bool = False


def declares(
    attributes: tuple[str, ...],
    calls: tuple[str, ...],
    build: Callable[[Mapping[str, Any]], Any],
    *,
    held: Mapping[str, str] | None = None,
    method: str = "__getitem__",
    inherited: Mapping[str, FunctionType] | None = None,
    of_images: bool = False,
) -> Callable[[Class], Class]:
    """A decorator that keeps what a class declares of ``method``, which methods it has from elsewhere call.

    These are ``inherited``. Raises TypeError if the class has not the methods it names.
    """

    def decorate(kind: Class) -> Class:
        methods = dict(inherited or {})
        for name in (method, *calls, *(held or {}).values()):
            found = vars(kind).get(name)
            if not isinstance(found, FunctionType):
                raise TypeError(f"{kind.__qualname__} declares what it does, but has no method {name} of its own")
            methods[name] = found
        _DECLARED[kind] = Declaration(attributes, methods, dict(held or {}), build, of_images)
        return kind

    return decorate


def served(declared: Any, *, of_images: bool = False) -> Any:
    """The object of ours that does what ``declared`` declares, as it is now; ``declared`` where there is none.

    It has ``declared`` in an attribute of that name, unless it masks images.
    """
    declaration = _declaration_of(type(declared))
    if declaration is None or declaration.of_images is not of_images:
        return declared
    state = vars(declared)
    replaced = any(name in state for name in (*declaration.methods, "__getitems__"))
    if replaced or not all(name in state for name in declaration.attributes):
        return declared
    for name, method in declaration.held.items():
        value = state.get(name)
        if type(value) is not MethodType or value.__self__ is not declared:
            return declared
        if value.__func__ is not declaration.methods[method]:
            return declared
    view = declaration.build(state)
    if view is None:
        return declared
    if not of_images:
        vars(view)["declared"] = declared  # around nn.Module, which would make it a part of the view
    return view


def _declaration_of(kind: type) -> Declaration | None:
    """What ``kind`` or a class above it declares, if that is still what it does."""
    if not _DECLARED:
        return None
    declaring = next((one for one in kind.__mro__ if one in _DECLARED), None)
    if declaring is None:
        return None
    declaration = _DECLARED[declaring]
    plain: object = object.__getattribute__
    if kind.__getattribute__ is not plain or hasattr(kind, "__getitems__"):
        return None
    if "__getitem__" in declaration.methods and hasattr(kind, "__getattr__"):  # which is asked for __getitems__
        return None
    if any(getattr(kind, name, None) is not method for name, method in declaration.methods.items()):
        return None
    names = (*declaration.attributes, *declaration.held)
    if any(is_computed(kind, name) for name in names):
        return None
    return declaration


def is_computed(kind: type, name: str) -> bool:
    """Whether an attribute ``name`` of objects of ``kind`` is code of the class, such as a property."""
    found = type(next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None))
    return hasattr(found, "__get__") and (hasattr(found, "__set__") or hasattr(found, "__delete__"))
