"""Find code that fails because NumPy removed a name before the oldest version that ``chirpid_patch`` supports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from chirp_migrate.console.text import shorten_list
from chirp_migrate.syntax.module import UnparsableModule, syntax_tree
from chirp_migrate.syntax.project import Project

#: Names that NumPy 1.24 removed, with their replacements. ``bool`` and ``long`` are missing, because NumPy 2.0 added
#: them again.
_INSTEAD = {"int": "int", "float": "float", "complex": "complex", "object": "object", "str": "str", "unicode": "str"}
_MAY_USE = re.compile(rf"\.\s*(?:{'|'.join(_INSTEAD)})\b")
#: Largest number of places that one sentence lists.
_SHOWN = 3


def uses_of_removed_numpy_names(project: Project) -> list[str]:
    """Return a sentence for each removed name of NumPy that files of a project use."""
    places: dict[str, list[str]] = {}
    for path, text in project.matching(_MAY_USE, "numpy"):
        try:
            tree = syntax_tree(text)
        except UnparsableModule:
            continue
        for name, line in _uses(tree):
            places.setdefault(name, []).append(f"{path}:{line}")
    return [_sentence(name, found) for name, found in sorted(places.items())]


def _sentence(name: str, places: list[str]) -> str:
    needed = f"`np.{name}` was removed in numpy 1.24, and chirpid-patch needs numpy>=1.24"
    return f"{needed}: replace it with `{_INSTEAD[name]}` in {shorten_list(places, _SHOWN)}."


def _uses(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield name and line of each use of a removed name."""
    nodes = list(ast.walk(tree))
    imported = (alias for node in nodes if isinstance(node, ast.Import) for alias in node.names)
    modules = {alias.asname or alias.name for alias in imported if alias.name == "numpy"}
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in modules and name in _INSTEAD:
                yield name, node.lineno
