"""What a lambda or local class takes from the function around it, and whether taking it early changes anything."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m

from chirp_migrate.module import Module, matching

_BUILTINS = frozenset(dir(builtins))


def captured_names(module: Module, node: cst.Lambda | cst.ClassDef) -> list[str]:
    """Names that ``node`` reads from enclosing functions, in order of first use."""
    outer: set[str] = set()
    for function in _enclosing_functions(module, node):
        outer |= {name for name, _ in bindings(module, function)}
    inner = {name for name, _ in bindings(module, node)}
    found: list[str] = []
    for name in matching(node, m.Name()):
        assert isinstance(name, cst.Name)
        if name.value in outer and name.value not in inner and name.value not in found and is_read(module, name):
            found.append(name.value)
    return found


def is_variable(module: Module, name: cst.CSTNode) -> bool:
    """Whether a name node is a variable, not an attribute or keyword of the same spelling."""
    parent = module.parents[name]
    if isinstance(parent, cst.Attribute):
        return parent.value is name
    return not (isinstance(parent, cst.Arg) and parent.keyword is name)


def is_read(module: Module, name: cst.Name) -> bool:
    """Whether a name node is a variable being read (not an attribute, a keyword or a target)."""
    parent = module.parents[name]
    if not is_variable(module, name):
        return False
    if isinstance(parent, cst.Param | cst.FunctionDef | cst.ClassDef):
        return parent.name is not name
    return not isinstance(parent, cst.AssignTarget | cst.NameItem | cst.ImportAlias | cst.AsName)


def bindings(module: Module, scope: cst.FunctionDef | cst.Lambda | cst.ClassDef) -> Iterator[tuple[str, int]]:
    """Names bound anywhere inside ``scope`` (parameters, targets, imports, definitions), with their offsets."""
    for parameter in matching(scope, m.Param()):
        assert isinstance(parameter, cst.Param)
        yield parameter.name.value, module.span(parameter)[0]
    targets = m.AssignTarget() | m.AnnAssign() | m.AugAssign() | m.For() | m.CompFor() | m.NamedExpr() | m.AsName()
    for node in matching(scope, targets):
        target = node.name if isinstance(node, cst.AsName) else node.target  # type: ignore[attr-defined]
        pending = [target]
        while pending:
            one = pending.pop()
            if isinstance(one, cst.Name):
                yield one.value, module.span(node)[0]
            elif isinstance(one, cst.Tuple | cst.List):
                pending += [element.value for element in one.elements]
    for alias in matching(scope, m.ImportAlias()):
        assert isinstance(alias, cst.ImportAlias)
        if alias.asname is None:
            yield alias.evaluated_name.partition(".")[0], module.span(alias)[0]
    for definition in matching(scope, m.FunctionDef() | m.ClassDef()):
        assert isinstance(definition, cst.FunctionDef | cst.ClassDef)
        if definition is not scope:
            yield definition.name.value, module.span(definition)[0]


def early_binding_problem(module: Module, node: cst.CSTNode, names: list[str]) -> str | None:
    """Why taking the values of ``names`` where ``node`` stands could differ from reading them when it is called.

    ``None`` when it cannot: no name is bound again later, or it is bound anew in each turn of a loop that ``node``
    does not outlive.
    """
    start = module.span(node)[0]
    function = module.enclosing_function(node)
    if function is None:
        return None
    loop = next((a for a in module.ancestors(node) if isinstance(a, cst.For | cst.While)), None)
    if loop is not None and module.enclosing_function(loop) is not function:
        loop = None
    for name in names:
        places = [offset for bound, offset in bindings(module, function) if bound == name]
        if any(offset > start and not _inside(module, node, offset) for offset in places):
            return f"`{name}` is assigned again after it"
        if (
            loop is not None
            and any(_inside(module, loop, offset) for offset in places)
            and _outlives(module, node, loop)
        ):
            return f"it may outlive the turn of the loop in which `{name}` is assigned"
    if any(isinstance(n, cst.Nonlocal) for n in matching(function, m.Nonlocal())):
        return "the function around it rebinds names from inner functions"
    return None


def _outlives(module: Module, node: cst.CSTNode, loop: cst.For | cst.While) -> bool:
    """Whether something made from ``node`` may be kept beyond the current turn of ``loop``."""
    statement = next((a for a in module.ancestors(node) if isinstance(a, cst.SimpleStatementLine)), None)
    if statement is None:
        return True
    start = module.span(statement)[0]
    carriers = {
        n.value for t in matching(statement, m.AssignTarget()) for n in matching(t, m.Name()) if isinstance(n, cst.Name)
    }
    lines = [s for s in matching(loop, m.SimpleStatementLine()) if module.span(s)[0] >= start]
    for line in sorted(lines, key=lambda s: module.span(s)[0]):
        mentioned = {n.value for n in matching(line, m.Name()) if isinstance(n, cst.Name)}
        if line is not statement and not mentioned & carriers:
            continue
        kept = m.AssignTarget(m.Subscript() | m.Attribute()) | m.Yield()
        grown = m.Call(m.Attribute(attr=m.Name("append") | m.Name("extend") | m.Name("add") | m.Name("insert")))
        if matching(line, kept) or matching(line, grown) or matching(line, m.AugAssign()):
            return True
        targets = matching(line, m.AssignTarget())
        carriers |= {n.value for t in targets for n in matching(t, m.Name()) if isinstance(n, cst.Name)}
    return False


def _inside(module: Module, node: cst.CSTNode, offset: int) -> bool:
    start, end = module.span(node)
    return start <= offset < end


def _enclosing_functions(module: Module, node: cst.CSTNode) -> Iterator[cst.FunctionDef | cst.Lambda]:
    return (a for a in module.ancestors(node) if isinstance(a, cst.FunctionDef | cst.Lambda))
