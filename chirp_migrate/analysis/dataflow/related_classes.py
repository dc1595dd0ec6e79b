"""Find out whether classes of a project inherit from each other."""

from __future__ import annotations

import re

import libcst as cst

from chirp_migrate.analysis.known_names import qualified_base_names
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.name_resolution import is_project_class
from chirp_migrate.syntax.name_uses import find_aliases, find_subclasses
from chirp_migrate.syntax.project import Project


def _has_subclass(project: Project, class_name: str) -> bool:
    """Return whether any class may inherit from a class called ``class_name``, or from an alias of this class."""
    # Import statements that rules add use aliases that begin with this word. These aliases have no subclasses.
    titles = [
        class_name,
        *sorted(alias for alias in find_aliases(project, class_name) if not alias.startswith("WorkerSafe")),
    ]
    names = rf"\b(?:{'|'.join(map(re.escape, titles))})\b"
    made = rf"\btype\((?:(?!\btype\()[^)])*,\s*\((?:(?!,\s*\(|\btype\()[^)])*{names}"
    return bool(find_subclasses(project, *titles, with_type_arguments=True)) or project.search(made, *titles)


def has_bases_or_subclasses(module: Module, project: Project, class_definition: cst.ClassDef) -> bool:
    """Return whether a class inherits from another class of the project, or has a subclass in the project."""
    if any(is_project_class(project, base) for base in qualified_base_names(module, project, class_definition)):
        return True
    return _has_subclass(project, class_definition.name.value)
