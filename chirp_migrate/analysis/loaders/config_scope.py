"""Where a training configuration dictionary is within reach of an expression."""

from __future__ import annotations

import libcst as cst

from chirp_migrate.syntax.module import Module, find_in, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted, is_name, method_called, methods_of

_CONFIG_NAMES = ("config", "cfg")
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
#: What may be left out, or run later.
_PERHAPS = (cst.IndentedBlock, cst.SimpleStatementSuite, cst.FunctionDef, cst.Lambda, *_COMPREHENSIONS)


def config_expression(module: Module, project: Project, node: cst.CSTNode) -> str | None:
    """Source of the configuration mapping that ``node`` can read (``self.config`` or ``config``), if there is one.

    Only a mapping that the same function, or ``__init__``, has surely read by then counts, with ``.get('key')`` or
    ``.get('key', number)`` (None, True and False too): it may be None or given later, a namespace of parsed arguments
    has no ``get``, a ConfigParser's takes two names, and a class of the backend may have a ``get`` of its own.
    """
    function = module.enclosing_function(node)
    if function is None or project.holds(r"\bdef\s+get\s*\(", "get"):
        return None
    owner, end = module.enclosing_class(node), module.span(node)[1]
    for name in _CONFIG_NAMES:
        if owner is not None and _has_self(function):
            attribute = f"self.{name}"
            if _is_read(module, function, attribute, node, end):
                return attribute
            init = methods_of(owner).get("__init__")
            if init is None or init is function:
                pass
            elif _is_read(module, init, attribute, init.body, module.span(init)[1]):
                given = [one for one in find_in(owner, cst.AssignTarget) if dotted(one.target) == attribute]
                if all(module.enclosing_function(one) is init for one in given):
                    return attribute
        if _is_read(module, function, name, node, end):
            return name
    return None


def _has_self(function: cst.FunctionDef) -> bool:
    return bool(function.params.params) and function.params.params[0].name.value == "self"


def _is_read(module: Module, function: cst.FunctionDef, mapping: str, node: cst.CSTNode, end: int) -> bool:
    """Whether ``function`` has surely read ``mapping`` before ``end``, if it has come to ``node``."""
    reads = [one for one in module.once(_looked_up, function) if _gets(one, mapping)]
    given = [module.span(one)[0] for one in walk(function.body) if _binds(one, mapping)] if reads else []
    around = {node, *module.ancestors(node)}
    return any(
        module.span(read)[1] <= end
        and not any(module.span(read)[0] < place < end for place in given)
        and _is_evaluated(module, read, around)
        for read in reads
    )


def _looked_up(module: Module, function: cst.FunctionDef) -> list[cst.Call]:
    """Calls of a ``get`` in a function."""
    return [one for one in find_in(function.body, cst.Call) if method_called(one) == "get"]


def _gets(call: cst.Call, mapping: str) -> bool:
    """Whether a call is ``mapping.get('key')`` or ``mapping.get('key', number)``."""
    if dotted(call.func) != f"{mapping}.get" or any(one.keyword is not None for one in call.args):
        return False
    match [one.value for one in call.args]:
        case [cst.SimpleString()] | [cst.SimpleString(), cst.Integer() | cst.Float()]:
            return True
        case [cst.SimpleString(), default]:
            return is_name(default, "None", "True", "False")
    return False


def _binds(node: cst.CSTNode, name: str) -> bool:
    """Whether a node gives ``name`` another value, or none."""
    if isinstance(node, cst.AsName | cst.Del):
        return dotted(node.name if isinstance(node, cst.AsName) else node.target) == name
    kinds = cst.AssignTarget | cst.AnnAssign | cst.NamedExpr | cst.AugAssign | cst.For | cst.CompFor
    return isinstance(node, kinds) and dotted(node.target) == name


def _is_evaluated(module: Module, node: cst.CSTNode, around: set[cst.CSTNode]) -> bool:
    """Whether an expression has been evaluated behind its statement, up to what is ``around`` another one."""
    for ancestor in module.ancestors(node):
        if ancestor in around:
            return True
        first = ancestor.test if isinstance(ancestor, cst.IfExp) else None
        first = ancestor.left if isinstance(ancestor, cst.BooleanOperation) else first
        if isinstance(ancestor, _PERHAPS) or first not in (None, node):
            return False
        node = ancestor
    return False
