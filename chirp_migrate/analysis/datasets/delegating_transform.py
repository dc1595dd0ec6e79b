"""Recognise transform classes that only call one function, or several functions in turn."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.queries import is_docstring, is_name, methods_of_plain_class, normalized_source


@dataclass(frozen=True)
class DelegatingTransform:
    """A class whose objects only pass their argument on to other callables.

    Attributes:
        composes: whether an object calls several callables in turn, instead of a single callable.
        attribute: name of the attribute with the callables, or with the single callable.
    """

    composes: bool
    attribute: str


def match_delegating_transform(module: Module, definition: cst.ClassDef) -> DelegatingTransform | None:
    """Return how the objects of a class pass on their argument; None if a call of an object has any other effect."""
    bases = [base for base in definition.bases if not is_name(base.value, "object")]
    if bases or definition.keywords or definition.decorators or definition.type_parameters:
        return None
    methods = methods_of_plain_class(definition) or {}
    call = methods.get("__call__")
    names = None if call is None else _two_parameters(call)
    if call is None or names is None:
        return None
    owner, value = names
    text = "\n".join(
        normalized_source(module, statement) for statement in call.body.body if not is_docstring(statement)
    )
    if (applied := re.fullmatch(rf"return {owner}\.(\w+)\({value}\)", text)) is not None:
        return None if applied[1] in methods else DelegatingTransform(False, applied[1])
    chain = rf"for (\w+) in {owner}\.(\w+):\n    {value} = \1\({value}\)\nreturn {value}"
    if (composed := re.fullmatch(chain, text)) is not None and composed[1] not in names and composed[2] not in methods:
        return DelegatingTransform(True, composed[2])
    return None


def _two_parameters(method: cst.FunctionDef) -> tuple[str, str] | None:
    """Return the names of a method's two parameters; None for other signatures."""
    given = method.params
    more = given.kwonly_params or given.posonly_params or given.star_kwarg or isinstance(given.star_arg, cst.Param)
    unusual = method.decorators or method.asynchronous or not isinstance(method.body, cst.IndentedBlock)
    if unusual or more or len(given.params) != 2 or given.params[1].default is not None:
        return None
    return given.params[0].name.value, given.params[1].name.value
