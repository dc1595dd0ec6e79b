"""What a module binds at its top level, read with ``ast``: enough to follow a name through a backend, and cheap."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

__all__ = ["ImportTable", "absolute_name"]


def absolute_name(name: str, package: str) -> str:
    """Resolve the leading dots of a relative import against the dotted name of a package."""
    bare = name.lstrip(".")
    dots = len(name) - len(bare)
    if not dots:
        return name
    parts = package.split(".") if package else []
    base = parts[: len(parts) - (dots - 1)] if dots > 1 else parts
    return ".".join([*base, bare]) if bare else ".".join(base)


@dataclass(frozen=True)
class ImportTable:
    """Names at the top level of a module, those in ``if``, ``try`` and ``with`` blocks included.

    Attributes:
        imports: for each imported name what it may stand for, relative names made absolute.
        stars: modules whose names come in with ``import *``, made absolute.
        classes: the classes defined there, with the dotted names of their bases (an empty one for other expressions).
        functions: names of the functions defined there.
        values: names that are assigned.
        exported: what ``__all__`` lists, if it is a literal.
        parameters: of each function and class that no other statement holds, the names of its parameters in order.
    """

    imports: dict[str, set[str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    classes: dict[str, list[str]] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    exported: set[str] | None = None
    parameters: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, tree: ast.Module, package: str) -> ImportTable:
        """The table of a parsed module; ``package`` is what its relative imports start from."""
        table = cls()
        exported: set[str] | None = None
        for node in _top_level(tree.body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    table.imports.setdefault(name, set()).add(alias.name if alias.asname else name)
            elif isinstance(node, ast.ImportFrom):
                table._take(node, package)
            elif isinstance(node, ast.ClassDef):
                table.classes[node.name] = [_dotted(base) for base in node.bases]
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                table.functions.add(node.name)
            else:
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
                table.values.update(names)
                if "__all__" in names and isinstance(node, ast.Assign):
                    strings = (n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant))
                    exported = {one for one in strings if isinstance(one, str)}
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                table.parameters.setdefault(node.name, _parameters(node))
        return replace(table, exported=exported)

    def _take(self, node: ast.ImportFrom, package: str) -> None:
        source = absolute_name("." * node.level + (node.module or ""), package)
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(source)
            else:
                self.imports.setdefault(alias.asname or alias.name, set()).add(f"{source}.{alias.name}".lstrip("."))

    def defines(self, name: str) -> bool:
        """Whether the module itself binds ``name`` to something of its own."""
        return name in self.classes or name in self.functions or name in self.values

    def exports(self, name: str) -> bool:
        """Whether ``import *`` takes ``name``, where the module has it."""
        return name in self.exported if self.exported is not None else not name.startswith("_")


def _parameters(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    if not isinstance(node, ast.ClassDef):
        return tuple(one.arg for one in (*node.args.args, *node.args.kwonlyargs))
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    return tuple(one.arg for one in methods[-1].args.args[1:]) if methods else ()


def _dotted(node: ast.expr) -> str:
    """``a.b`` of the expression ``a.b`` or ``a.b[…]``; empty for others."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return node.id if isinstance(node, ast.Name) else ""


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of the module's own scope, without what lies in functions and classes."""
    for statement in body:
        if isinstance(statement, ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try):
            for block in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(statement, block, []))
            for handler in getattr(statement, "handlers", []):
                yield from _top_level(handler.body)
        else:
            yield statement
