"""Find files that may import a module, by words in their imports. The result may contain too many files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from chirp_migrate.syntax.project import Project

#: Largest number of imports in a chain from a module to a file that imports it indirectly.
_DEPTH = 4


def module_name_without_package(path: str) -> str:
    """Return the name of the module at a path, without its packages."""
    file = PurePosixPath(path)
    return file.parent.name if file.stem == "__init__" else file.stem


def files_with_importers(project: Project, paths: Iterable[str], depth: int = _DEPTH) -> list[str]:
    """Return ``paths``, and the files that may import one of these paths, through at most ``depth`` imports."""
    found = dict.fromkeys(paths)
    new = {module_name_without_package(path) for path in found} - {""}
    seen: set[str] = set()
    for _ in range(depth):
        if not new:
            break
        seen |= new
        words = "|".join(map(re.escape, sorted(new)))
        imports = re.compile(rf"(?m)^[ \t]*(?:from|import)\b[^#\n]*\b(?:{words})\b")
        more = [path for path, _ in project.matching(imports, *new) if path not in found]
        found.update(dict.fromkeys(more))
        new = {module_name_without_package(path) for path in more} - seen
    return list(found)
