"""Which classes of a module may be datasets, as far as ``ast`` tells."""

from __future__ import annotations

import ast
from collections.abc import Callable

from chirp_migrate.analysis.datasets.dataset_names import is_dataset_class
from chirp_migrate.analysis.qualified_names import ITERABLE_DATASET, inherits
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def possible_datasets(outline: Outline, project: Project) -> list[ast.ClassDef]:
    """Classes that may descend from a dataset class of PyTorch, torchvision or the runtime."""

    def is_dataset(name: str) -> bool:
        return is_dataset_class(project, name) or inherits(project, name, ITERABLE_DATASET)

    return [
        one
        for one in outline.find(ast.ClassDef)
        if any(is_dataset(name) for base in one.bases for name in project.possible_names(outline, base))
    ]


def bases_may_be(outline: Outline, project: Project, node: ast.ClassDef, test: Callable[[str], object]) -> bool:
    """Whether every base of a class may stand for a name that passes a test."""
    return all(any(map(test, project.possible_names(outline, base))) for base in node.bases)


def functions_of(node: ast.ClassDef) -> dict[str, _Function]:
    """The methods of a class by name."""
    return {one.name: one for one in node.body if isinstance(one, _Function)}
