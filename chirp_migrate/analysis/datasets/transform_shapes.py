"""Classes of transforms that do nothing themselves: they call one function, or several one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from chirp_migrate.syntax.queries import dotted, is_docstring, is_name, is_super, method_called, only_methods

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


def initialises_super(statement: cst.CSTNode) -> bool:
    """Whether a statement is just ``super().__init__()``."""
    match statement:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Call(func=cst.Attribute(value=owner), args=[]) as call)]):
            return is_super(owner) and method_called(call) == "__init__"
    return False


def _refuses(statement: cst.CSTNode) -> bool:
    """Whether a statement is ``if …: raise …``: refusing an argument is not doing anything with it."""
    match statement:
        case cst.If(body=cst.IndentedBlock(body=[cst.SimpleStatementLine(body=[cst.Raise()])]), orelse=None):
            return True
    return False


def handing_on(definition: cst.ClassDef) -> DelegatingTransform | None:
    """How a class hands its argument on; None where it does anything else, or inherits anything."""
    bases = [one for one in definition.bases if not is_name(one.value, "object")]
    unusual = definition.keywords or definition.decorators or definition.type_parameters
    methods = only_methods(definition) or {}
    if bases or unusual:
        return None
    init, call = methods.get("__init__"), methods.get("__call__")
    if init is None or call is None or not _MEDDLING.isdisjoint(methods):
        return None
    kept = _kept(init)
    if kept is None:
        return None
    composes = _composes(call, kept[1])
    return None if composes is None else DelegatingTransform(composes, *kept, init, call)


def _two_parameters(method: cst.FunctionDef) -> tuple[str, str] | None:
    """The names of ``self`` and of the one parameter beside it, if there are no more."""
    given = method.params
    more = given.kwonly_params or given.posonly_params or given.star_kwarg or isinstance(given.star_arg, cst.Param)
    if method.decorators or method.asynchronous or more or len(given.params) != 2:
        return None
    return given.params[0].name.value, given.params[1].name.value


def _kept(init: cst.FunctionDef) -> tuple[str, str, cst.SimpleStatementLine] | None:
    """Parameter, attribute and statement where an ``__init__`` keeps its parameter and does nothing else."""
    names = _two_parameters(init)
    if names is None:
        return None
    owner, parameter = names
    found = None
    for statement in init.body.body:
        if is_docstring(statement) or initialises_super(statement) or _refuses(statement):
            continue
        match statement:
            case cst.SimpleStatementLine(
                body=[
                    cst.Assign(
                        targets=[cst.AssignTarget(target=cst.Attribute(value=kept_on, attr=cst.Name(value=attribute)))],
                        value=value,
                    )
                ]
            ) if found is None and is_name(kept_on, owner) and is_name(value, parameter):
                found = (parameter, attribute, statement)
            case _:
                return None
    return found


def _composes(call: cst.FunctionDef, attribute: str) -> bool | None:
    """Whether ``__call__`` goes through what ``attribute`` holds (True), calls it (False), or does neither (None)."""
    names = _two_parameters(call)
    if names is None or call.params.params[1].default is not None:
        return None
    owner, value = names
    kept = f"{owner}.{attribute}"
    match [one for one in call.body.body if not is_docstring(one)]:
        case [cst.SimpleStatementLine(body=[cst.Return(value=cst.Call() as made)])]:
            return False if _calls_with(made, kept, value) else None
        case [
            cst.For(
                target=cst.Name(value=each),
                iter=held,
                body=cst.IndentedBlock(
                    body=[
                        cst.SimpleStatementLine(
                            body=[cst.Assign(targets=[cst.AssignTarget(target=target)], value=cst.Call() as made)]
                        )
                    ]
                ),
                orelse=None,
                asynchronous=None,
            ),
            cst.SimpleStatementLine(body=[cst.Return(value=returned)]),
        ] if each not in names and dotted(held) == kept and _calls_with(made, each, value):
            return True if is_name(target, value) and is_name(returned, value) else None
    return None


def _calls_with(call: cst.Call, function: str, value: str) -> bool:
    """Whether a call is ``function(value)``."""
    match call.args:
        case [cst.Arg(value=given, keyword=None, star="")]:
            return dotted(call.func) == function and is_name(given, value)
    return False
