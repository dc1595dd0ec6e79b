"""Classes of transforms that do nothing themselves: they call one function, or several one after the other."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.queries import is_docstring, is_name, only_methods, plain_source

#: Methods that could change what an attribute or a call means.
_MEDDLING = frozenset({"__getattr__", "__getattribute__", "__setattr__", "__new__", "__init_subclass__"})


@dataclass(frozen=True)
class DelegatingTransform:
    """A class whose instances hand their argument on.

    Attributes:
        composes: whether to several callables in turn, else to one.
        parameter: of ``__init__``, what it is handed on to.
        attribute: where that is kept.
        store: the statement that keeps it.
        init, call: the ``__init__`` and ``__call__`` methods.
    """

    composes: bool
    parameter: str
    attribute: str
    store: cst.SimpleStatementLine
    init: cst.FunctionDef
    call: cst.FunctionDef


def initialises_super(module: Module, statement: cst.CSTNode) -> bool:
    """Whether a statement is just ``super().__init__()``."""
    return re.fullmatch(r"super\([\w., ]*\)\.__init__\(\)", plain_source(module, statement)) is not None


def handing_on(module: Module, definition: cst.ClassDef) -> DelegatingTransform | None:
    """How a class hands its argument on; None where it does anything else, or inherits anything."""
    bases = [base for base in definition.bases if not is_name(base.value, "object")]
    unusual = definition.keywords or definition.decorators or definition.type_parameters
    methods = only_methods(definition) or {}
    if bases or unusual:
        return None
    init, call = methods.get("__init__"), methods.get("__call__")
    if init is None or call is None or not _MEDDLING.isdisjoint(methods):
        return None
    kept = _kept(module, init)
    if kept is None:
        return None
    composes = _composes(module, call, kept[1])
    return None if composes is None else DelegatingTransform(composes, *kept, init, call)


def _two_parameters(method: cst.FunctionDef) -> tuple[str, str] | None:
    """The names of ``self`` and of the one parameter beside it, if there are no more."""
    given = method.params
    more = given.kwonly_params or given.posonly_params or given.star_kwarg or isinstance(given.star_arg, cst.Param)
    unusual = method.decorators or method.asynchronous or not isinstance(method.body, cst.IndentedBlock)
    if unusual or more or len(given.params) != 2:
        return None
    return given.params[0].name.value, given.params[1].name.value


def _kept(module: Module, init: cst.FunctionDef) -> tuple[str, str, cst.SimpleStatementLine] | None:
    """Parameter, attribute and statement where an ``__init__`` keeps its parameter and does nothing else.

    Refusing an argument, by ``if …: raise …``, is not doing anything with it.
    """
    names = _two_parameters(init)
    if names is None:
        return None
    owner, parameter = names
    found = None
    for statement in init.body.body:
        match statement:
            case cst.If(body=cst.IndentedBlock(body=[cst.SimpleStatementLine(body=[cst.Raise()])]), orelse=None):
                continue
        if is_docstring(statement) or initialises_super(module, statement):
            continue
        store = re.fullmatch(rf"{owner}\.(\w+) = {parameter}", plain_source(module, statement))
        if store is None or found is not None or not isinstance(statement, cst.SimpleStatementLine):
            return None
        found = (parameter, store[1], statement)
    return found


def _composes(module: Module, call: cst.FunctionDef, attribute: str) -> bool | None:
    """Whether ``__call__`` iterates over what ``attribute`` holds (True), calls it (False), or does neither (None)."""
    names = _two_parameters(call)
    if names is None or call.params.params[1].default is not None:
        return None
    kept, value = f"{names[0]}.{attribute}", names[1]
    text = "\n".join(plain_source(module, statement) for statement in call.body.body if not is_docstring(statement))
    if text == f"return {kept}({value})":
        return False
    chain = rf"for (\w+) in {re.escape(kept)}:\n    {value} = \1\({value}\)\nreturn {value}"
    composed = re.fullmatch(chain, text)
    return True if composed is not None and composed[1] not in names else None
