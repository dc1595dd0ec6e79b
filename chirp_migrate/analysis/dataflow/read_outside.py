"""Find code outside a loop that reads the variables of the loop."""

from __future__ import annotations

import libcst as cst

from chirp_migrate.syntax.module import Module, find_nodes
from chirp_migrate.syntax.queries import (
    NameRole,
    contains_node,
    find_name_inspecting_call,
    find_names,
    function_parameters,
    name_role,
)

_USED = (NameRole.READ, NameRole.CHANGED, NameRole.DELETED, NameRole.SHARED)
_SCOPES = (cst.FunctionDef, cst.ClassDef, cst.Lambda)


def is_read_outside_loop(module: Module, loop: cst.For, name: str) -> bool:
    """Return whether code outside a loop, but in the same scope, may read the value that ``name`` gets in the loop."""
    scope = module.enclosing_scope(loop)
    if find_name_inspecting_call(module, scope) is not None:
        return True
    for read in module.named(name):
        if scope not in module.ancestors(read) or name_role(module, read) not in _USED:
            continue
        if contains_node(module, loop, read) or _is_assigned_first(module, read, name, module.span(loop)):
            continue
        binders = (ancestor for ancestor in module.ancestors(read) if ancestor is not scope)
        if not any(_gets_value_from(module, binder, read, name) for binder in binders):
            return True
    return False


def _is_assigned_first(module: Module, read: cst.CSTNode, name: str, loop: tuple[int, int]) -> bool:
    """Return whether ``read`` always gets the value of an assignment outside of the loop."""
    offset = module.span(read)[0]
    for ancestor in module.ancestors(read):
        start, end = module.span(ancestor) if isinstance(ancestor, cst.For | cst.While) else (0, 0)
        if start < loop[0] < end or isinstance(ancestor, _SCOPES):
            break
        for statement in module.once(_assignments, name).get(ancestor, ()):
            place = module.span(statement)[1]
            if place <= offset and (place > loop[1] or offset < loop[0]):
                return True
    return False


def _assignments(module: Module, name: str) -> dict[cst.CSTNode, list[cst.CSTNode]]:
    """Return the statements that assign to ``name``, grouped by the block that directly contains them."""
    found: dict[cst.CSTNode, list[cst.CSTNode]] = {}
    for node in module.named(name):
        parent = module.parents[node]
        while isinstance(parent, cst.Element | cst.StarredElement | cst.Tuple | cst.List):
            parent = module.parents[parent]
        if isinstance(parent, cst.AssignTarget):
            line = module.parents[module.parents[parent]]
            if isinstance(line, cst.SimpleStatementLine):
                found.setdefault(module.parents[line], []).append(line)
    return found


def _gets_value_from(module: Module, binder: cst.CSTNode, read: cst.CSTNode, name: str) -> bool:
    """Return whether ``read`` gets its value from ``binder``, which is a loop, comprehension or function."""
    if isinstance(binder, cst.FunctionDef | cst.Lambda):
        return name in function_parameters(binder)
    if isinstance(binder, cst.For):
        return bool(find_names(binder.target, name)) and contains_node(module, binder.body, read)
    if isinstance(binder, cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp):
        first = contains_node(module, binder.for_in.iter, read)  # evaluated outside of the comprehension
        targets = (one.target for one in find_nodes(binder, cst.CompFor))
        return not first and any(find_names(target, name) for target in targets)
    return False
