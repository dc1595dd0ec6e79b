"""The one way to ask what a name stands for, and the qualified names that more than one question is about."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project

#: Methods of the factory that make loaders.
FACTORY = r"chirpid_patch\.OptimalDataLoaderFactory\.create_\w+"
#: Classes of loaders.
LOADER = re.compile(r"torch\.utils\.data\.(dataloader\.)?DataLoader|chirpid_patch\.BatchedDataLoader")
#: PyTorch's ``Dataset`` itself.
TORCH_DATASET = re.compile(r"torch\.utils\.data\.(dataset\.)?Dataset")
#: Classes of datasets, and what splits one.
DATASET = re.compile(
    r"torch\.utils\.data\.(dataset\.)?(\w*Dataset|Subset|random_split)|torchvision\.datasets\.\w+|chirpid_patch\.WorkerSafe\w+"
)
#: What shows progress around what it is given, and gives the same.
PROGRESS = re.compile(r"tqdm(\.\w+)*\.tqdm(_notebook)?|rich\.progress\.track")
#: Decorators that hand a function's arguments on as they are, and its result back.
PLAIN_DECORATOR = re.compile(r"torch\.(no_grad|inference_mode|enable_grad)|builtins\.(staticmethod|classmethod)")
#: How many classes are followed one above the other.
_BASES_LIMIT = 8


def resolves_to(module: Module, node: cst.CSTNode, names: re.Pattern[str], project: Project | None = None) -> bool:
    """Whether an expression surely stands for one of ``names``.

    Args:
        module: where it stands.
        node: a name or attribute; of a call, what is called.
        names: qualified names.
        project: also follow imports through it.
    """
    found = module.qualified_names(node) if project is None else project.resolved_names(module, node)
    return bool(found) and all(map(names.fullmatch, found))


def is_call_of(
    module: Module, node: cst.CSTNode | None, names: re.Pattern[str], project: Project | None = None
) -> bool:
    """Whether ``node`` is a call of one of ``names`` (see :func:`resolves_to`)."""
    return isinstance(node, cst.Call) and resolves_to(module, node.func, names, project)


def base_names(module: Module, project: Project, node: cst.ClassDef) -> Iterator[str]:
    """Qualified names of the bases of a class, without what stands in brackets behind them."""
    for base in node.bases:
        yield from project.resolved_names(module, base.value)


def inherits(project: Project, qualified: str, names: re.Pattern[str], depth: int = 0) -> bool:
    """Whether a qualified name is one of ``names``, or that of a class of the project that inherits from one."""
    if names.fullmatch(qualified):
        return True
    bases = project.base_classes(qualified) if depth < _BASES_LIMIT else None
    return any(inherits(project, name, names, depth + 1) for name in bases or ())
