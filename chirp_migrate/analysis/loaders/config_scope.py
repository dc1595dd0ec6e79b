"""Where a training configuration dictionary is within reach of an expression."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.origins import backend_holds
from chirp_migrate.syntax.module import Module, matching
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import methods_of

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
    if function is None or backend_holds(project, r"\bdef\s+get\s*\(", "get"):
        return None
    owner, end = module.enclosing_class(node), module.span(node)[1]
    for name in _CONFIG_NAMES:
        if owner is not None and _has_self(function):
            attribute = m.Attribute(m.Name("self"), m.Name(name))
            if _is_read(module, function, attribute, node, end):
                return f"self.{name}"
            init = methods_of(owner).get("__init__")
            given = matching(owner, m.AssignTarget(attribute))
            if (
                init is not None
                and init is not function
                and all(module.enclosing_function(one) is init for one in given)
                and _is_read(module, init, attribute, init.body, module.span(init)[1])
            ):
                return f"self.{name}"
        if _is_read(module, function, m.Name(name), node, end):
            return name
    return None


def _has_self(function: cst.FunctionDef) -> bool:
    return bool(function.params.params) and function.params.params[0].name.value == "self"


def _is_read(
    module: Module, function: cst.FunctionDef, mapping: m.BaseMatcherNode, node: cst.CSTNode, end: int
) -> bool:
    """Whether ``function`` has surely read ``mapping`` before ``end``, if it has come to ``node``."""
    get = m.Attribute(mapping, m.Name("get"))  # type: ignore[arg-type]
    default = m.Integer() | m.Float() | m.Name("None") | m.Name("True") | m.Name("False")
    plain = m.Arg(m.SimpleString(), keyword=None)
    reads = matching(function.body, m.Call(get, [plain]) | m.Call(get, [plain, m.Arg(default, keyword=None)]))
    given = [module.span(one)[0] for one in _bindings(function, mapping)]
    around = {node, *module.ancestors(node)}
    return any(
        module.span(read)[1] <= end
        and not any(module.span(read)[0] < place < end for place in given)
        and _is_evaluated(module, read, around)
        for read in reads
    )


def _bindings(function: cst.FunctionDef, name: m.BaseMatcherNode) -> Iterable[cst.CSTNode]:
    """Where ``name`` gets another value, or none, in ``function``."""
    target: Any = name
    kinds = m.AssignTarget(target) | m.AnnAssign(target) | m.NamedExpr(target) | m.AugAssign(target) | m.Del(target)
    return matching(function.body, kinds | m.For(target) | m.CompFor(target) | m.AsName(target))


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
