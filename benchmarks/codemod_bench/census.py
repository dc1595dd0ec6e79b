"""Count the code that names PyTorch's DataLoader, with `ast` alone and independently of the tool.

This module makes one table of bindings for each scope, and follows imported names through the modules of the folder. It
ignores the order of execution: if a name has two values, both values are possible.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from .scopes import Bindings, Bound, Scope, build

DATALOADER = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})

_TESTS = frozenset({"isinstance", "issubclass", "cast", "type", "hasattr"})


@dataclass(frozen=True, order=True)
class Site:
    """An expression that names the class ``DataLoader``.

    Attributes:
        path: POSIX path in the tree.
        line: line of the expression, from 1.
        column: column of the expression in code points, from 1.
        kind: ``call``, ``subclass`` (named as a base class) or ``value`` (any other use).
        starred: whether the call takes ``*`` or ``**``.
        certain: whether the name can only be PyTorch's class.
        through: whether the name is imported from another module of the tree.
    """

    path: str
    line: int
    column: int
    kind: str
    starred: bool
    certain: bool
    through: bool


@dataclass(frozen=True)
class Census:
    """All sites of a tree, and the files that are not valid Python."""

    sites: tuple[Site, ...]
    unreadable: tuple[str, ...]

    def calls(self, *, starred: bool | None = None) -> list[Site]:
        """Return the calls of names that can only be PyTorch's class."""
        return [
            site
            for site in self.sites
            if site.kind == "call" and site.certain and (starred is None or site.starred == starred)
        ]


def count(root: Path) -> Census:
    """Find all sites in the files below ``root``."""
    texts = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.py"))}
    return count_texts(texts)


def count_texts(texts: Mapping[str, bytes]) -> Census:
    """Find all sites in a tree: path → bytes of the file."""
    tree = _Tree(texts)
    words = {"DataLoader"} | {
        name
        for path in tree.mentioning({"DataLoader"})
        for name in tree.exports(path)
        if tree.resolve_global(path, name) & DATALOADER
    }
    sites = [site for path in tree.mentioning(words) for site in _sites(tree, path)]
    return Census(tuple(sorted(sites)), tuple(sorted(tree.unreadable)))


class _Tree:
    """The modules of a tree, and the values of their names."""

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self._texts = texts
        self._modules = dict(_module_names(texts))
        self.unreadable: set[str] = set()
        self.scopes = cache(self._scopes)
        self.resolve_global = cache(self._resolve_global)

    def mentioning(self, words: Iterable[str]) -> list[str]:
        """Return the files that contain one of the words."""
        pattern = re.compile(rb"\b(?:" + "|".join(map(re.escape, sorted(words))).encode() + rb")\b")
        return [path for path, text in self._texts.items() if pattern.search(text)]

    def exports(self, path: str) -> set[str]:
        """Return the names that a module binds at its top level."""
        bindings = self.scopes(path)
        return set() if bindings is None else set(bindings.scopes[bindings.tree].names)

    def text(self, path: str) -> bytes:
        return self._texts[path]

    def _scopes(self, path: str) -> Bindings | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(self._texts[path])
        except (SyntaxError, ValueError, RecursionError):
            self.unreadable.add(path)
            return None
        return build(tree)

    def resolve(self, path: str, node: ast.expr, scope: Scope, depth: int = 0) -> frozenset[str]:
        """Return the dotted names that an expression may stand for; an empty string for any other value."""
        if depth > 8:
            return frozenset({""})
        if isinstance(node, ast.IfExp):
            return self.resolve(path, node.body, scope, depth + 1) | self.resolve(path, node.orelse, scope, depth + 1)
        if isinstance(node, ast.Attribute):
            owners = self.resolve(path, node.value, scope, depth + 1)
            return frozenset().union(*(self._member(owner, node.attr, depth) for owner in owners))
        if not isinstance(node, ast.Name):
            return frozenset({""})
        found = scope.lookup(node.id)
        if found is None:
            return self._from_stars(path, node.id, depth)
        names: set[str] = set()
        for bound in found.names[node.id]:
            if isinstance(bound, str):
                names |= self._followed(_absolute(bound, path), depth)
            elif bound is None:
                names.add("")
            else:
                names |= self.resolve(path, bound, found, depth + 1)
        return frozenset(names)

    def _resolve_global(self, path: str, name: str, depth: int = 0) -> frozenset[str]:
        bindings = self.scopes(path)
        if bindings is None:
            return frozenset({""})
        return self.resolve(path, ast.Name(name), bindings.scopes[bindings.tree], depth + 1)

    def _from_stars(self, path: str, name: str, depth: int) -> frozenset[str]:
        bindings = self.scopes(path)
        names: set[str] = set()
        for module in () if bindings is None else bindings.stars:
            module = _absolute(module, path)
            if module in ("torch.utils.data", "torch.utils.data.dataloader"):
                names |= {f"{module}.{name}"} & DATALOADER
            elif module in self._modules:
                names |= self.resolve_global(self._modules[module], name, depth + 1)
        return frozenset(names or {""})

    def _member(self, owner: str, name: str, depth: int) -> frozenset[str]:
        return self._followed(f"{owner}.{name}", depth) if owner else frozenset({""})

    def _followed(self, dotted: str, depth: int) -> frozenset[str]:
        """Return what a dotted name stands for, followed through the modules of the tree."""
        module, _, name = dotted.rpartition(".")
        if module in self._modules and dotted not in self._modules and depth < 8:
            return self.resolve_global(self._modules[module], name, depth + 1)
        return frozenset({dotted})


def _module_names(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the dotted names by which each file may be imported, from the root of the tree or of its package."""
    known = set(paths)
    for path in sorted(known, key=lambda one: (-one.count("/"), one)):
        where = PurePosixPath(path)
        parts = [*where.parent.parts, *([where.stem] if where.stem != "__init__" else [])]
        start = len(where.parent.parts)
        while start and f"{'/'.join(where.parts[:start])}/__init__.py" in known:
            start -= 1
        if parts[start:]:
            yield ".".join(parts[start:]), path
        yield ".".join(parts), path


def _absolute(dotted: str, path: str) -> str:
    """Convert the leading dots of a relative import to the package of the importing file."""
    bare = dotted.lstrip(".")
    dots = len(dotted) - len(bare)
    if not dots:
        return dotted
    folder = PurePosixPath(path).parent.parts
    base = folder[: len(folder) - (dots - 1)]
    return ".".join([*base, *([bare] if bare else [])])


def _sites(tree: _Tree, path: str) -> Iterator[Site]:
    bindings = tree.scopes(path)
    if bindings is None:
        return
    lines = tree.text(path).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    for node, scope in bindings.uses:
        names = tree.resolve(path, node, scope)
        use = _use(bindings, node) if names & DATALOADER else None
        if use is None or _is_alias(node, scope):
            continue
        kind, place = use
        line = lines[place.lineno - 1].removeprefix(b"\xef\xbb\xbf")
        column = len(line[: place.col_offset].decode("utf-8", "replace")) + 1
        starred = isinstance(place, ast.Call) and (
            any(isinstance(one, ast.Starred) for one in place.args) or any(one.arg is None for one in place.keywords)
        )
        yield Site(
            path, place.lineno, column, kind, starred, names <= DATALOADER, not _named_here(node, scope, bindings)
        )


def _bound(node: ast.expr, scope: Scope) -> list[Bound] | None:
    """Return the values of the first name of a dotted name; None if the module does not bind it."""
    while isinstance(node, ast.Attribute):
        node = node.value
    found = scope.lookup(node.id) if isinstance(node, ast.Name) else None
    return found.names[node.id] if found is not None and isinstance(node, ast.Name) else None


def _is_alias(node: ast.expr, scope: Scope) -> bool:
    """Return whether a name got the class by an assignment. In this case, the assignment is the site."""
    return any(isinstance(one, ast.expr) for one in _bound(node, scope) or ())


def _named_here(node: ast.expr, scope: Scope, bindings: Bindings) -> bool:
    """Return whether the file itself imports the name from torch."""
    bound = _bound(node, scope)
    if bound is None:
        return any(star.startswith("torch.") for star in bindings.stars)
    return any(isinstance(one, str) and one.split(".")[0] == "torch" for one in bound)


def _use(bindings: Bindings, node: ast.expr) -> tuple[str, ast.expr] | None:
    """Return how an expression uses the class, and the expression to report; None if the class is only mentioned."""
    parent = bindings.parents.get(node)
    if isinstance(parent, ast.Call) and parent.func is node:
        return "call", parent
    if isinstance(parent, ast.ClassDef):
        return "subclass", node
    child: ast.AST = node
    while parent is not None:
        if isinstance(parent, ast.Attribute | ast.Subscript | ast.Compare | ast.BinOp | ast.ExceptHandler):
            return None  # a member of the class, a type, an identity test
        if isinstance(parent, ast.arg) or (isinstance(parent, ast.AnnAssign) and child is parent.annotation):
            return None
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return None if child is parent.returns else ("value", node)
        if isinstance(parent, ast.Call):
            name = parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")
            return None if name in _TESTS else ("value", node)
        if isinstance(parent, ast.stmt):
            return "value", node
        child, parent = parent, bindings.parents.get(parent)
    return "value", node
