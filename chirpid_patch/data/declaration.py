"""What dataset classes of somebody else's declare of their samples, and the dataset of ours that this makes of one.

Reading a declared dataset here calls none of its methods, and no property: it looks at the attributes of the object
itself, whenever it is asked. Whatever is not exactly as it was declared is not served: its own code reads it then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

_DECLARED: WeakKeyDictionary[type, Declaration] = WeakKeyDictionary()


@dataclass(frozen=True)
class Declaration:
    """What a class declares of its samples.

    Attributes:
        attributes: the attributes that samples depend on.
        methods: ``__getitem__`` and the methods that it calls, as they were when the class was declared.
        held: attributes that hold methods of the object itself, and the names of these.
        build: the dataset of ours for the values of the attributes; None where it would not be the same.
    """

    attributes: tuple[str, ...]
    methods: Mapping[str, FunctionType]
    held: Mapping[str, str]
    build: Callable[[Mapping[str, Any]], Any]


def declare(
    kind: type,
    attributes: tuple[str, ...],
    calls: tuple[str, ...],
    held: Mapping[str, str],
    build: Callable[[Mapping[str, Any]], Any],
) -> None:
    """Keep what ``kind`` declares. Raises TypeError if it has not the methods it names."""
    methods: dict[str, FunctionType] = {}
    for name in ("__getitem__", *calls, *held.values()):
        method = vars(kind).get(name)
        if not isinstance(method, FunctionType):
            raise TypeError(
                f"{kind.__qualname__} declares how its samples are read, but has no method {name} of its own"
            )
        methods[name] = method
    _DECLARED[kind] = Declaration(attributes, methods, dict(held), build)


def served(dataset: Any) -> Any:
    """The dataset of ours that reads what ``dataset`` declares, as it is now; ``dataset`` where there is none."""
    declaration = _declaration_of(type(dataset))
    if declaration is None:
        return dataset
    state = vars(dataset)
    if any(name in state for name in declaration.methods) or not all(name in state for name in declaration.attributes):
        return dataset
    for name, method in declaration.held.items():
        value = state.get(name)
        if type(value) is not MethodType or value.__self__ is not dataset:
            return dataset
        if value.__func__ is not declaration.methods[method]:
            return dataset
    view = declaration.build(state)
    return dataset if view is None else view


def _declaration_of(kind: type) -> Declaration | None:
    """What ``kind`` or a class above it declares, if that is still how its samples are read."""
    if not _DECLARED:
        return None
    declaring = next((one for one in kind.__mro__ if one in _DECLARED), None)
    if declaring is None:
        return None
    declaration = _DECLARED[declaring]
    plain: object = object.__getattribute__
    if kind.__getattribute__ is not plain or hasattr(kind, "__getitems__"):
        return None
    if any(getattr(kind, name, None) is not method for name, method in declaration.methods.items()):
        return None
    names = (*declaration.attributes, *declaration.held)
    if any(_is_computed(kind, name) for name in names):
        return None
    return declaration


def _is_computed(kind: type, name: str) -> bool:
    """Whether an attribute ``name`` of objects of ``kind`` is code of the class, such as a property."""
    found = next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None)
    return hasattr(type(found), "__get__") and hasattr(type(found), "__set__")
