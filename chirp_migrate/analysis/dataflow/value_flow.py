"""Find the next step in the flow of an expression's value.

For the value of ``x`` in ``f(x)``, the next step is :class:`CallArgument`. Analyses trace a value by several steps. All
analyses, such as those of loaders and of functions, use the same steps. After each step, the analysis decides whether
and where the trace continues.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from chirp_migrate.syntax.module import Module


@dataclass(frozen=True)
class ConditionalOperand:
    """The value may become the value of ``whole``, which is a conditional expression, ``and`` or ``or``."""

    whole: cst.IfExp | cst.BooleanOperation


@dataclass(frozen=True)
class ContainerElement:
    """The value becomes an element of the literal container ``display``.

    For a starred value, as in ``[*x]``, the elements of the value become elements of the container.
    """

    element: cst.Element | cst.StarredElement
    display: cst.CSTNode


@dataclass(frozen=True)
class DictEntry:
    """The value is stored under ``key`` in ``display``, a literal dictionary."""

    key: cst.BaseExpression
    display: cst.CSTNode


@dataclass(frozen=True)
class ValueAssignment:
    """The value is assigned to each of ``targets``."""

    targets: tuple[cst.BaseExpression, ...]
    statement: cst.Assign | cst.AnnAssign | cst.NamedExpr


@dataclass(frozen=True)
class ParameterDefault:
    """The value becomes the default value of a parameter."""

    parameter: cst.Param


@dataclass(frozen=True)
class CallArgument:
    """The value becomes an argument of a call."""

    argument: cst.Arg
    call: cst.Call


@dataclass(frozen=True)
class BaseClass:
    """The value is a base class or a keyword argument in the header of a class."""

    definition: cst.ClassDef


@dataclass(frozen=True)
class CalledValue:
    """Code calls the value, as in ``x()``."""

    call: cst.Call


@dataclass(frozen=True)
class ReturnValue:
    """A function returns the value."""

    statement: cst.Return


@dataclass(frozen=True)
class IteratedValue:
    """A loop or comprehension iterates over the value."""

    loop: cst.For | cst.CompFor


@dataclass(frozen=True)
class AttributeRead:
    """Code reads an attribute of the value."""

    attribute: cst.Attribute


Step = (
    ConditionalOperand
    | ContainerElement
    | DictEntry
    | ValueAssignment
    | ParameterDefault
    | CallArgument
    | BaseClass
    | CalledValue
    | ReturnValue
    | IteratedValue
    | AttributeRead
)


def next_use_of_value(module: Module, node: cst.CSTNode) -> Step | None:
    """Return how the code around ``node`` uses the value of ``node``.

    The result is ``None`` if no class in this module describes the use.
    """
    parent = module.parents[node]
    match parent:
        case cst.BooleanOperation():
            return ConditionalOperand(parent)
        case cst.IfExp(test=test) if test is not node:
            return ConditionalOperand(parent)
        case cst.Element() | cst.StarredElement():
            return ContainerElement(parent, module.parents[parent])
        case cst.DictElement(key=key, value=value) if value is node:
            return DictEntry(key, module.parents[parent])
        case cst.Assign():
            return ValueAssignment(tuple(one.target for one in parent.targets), parent)
        case cst.AnnAssign(target=target, value=value) | cst.NamedExpr(target=target, value=value) if value is node:
            return ValueAssignment((target,), parent)
        case cst.Param(default=default) if default is node:
            return ParameterDefault(parent)
        case cst.Arg():
            match module.parents[parent]:
                case cst.Call() as call:
                    return CallArgument(parent, call)
                case cst.ClassDef() as definition:
                    return BaseClass(definition)
        case cst.Call(func=function) if function is node:
            return CalledValue(parent)
        case cst.Return():
            return ReturnValue(parent)
        case cst.For(iter=iterable) | cst.CompFor(iter=iterable) if iterable is node:
            return IteratedValue(parent)
        case cst.Attribute(value=value) if value is node:
            return AttributeRead(parent)
    return None
