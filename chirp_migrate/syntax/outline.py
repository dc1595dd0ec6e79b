"""Parse a module with Python's own ``ast``, to decide which rules need the tree of LibCST.

Parsing with LibCST takes ten times as long as with ``ast``. The functions in this module may return more qualified
names than a name can have, but never fewer.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Concatenate, ParamSpec, TypeVar

from chirp_migrate.syntax.import_table import absolute_name
from chirp_migrate.syntax.module import UnparsableModule, child_nodes, module_name, package_name, syntax_tree

Node = TypeVar("Node", bound=ast.AST)
_Asked = ParamSpec("_Asked")
_T = TypeVar("_T")


class _NodeIndex:
    """The ``ast`` nodes of a source text, in order of the text, with their parents; read-only.

    Attributes:
        all: every node.
        ends: for each node, two positions in ``all``: of the node itself, and after the last node inside the node.
        parents: the parent of each node; the module has none.
    """

    def __init__(self, text: str) -> None:
        self.tree = syntax_tree(text)
        self.all: list[ast.AST] = []
        self.ends: dict[ast.AST, tuple[int, int]] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        try:
            self._enter(self.tree)
        except RecursionError as error:
            raise UnparsableModule("an expression is nested too deeply to be parsed") from error

    def _enter(self, node: ast.AST) -> None:
        start = len(self.all)
        self.all.append(node)
        for child in child_nodes(node):
            self.parents[child] = node
            self._enter(child)
        self.ends[node] = (start, len(self.all))

    @cached_property
    def by_type(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        for node in self.all:
            found[type(node)].append(node)
        return found


@lru_cache(maxsize=2)
def _nodes_of(text: str) -> _NodeIndex:
    """Return the nodes of a text, cached, because the same text is analysed several times."""
    return _NodeIndex(text)


class Outline:
    """The ``ast`` nodes of a module.

    Args:
        path: posix path relative to the root of the project.
        text: source of the module.

    Raises:
        UnparsableModule: the text is not Python.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self._nodes = _nodes_of(text)
        self.tree, self.parents = self._nodes.tree, self._nodes.parents
        self._known: dict[tuple[Any, tuple[Any, ...]], Any] = {}

    def once(self, analysis: Callable[Concatenate[Outline, _Asked], _T], *asked: _Asked.args, **_: _Asked.kwargs) -> _T:
        """Return the result of ``analysis`` for this module, from a cache after the first call."""
        key = (analysis, asked)
        if key not in self._known:
            self._known[key] = analysis(self, *asked, **_)
        return self._known[key]  # type: ignore[no-any-return]

    def inside(self, node: ast.AST) -> Sequence[ast.AST]:
        """Return every node below ``node``, in order of the text."""
        start, end = self._nodes.ends[node]
        return self._nodes.all[start + 1 : end]

    def find(self, *types: type[Node]) -> list[Node]:
        """Return every node of the given types, grouped by type. Nodes of the same type are in source order."""
        return [node for one in types for node in self._nodes.by_type.get(one, ())]  # type: ignore[misc]

    @property
    def name(self) -> str:
        """Return the module's dotted name for imports from the project's root."""
        return module_name(self.path)

    @property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Return every function that is defined anywhere in the module."""
        return [*self.find(ast.FunctionDef), *self.find(ast.AsyncFunctionDef)]

    @property
    def nesting(self) -> int:
        """Return how deeply functions and lambdas are nested; 0 without functions, 1 without nested functions."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        depths: dict[ast.AST, int] = {}
        for node in (self.tree, *self.inside(self.tree)):  # each parent precedes its children
            depths[node] = depths.get(self.parents.get(node, node), 0) + isinstance(node, kinds)
        return max(depths.values())

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the ancestors of ``node``, from its parent to the module."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Return the possible qualified names of each imported name.

        The key "*" has the names of the modules ``m`` in statements ``from m import *``.
        """
        found: dict[str, set[str]] = defaultdict(set)
        package = package_name(self.path)
        for plain in self.find(ast.Import):
            for alias in plain.names:
                first = alias.name.partition(".")[0]
                found[alias.asname or first].add(alias.name if alias.asname else first)
        for node in self.find(ast.ImportFrom):
            source = absolute_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                name = source if alias.name == "*" else f"{source}.{alias.name}".lstrip(".")
                found[alias.asname or alias.name].add(name)
        return found

    def possible_names(self, node: ast.AST) -> set[str]:
        """Return a superset of the possible qualified names of an expression, without following re-exports."""
        path = dotted_name(node)
        if path is None:
            return set()
        root, dot, rest = path.partition(".")
        names = {f"{name}{dot}{rest}" for name in self.imports.get(root, ())}
        names |= {f"{star}.{path}" for star in self.imports.get("*", ())}
        return {*names, f"{self.name}.{path}", f"builtins.{path}"}

    @cached_property
    def bound(self) -> frozenset[str]:
        """Return the names that any code of the module binds or deletes, including names of parameters and imports."""
        found: set[str | None] = {one.id for one in self.find(ast.Name) if not isinstance(one.ctx, ast.Load)}
        found |= {one.name for one in self.functions} | {one.name for one in self.find(ast.ClassDef)}
        found |= {one.arg for one in self.find(ast.arg)} | {one.name for one in self.find(ast.ExceptHandler)}
        found |= {one.name for one in self.find(ast.MatchAs)} | {one.name for one in self.find(ast.MatchStar)}
        found |= {one.rest for one in self.find(ast.MatchMapping)}
        return frozenset({*self.imports, *(one for one in found if one is not None)})


def dotted_name(node: ast.AST) -> str | None:
    """Return the dotted path of a name or attribute; ``None`` for other expressions.

    For a call ``a.b(c)`` or a subscript ``a.b[c]``, the result is ``a.b``.
    """
    if isinstance(node, ast.Call):
        node = node.func
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value) if isinstance(node.value, ast.Attribute | ast.Name) else None
        return None if owner is None else f"{owner}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def last_part_of_name(node: ast.AST) -> str:
    """Return the name, or the last part of a dotted name; "" for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def passed_values(call: ast.Call) -> list[ast.expr]:
    """Return the values that a call passes by position and by keyword."""
    return [*call.args, *(one.value for one in call.keywords)]


def parameter_defaults(arguments: ast.arguments) -> list[tuple[str, ast.expr]]:
    """Return the name of each parameter with a default, and the default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return [(parameter.arg, value) for parameter, value in pairs if value is not None]


def methods_of_class(node: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the methods of a class by name."""
    return {one.name: one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
