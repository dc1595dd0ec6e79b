"""Declarations of the project's classes, and objects of this package that compute the same for whole batches.

Reading a declaration calls no method and no property: it reads the attributes of the object itself, each time. If an
object differs in any way from its declaration, its own code runs.
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
    """The declaration of one method of a class.

    Attributes:
        attributes: the attributes that the method depends on.
        methods: the method, the methods that it calls, and the methods that call it, as defined when the class was
            decorated.
        held: maps attributes that hold a method of the object to the names of these methods.
        build: returns the object of this package for the values of the attributes; None if that object would not
            compute the same results.
        of_images: whether the method takes images. No object of this package takes images, so the declaration then only
            defines the masks.
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
    """Return a decorator that stores the declaration of ``method`` of a class.

    Args:
        attributes: the attributes that the method depends on.
        calls: names of the methods that ``method`` calls.
        build: returns the object of this package for the values of the attributes.
        held: maps attributes that hold a method of the object to the names of these methods.
        method: name of the declared method.
        inherited: inherited methods that call ``method``.
        of_images: whether the method takes images.

    Raises:
        TypeError: the class lacks a named method.
    """

    def decorate(kind: Class) -> Class:
        methods = dict(inherited or {})
        for name in (method, *calls, *(held or {}).values()):
            found = vars(kind).get(name)
            if not isinstance(found, FunctionType):
                raise TypeError(f"{kind.__qualname__} declares what it does, but does not define a method {name}")
            methods[name] = found
        _DECLARED[kind] = Declaration(attributes, methods, dict(held or {}), build, of_images)
        return kind

    return decorate


def batched_object_for(declared: Any, *, of_images: bool = False) -> Any:
    """Return the object of this package that computes the same as ``declared``; ``declared`` itself if there is none.

    The result has an attribute ``declared``, unless it masks images.
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
    """Return the declaration of ``kind`` or of a base class; None if the declared methods have been replaced since."""
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
    """Return whether code of the class ``kind``, such as a property, computes the attribute ``name`` of its objects."""
    found = type(next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None))
    return hasattr(found, "__get__") and (hasattr(found, "__set__") or hasattr(found, "__delete__"))
