"""Classes of transforms that do nothing themselves: they call one function, or several one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from chirp_migrate.syntax.queries import DOCSTRING, only_methods

SUPER_INIT = m.SimpleStatementLine([m.Expr(m.Call(m.Attribute(m.Call(m.Name("super")), m.Name("__init__")), args=[]))])
#: Refusing an argument is not doing anything with it.
_REFUSAL = m.If(body=m.IndentedBlock([m.SimpleStatementLine([m.Raise()])]), orelse=None)
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


def handing_on(definition: cst.ClassDef) -> DelegatingTransform | None:
    """How a class hands its argument on; None where it does anything else, or inherits anything."""
    bases = [one for one in definition.bases if not m.matches(one, m.Arg(m.Name("object")))]
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
    target = m.AssignTarget(m.Attribute(m.Name(owner), m.SaveMatchedNode(m.Name(), "attribute")))
    found = None
    for statement in init.body.body:
        if m.matches(statement, DOCSTRING | SUPER_INIT | _REFUSAL):
            continue
        match = m.extract(statement, m.SimpleStatementLine([m.Assign([target], m.Name(parameter))]))
        if match is None or found is not None:
            return None
        attribute = match["attribute"]
        assert isinstance(statement, cst.SimpleStatementLine) and isinstance(attribute, cst.Name)
        found = (parameter, attribute.value, statement)
    return found


def _composes(call: cst.FunctionDef, attribute: str) -> bool | None:
    """Whether ``__call__`` goes through what ``attribute`` holds (True), calls it (False), or does neither (None)."""
    names = _two_parameters(call)
    if names is None or call.params.params[1].default is not None:
        return None
    owner, value = names
    body = [one for one in call.body.body if not m.matches(one, DOCSTRING)]
    kept = m.Attribute(m.Name(owner), m.Name(attribute))
    given = [m.Arg(m.Name(value), keyword=None, star="")]
    if len(body) == 1 and m.matches(body[0], m.SimpleStatementLine([m.Return(m.Call(kept, given))])):
        return False
    each = body[0].target if len(body) == 2 and isinstance(body[0], cst.For) else None
    if not isinstance(each, cst.Name) or each.value in names:
        return None
    step = m.Assign([m.AssignTarget(m.Name(value))], m.Call(m.Name(each.value), given))
    loop = m.For(iter=kept, body=m.IndentedBlock([m.SimpleStatementLine([step])]), orelse=None, asynchronous=None)
    returned = m.SimpleStatementLine([m.Return(m.Name(value))])
    return True if m.matches(body[0], loop) and m.matches(body[1], returned) else None
