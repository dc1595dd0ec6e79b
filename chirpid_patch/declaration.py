"""Declarations of user classes, from which this package computes whole batches.

A decorator declares the attributes from which a method of a user class computes its result. From the values of these
attributes, this package builds its own object, which computes the same results for whole batches.

For each batch, this package reads the attributes from the ``__dict__`` of the user object, without calling a method or
property. If an object does not match its declaration, the object's own code runs. An example is an object that lacks a
declared attribute.
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
    """The declaration of a method, which names the attributes from which the method computes its result.

    Attributes:
        attributes: names of the attributes that the method depends on.
        methods: maps names of methods to their functions at the time of decoration. The dictionary contains the
            declared method, all methods that the declared method calls, and the inherited methods that call the
            declared method. If other code replaces one of these methods later, this package ignores the declaration.
        held: for methods that are called through an attribute: maps the name of the attribute to the name of the
            method.
        build: function whose argument is the ``__dict__`` of the user object. The function returns an object of this
            package with the same results as the user object, or None if this is not possible.
        of_images: whether the declared method masks 8-bit images, as the decorator ``masks_images`` declares.
    """

    attributes: tuple[str, ...]
    methods: Mapping[str, FunctionType]
    held: Mapping[str, str]
    build: Callable[[Mapping[str, Any]], Any]
    of_images: bool = False


def declare_method(
    attributes: tuple[str, ...],
    calls: tuple[str, ...],
    build: Callable[[Mapping[str, Any]], Any],
    *,
    held: Mapping[str, str] | None = None,
    method: str = "__getitem__",
    inherited: Mapping[str, FunctionType] | None = None,
    of_images: bool = False,
) -> Callable[[Class], Class]:
    """Return a class decorator that stores a declaration of the method with the name ``method``.

    Args:
        attributes: names of the attributes that ``method`` depends on.
        calls: names of the methods that ``method`` calls.
        build: function whose argument is the ``__dict__`` of the user object. The function returns an object of this
            package with the same results as the user object, or None if this is not possible.
        held: for methods that are called through an attribute: maps the name of the attribute to the name of the
            method. For ``self.load = self.load_wav``, pass ``{"load": "load_wav"}``. None: no such attribute.
        method: name of the declared method.
        inherited: dictionary of the inherited methods that call ``method``, with names as keys and functions as
            values; None: no such method.
        of_images: whether ``method`` masks 8-bit images.

    Raises:
        TypeError: ``method``, ``calls`` or ``held`` names a method that the class lacks or only inherits.
    """

    def decorate(kind: Class) -> Class:
        methods = dict(inherited or {})
        for name in (method, *calls, *(held or {}).values()):
            found = vars(kind).get(name)
            if not isinstance(found, FunctionType):
                raise TypeError(f"the decorator of {kind.__qualname__} names a method {name}, which the class lacks")
            methods[name] = found
        _DECLARED[kind] = Declaration(attributes, methods, dict(held or {}), build, of_images)
        return kind

    return decorate


def batched_object_for(declared: Any, *, of_images: bool = False) -> Any:
    """Return an object of this package that computes the same results as ``declared``.

    If this is not possible, return ``declared`` itself. With ``of_images=False``, the new object stores the original
    object in its attribute ``declared``. A transform runs the original object for samples that it cannot transform in
    the same way.

    Args:
        declared: any object, such as a dataset, a transform or an augmenter.
        of_images: True uses only declarations of methods that mask 8-bit images. False uses only other declarations.
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
        # nn.Module.__setattr__ would register ``declared`` as a submodule, so this line does not use setattr.
        vars(view)["declared"] = declared
    return view


def _declaration_of(kind: type) -> Declaration | None:
    """Return the declaration of the class ``kind`` or of its nearest declared base class; None without a declaration.

    The result is also None if other code has replaced a declared method, or if ``kind`` has a method ``__getitems__``.
    The result is also None if ``kind`` computes a declared attribute, for example with a property or
    ``__getattribute__``.
    """
    if not _DECLARED:
        return None
    declaring = next((one for one in kind.__mro__ if one in _DECLARED), None)
    if declaring is None:
        return None
    declaration = _DECLARED[declaring]
    plain: object = object.__getattribute__
    if kind.__getattribute__ is not plain or hasattr(kind, "__getitems__"):
        return None
    if "__getitem__" in declaration.methods and hasattr(kind, "__getattr__"):  # PyTorch's loader looks up __getitems__
        return None
    if any(getattr(kind, name, None) is not method for name, method in declaration.methods.items()):
        return None
    names = (*declaration.attributes, *declaration.held)
    if any(is_computed_attribute(kind, name) for name in names):
        return None
    return declaration


def is_computed_attribute(cls: type, name: str) -> bool:
    """Return whether the attribute ``name`` of objects of ``cls`` is computed by a property or another descriptor."""
    found = type(next((vars(one)[name] for one in cls.__mro__ if name in vars(one)), None))
    return hasattr(found, "__get__") and (hasattr(found, "__set__") or hasattr(found, "__delete__"))
