"""Find quickly, with the trees of ``ast``, the expressions that may be loaders.

The search accepts every expression that the module ``loader_values`` accepts, and some others. So LibCST need not parse
a module in which no loop may iterate over a loader.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from chirp_migrate.analysis.known_names import FACTORY_METHOD, LOADER, inherits_from
from chirp_migrate.analysis.loaders.loader_values import WRAPPER
from chirp_migrate.syntax.module import UnparsableModule, syntax_tree_or_empty, walk_tree
from chirp_migrate.syntax.name_resolution import locate_function, resolve_ast_node
from chirp_migrate.syntax.outline import Outline, last_part_of_name, passed_values
from chirp_migrate.syntax.project import Project

#: Largest depth of nested calls and assignments to follow. Below it, any expression counts as a loader.
_DEPTH_LIMIT = 20
#: Functions that iterate over their arguments.
_PASS_ON_ITEMS = frozenset({"builtins.enumerate", "builtins.zip"})
_SHORT = re.compile(r"(?:\A|_)dls?\Z")


@dataclass
class _Given:
    """The values and the annotations that a module gives to a name, in any scope."""

    values: list[ast.expr] = field(default_factory=list)
    annotations: list[ast.expr] = field(default_factory=list)


class PossibleLoaders:
    """Find the expressions of a module that may be loaders, or containers with loaders.

    The search compares variables and attributes only by the last part of their names, in any scope of the module.

    Args:
        outline: the module.
        project: the project that contains the module.
    """

    def __init__(self, outline: Outline, project: Project) -> None:
        self._outline, self._project = outline, project
        self._answers: dict[tuple[str, str], bool] = {}  # whether a name or function of a file may be a loader
        self._new: list[tuple[str, str]] = []  # the keys of the answers of the search in progress

    @cached_property
    def loops(self) -> list[ast.For]:
        """Return the ``for`` statements of the module that may iterate over a loader."""
        return [loop for loop in self._outline.find(ast.For) if self.may_be_loader(loop.iter)]

    def may_be_loader(self, node: ast.expr) -> bool:
        """Return whether an expression of the module may be a loader, or a container with loaders."""
        self._new.clear()
        found = self._may_be(self._outline, node, 0)
        # A search that finds a loader ends early, so its negative answers may be wrong.
        for key in self._new if found else ():
            if not self._answers[key]:
                del self._answers[key]
        return found

    def _answer(self, key: tuple[str, str], search: Callable[[], bool]) -> bool:
        if key not in self._answers:
            self._answers[key] = False  # ends the recursion if names refer to each other
            self._new.append(key)
            self._answers[key] = search()
        return self._answers[key]

    def _may_be(self, outline: Outline, node: ast.expr, depth: int) -> bool:
        if depth > _DEPTH_LIMIT:
            return True
        match node:
            case ast.Call(func=func):
                names = resolve_ast_node(self._project, outline, func)
                if self._may_return_loader(outline, func, names, depth):
                    return True
                passed_on = any(name in _PASS_ON_ITEMS or WRAPPER.fullmatch(name) for name in names)
                parts = passed_values(node) if passed_on else []
            case ast.IfExp(body=body, orelse=orelse):
                parts = [body, orelse]
            case ast.Subscript(value=value) | ast.Starred(value=value):
                parts = [value]
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts) | ast.Dict(values=parts):
                pass
            case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.DictComp(value=element):
                parts = [element]
            case ast.Name() | ast.Attribute():
                return self._may_name_loader(outline, last_part_of_name(node), depth)
            case _:
                return False
        return any(self._may_be(outline, one, depth + 1) for one in parts)

    def _may_name_loader(self, outline: Outline, name: str, depth: int) -> bool:
        def search() -> bool:
            given = _given_by_name(outline.text).get(name, _Given())
            return any(self._may_be_annotation(outline, one) for one in given.annotations) or any(
                self._may_be(outline, one, depth + 1) for one in given.values
            )

        return _is_like_loader(name) or self._answer((outline.path, name), search)

    def _may_be_annotation(self, outline: Outline, annotation: ast.expr) -> bool:
        return any(
            (isinstance(one, ast.Constant) and "DataLoader" in str(one.value))
            or (
                isinstance(one, ast.Name | ast.Attribute)
                and self._may_build_loader(resolve_ast_node(self._project, outline, one))
            )
            for one in walk_tree(annotation)
        )

    def _may_build_loader(self, names: Iterable[str]) -> bool:
        """Return whether one of the qualified names is a class of loaders, or a function of the factory."""
        return any(FACTORY_METHOD.fullmatch(one) or inherits_from(self._project, one, LOADER) for one in names)

    def _may_return_loader(self, outline: Outline, func: ast.expr, names: Iterable[str], depth: int) -> bool:
        """Return whether a call of ``func``, an expression with these qualified names, may return a loader."""
        while isinstance(func, ast.Subscript):
            func = func.value
        name = last_part_of_name(func)
        if _is_like_loader(name) or self._may_build_loader(names):
            return True
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
            return self._function_may_return_loader(outline, name, depth)
        places = (locate_function(self._project, one) for one in names)
        for path, function in {place for place in places if place is not None}:
            try:
                home = outline if path == outline.path else Outline(path, self._project.text(path))
            except UnparsableModule:  # the nodes are nested too deeply
                return True
            if self._function_may_return_loader(home, function, depth):
                return True
        return False

    def _function_may_return_loader(self, outline: Outline, name: str, depth: int) -> bool:
        def search() -> bool:
            called = outline.once(_functions_by_name).get(name, ())
            return any(self._may_be(outline, value, depth + 1) for one in called for value in _returned_values(one))

        return self._answer((outline.path, f"{name}()"), search)


def _is_like_loader(name: str) -> bool:
    name = name.lower()
    return "loader" in name or _SHORT.search(name) is not None


def _functions_by_name(outline: Outline) -> dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
    found: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = defaultdict(list)
    for function in outline.functions:
        found[function.name].append(function)
    return dict(found)


def _returned_values(function: ast.AST) -> Iterator[ast.expr]:
    return (one.value for one in walk_tree(function) if isinstance(one, ast.Return) and one.value is not None)


@lru_cache(maxsize=4)
def _given_by_name(text: str) -> dict[str, _Given]:
    """Return what a module gives to each name or attribute. Attributes are called by the last part of their path."""
    found: dict[str, _Given] = defaultdict(_Given)

    def give(target: ast.expr, value: ast.expr) -> None:
        for one in walk_tree(target):
            if name := last_part_of_name(one):
                found[name].values.append(value)

    for node in walk_tree(syntax_tree_or_empty(text)):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    give(target, value)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                found[last_part_of_name(target)].annotations.append(annotation)
                if value is not None:
                    give(target, value)
            case ast.NamedExpr(target=target, value=value):
                give(target, value)
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                give(target, value)
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                found[name].annotations.append(annotation)
    return dict(found)
