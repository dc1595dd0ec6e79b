"""Find the names that a module binds at its top level.

The module uses ``ast``, which is faster than LibCST and sufficient to resolve names.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace


def absolute_name(name: str, package: str) -> str:
    """Resolve the leading dots of a relative import against the dotted name of a package."""
    bare = name.lstrip(".")
    dots = len(name) - len(bare)
    if not dots:
        return name
    parts = package.split(".") if package else []
    base = parts[: len(parts) - (dots - 1)] if dots > 1 else parts
    return ".".join([*base, bare]) if bare else ".".join(base)


def qualified_member_name(source: str, name: str) -> str:
    """Return the qualified name of a member of a module.

    ``source`` is the name of the module, possibly with leading dots, as in a relative import.
    """
    return f"{source}{name}" if source.endswith(".") else f"{source}.{name}"


@dataclass(frozen=True)
class ImportTable:
    """The names in a module's scope.

    These names are bound by top-level statements, or by functions with a ``global`` statement.

    Attributes:
        imports: for each imported name, its possible qualified names. Relative names are made absolute.
        stars: absolute names of the modules ``m`` in statements ``from m import *``.
        later_stars: for each name that is bound above an ``import *``, the modules of all ``import *`` statements below
            the binding. Such a statement may rebind the name.
        classes: for each class, the dotted names of its bases ("" for a base that is no dotted name).
        functions: names of the functions.
        values: names that are bound in any other way, such as by an assignment.
        exported: the names in ``__all__``; None if the module does not assign a single literal list or tuple to
            ``__all__``.
        parameters: for each function at the top level, the names of the parameters that a call can pass by keyword, in
            order. For each class at the top level, the names of the parameters of ``__init__`` after ``self`` that a
            call can pass by position or by keyword.
    """

    imports: dict[str, set[str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    later_stars: dict[str, list[str]] = field(default_factory=dict)
    classes: dict[str, list[str]] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    exported: set[str] | None = None
    parameters: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, tree: ast.Module, package: str, *, has_globals: bool = True) -> ImportTable:
        """Return the table of a parsed module.

        Args:
            tree: the module.
            package: dotted name of the package in which the module's relative imports start.
            has_globals: whether to search the functions for ``global``. False saves time if no function contains
                ``global``.
        """
        table = cls()
        listed: list[ast.AST] = []
        for node in _own_nodes(tree):
            match node:
                case ast.Import():
                    for alias in node.names:
                        name = alias.asname or alias.name.partition(".")[0]
                        table.imports.setdefault(name, set()).add(alias.name if alias.asname else name)
                case ast.ImportFrom():
                    table._add_import(node, package)
                case ast.ClassDef():
                    table.classes[node.name] = [_dotted_name(base) for base in node.bases]
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    table.functions.add(node.name)
                case ast.Name(id="__all__"):
                    listed.append(node)
                case ast.Name(id=name, ctx=ast.Store()):
                    table.values.add(name)
                case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                    table.values.add(name)
                case ast.MatchMapping(rest=str(name)):
                    table.values.add(name)
        if has_globals:
            table.values.update(name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names)
        exported: set[str] | None = None
        for statement in tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id="__all__") as target], value=ast.List() | ast.Tuple() as value):
                    exported = _literals(value) if listed == [target] else None
                case ast.AnnAssign(target=ast.Name(id="__all__") as target, value=ast.List() | ast.Tuple() as value):
                    exported = _literals(value) if listed == [target] else None
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    table.parameters.setdefault(statement.name, _parameters(statement))
        return replace(table, exported=exported)

    def _add_import(self, node: ast.ImportFrom, package: str) -> None:
        source = absolute_name("." * node.level + (node.module or ""), package)
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(source)
                for name in (*self.imports, *self.classes, *self.functions, *self.values):
                    self.later_stars.setdefault(name, []).append(source)
            else:
                self.imports.setdefault(alias.asname or alias.name, set()).add(f"{source}.{alias.name}".lstrip("."))

    def renamed(self, rename: Callable[[str], set[str]]) -> ImportTable:
        """Return a copy of the table in which ``rename`` is applied to the qualified name of each imported object."""

        def modules(names: Sequence[str]) -> list[str]:
            return sorted({one.rpartition(".")[0] for name in names for one in rename(f"{name}.*")})

        return replace(
            self,
            imports={name: {one for target in found for one in rename(target)} for name, found in self.imports.items()},
            stars=modules(self.stars),
            later_stars={name: modules(found) for name, found in self.later_stars.items()},
        )

    def defines(self, name: str) -> bool:
        """Return whether the module binds ``name`` in another way than by an import."""
        return name in self.classes or name in self.functions or name in self.values

    def exports(self, name: str) -> bool:
        """Return whether an ``import *`` from this module imports ``name``, provided that the module binds the name."""
        return name in self.exported if self.exported is not None else not name.startswith("_")


def _parameters(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    if not isinstance(node, ast.ClassDef):
        return tuple(one.arg for one in (*node.args.args, *node.args.kwonlyargs))
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    return tuple(one.arg for one in methods[-1].args.args[1:]) if methods else ()


def _dotted_name(node: ast.expr) -> str:
    """Return ``a.b`` for the expressions ``a.b`` and ``a.b[…]``; "" for an expression without a dotted name."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        owner = _dotted_name(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return node.id if isinstance(node, ast.Name) else ""


def _literals(display: ast.List | ast.Tuple) -> set[str] | None:
    """Return the strings of a literal list or tuple; ``None`` if an element is not a literal string."""
    values = [one.value if isinstance(one, ast.Constant) else None for one in display.elts]
    return {one for one in values if isinstance(one, str)} if all(isinstance(one, str) for one in values) else None


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below ``node`` in order of the text, without the nodes inside functions, classes and lambdas."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own_nodes(child)
