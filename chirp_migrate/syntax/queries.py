"""Small questions about nodes of a LibCST tree: dotted names, parameters, what a scope binds, and its own code."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m

from chirp_migrate.syntax.module import Module, code_children, matching

_DEFINITIONS = frozenset({cst.FunctionDef, cst.ClassDef, cst.Lambda})


def dotted(node: cst.CSTNode) -> str | None:
    """``name`` or ``name.attribute…`` without spaces; ``None`` for any other expression."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        owner = dotted(node.value)
        return None if owner is None else f"{owner}.{node.attr.value}"
    return None


def own_nodes(scope: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Nodes of code below ``scope``, without what lies in functions, classes and lambdas inside it."""
    pending = list(code_children(scope))
    while pending:
        current = pending.pop()
        yield current
        if type(current) not in _DEFINITIONS:
            pending += code_children(current)


def parameters(scope: cst.CSTNode) -> dict[str, cst.Param]:
    """Parameters of a function by name, all kinds; none for a module."""
    if not isinstance(scope, cst.FunctionDef | cst.Lambda):
        return {}
    found = [*scope.params.posonly_params, *scope.params.params, *scope.params.kwonly_params]
    found += [one for one in (scope.params.star_arg, scope.params.star_kwarg) if isinstance(one, cst.Param)]
    return {one.name.value: one for one in found}


def binding_scope(module: Module, node: cst.CSTNode, name: str) -> cst.CSTNode:
    """Where ``name`` gets its value: the class for ``self.…``, else the nearest scope that binds it, or the module."""
    first = name.partition(".")[0]
    if first == "self" and "." in name:
        return module.enclosing_class(node) or module.tree
    found = module.scopes.lookup(first, node)
    return module.tree if found is None else found[0].node


def binds(function: cst.CSTNode, name: str) -> bool:
    """Whether a function has ``name`` as a parameter or assigns to it."""
    return name in parameters(function) or any(_target_names(one, name) for one in own_nodes(function))


def _target_names(node: cst.CSTNode, name: str) -> bool:
    target = node.target if isinstance(node, cst.AssignTarget | cst.AnnAssign | cst.For) else None
    return target is not None and bool(matching(target, m.Name(name)))


def is_super_init(statement: cst.CSTNode) -> bool:
    """Whether a statement is just ``super().__init__()`` in one of its spellings, or ``Dataset.__init__(self)``."""
    call = m.Call(m.Attribute(m.Call(m.Name("super")) | m.Name("Dataset"), m.Name("__init__")))
    if not m.matches(statement, m.SimpleStatementLine([m.Expr(call)])):
        return False
    arguments = statement.body[0].value.args  # type: ignore[attr-defined]
    return all(m.matches(argument.value, m.Name("self")) for argument in arguments)
