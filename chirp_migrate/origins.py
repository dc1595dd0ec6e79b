"""Where names get their values, and what the backend holds anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import libcst as cst

from chirp_migrate.dataset_names import binding_scope, dotted, own_nodes, parameters
from chirp_migrate.module import Module, walk
from chirp_migrate.project import Project

__all__ = ["Origin", "backend_holds", "origins", "scope_of"]

_GIVING: WeakKeyDictionary[Module, dict[cst.CSTNode, list[cst.CSTNode]]] = WeakKeyDictionary()
_FOUND: WeakKeyDictionary[Project, dict[str, bool]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Origin:
    """A value given to a name: all of ``value``, or its element at position ``part``."""

    value: cst.BaseExpression
    part: int | None = None


def origins(module: Module, scope: cst.CSTNode, name: str) -> tuple[list[Origin], list[cst.BaseExpression]]:
    """Values that ``name`` is given in ``scope`` by assignments and ``with``, and its annotations there."""
    values: list[Origin] = []
    annotations: list[cst.BaseExpression] = []
    for node in _giving(module, scope):
        if isinstance(node, cst.AnnAssign) and dotted(node.target) == name:
            annotations.append(node.annotation.annotation)
            values += [Origin(node.value)] if node.value is not None else []
        elif isinstance(node, cst.Assign):
            values += [one for target in node.targets for one in _assigned(target.target, node.value, name)]
        elif isinstance(node, cst.NamedExpr) and dotted(node.target) == name:
            values.append(Origin(node.value))
        elif isinstance(node, cst.WithItem) and node.asname is not None and dotted(node.asname.name) == name:
            values.append(Origin(node.item))
    parameter = parameters(scope).get(name)
    if parameter is not None and parameter.annotation is not None:
        annotations.append(parameter.annotation.annotation)
    return values, annotations


def backend_holds(project: Project, pattern: str) -> bool:
    """Whether a regular expression matches in any file of the backend.

    It is looked up once: ask for what no rewriting adds.
    """
    found = _FOUND.setdefault(project, {})
    if pattern not in found:
        found[pattern] = project.search(pattern)
    return found[pattern]


def scope_of(module: Module, node: cst.CSTNode, name: str) -> cst.CSTNode:
    """Where ``name`` gets its value, as ``binding_scope`` says, ``with … as name`` included."""
    scope = binding_scope(module, node, name)
    if not isinstance(scope, cst.Module):
        return scope
    functions = (one for one in module.ancestors(node) if isinstance(one, cst.FunctionDef))
    return next((one for one in functions if origins(module, one, name)[0]), scope)


def _giving(module: Module, scope: cst.CSTNode) -> list[cst.CSTNode]:
    """Statements and clauses of a scope that give values to names; of a class, in all its methods."""
    known = _GIVING.setdefault(module, {})
    if scope not in known:
        kinds = cst.Assign | cst.AnnAssign | cst.WithItem | cst.NamedExpr
        nodes = walk(scope) if isinstance(scope, cst.ClassDef) else own_nodes(scope)
        known[scope] = [node for node in nodes if isinstance(node, kinds)]
    return known[scope]


def _assigned(target: cst.BaseExpression, value: cst.BaseExpression, name: str) -> Iterator[Origin]:
    if dotted(target) == name:
        yield Origin(value)
    elif isinstance(target, cst.Tuple | cst.List):
        pairwise = isinstance(value, cst.Tuple | cst.List) and len(value.elements) == len(target.elements)
        for position, element in enumerate(target.elements):
            if pairwise and isinstance(value, cst.Tuple | cst.List):
                yield from _assigned(element.value, value.elements[position].value, name)
            elif dotted(element.value) == name:
                yield Origin(value, position)
