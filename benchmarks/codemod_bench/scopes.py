"""Find out which names each scope of a Python module binds, and to what, without regard to order."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

#: A value of a name: a dotted name that is imported, an assigned expression, or None for other values.
Bound = str | ast.expr | None

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Scope:
    """The names that a module, class, function or comprehension binds."""

    parent: Scope | None
    is_class: bool
    names: dict[str, list[Bound]] = field(default_factory=dict)
    global_names: set[str] = field(default_factory=set)

    def bind(self, name: str, value: Bound) -> None:
        """Add a value of a name."""
        scope = self
        if name in self.global_names:
            while scope.parent is not None:
                scope = scope.parent
        scope.names.setdefault(name, []).append(value)

    def lookup(self, name: str) -> Scope | None:
        """Return the scope that binds a name which code in this scope reads."""
        if name in self.names:
            return self
        scope = self.parent
        while scope is not None:
            if name in scope.names and not scope.is_class:
                return scope
            scope = scope.parent
        return None


@dataclass
class Bindings:
    """The scopes and parents of a module, its star imports, and every name that it reads."""

    tree: ast.Module
    scopes: dict[ast.AST, Scope]
    parents: dict[ast.AST, ast.AST]
    stars: list[str]
    uses: list[tuple[ast.expr, Scope]]


def build(tree: ast.Module) -> Bindings:
    """Collect the bindings of a module."""
    result = Bindings(tree, {tree: Scope(None, is_class=False)}, {}, [], [])
    # Outer scopes come first, so that `global` is known before the assignments of the name.
    pending: deque[tuple[ast.AST, Scope]] = deque([(tree, result.scopes[tree])])
    while pending:
        node, scope = pending.popleft()
        _bind(node, scope, result)
        for child, inside in _children(node, scope, result):
            result.parents[child] = node
            pending.append((child, inside))
    return result


def _children(node: ast.AST, scope: Scope, result: Bindings) -> Iterator[tuple[ast.AST, Scope]]:
    """Yield the child nodes with the scope in which each is evaluated."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef, *_COMPREHENSIONS)):
        inner = Scope(scope, is_class=isinstance(node, ast.ClassDef))
        result.scopes[node] = inner
        for name, value in ast.iter_fields(node):
            outside = name in ("decorator_list", "bases", "keywords", "returns")
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield child, scope if outside else inner
        return
    for child in ast.iter_child_nodes(node):
        # Defaults and annotations of parameters belong to the scope around the function.
        yield (
            child,
            scope.parent if isinstance(node, ast.arguments) and isinstance(child, ast.expr) and scope.parent else scope,
        )


def _bind(node: ast.AST, scope: Scope, result: Bindings) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            scope.bind(
                alias.asname or alias.name.split(".")[0], alias.name if alias.asname else alias.name.split(".")[0]
            )
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                result.stars.append(module)
            else:
                joined = f"{module}{'' if module.endswith('.') else '.'}{alias.name}"
                scope.bind(alias.asname or alias.name, joined)
    elif isinstance(node, ast.Global):
        scope.global_names.update(node.names)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope.bind(node.name, None)
    elif isinstance(node, ast.arg):
        scope.bind(node.arg, None)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        scope.bind(node.name, None)
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            result.uses.append((node, scope))
        else:
            value = _assigned(node, result)
            if not _stands_in_for_an_import(node, value, result):
                scope.bind(node.id, value)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        result.uses.append((node, scope))


def _assigned(name: ast.Name, result: Bindings) -> Bound:
    """Return the expression that ``name = …`` assigns, if it can be followed."""
    statement = result.parents.get(name)
    if isinstance(statement, ast.Assign) and name in statement.targets:
        value = statement.value
        return value if isinstance(value, ast.Name | ast.Attribute | ast.IfExp) else None
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.value, ast.Name | ast.Attribute | ast.IfExp):
        return statement.value
    return None


def _stands_in_for_an_import(name: ast.Name, value: Bound, result: Bindings) -> bool:
    """Return whether this is ``except ImportError: DataLoader = None``, a value that cannot be called."""
    statement = result.parents.get(name)
    return (
        value is None
        and isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and isinstance(result.parents.get(statement), ast.ExceptHandler)
    )
