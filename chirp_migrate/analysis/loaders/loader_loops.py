"""Find loops over loaders, and the part of each loop's target that receives the batches."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import assigned_values
from chirp_migrate.analysis.known_names import resolves_to
from chirp_migrate.analysis.loaders.loader_values import WRAPPER, LoaderExpressions, LoaderValue
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.name_resolution import resolve_node
from chirp_migrate.syntax.project import Project

_DEPTH_LIMIT = 8


def loader_loops(
    module: Module, project: Project
) -> Iterator[tuple[cst.For, list[tuple[cst.BaseExpression, LoaderValue]]]]:
    """Yield each loop over loaders, with pairs (target, loader): the target receives the batches of the loader."""
    for loop in module.find(cst.For):
        loaders = iterated_loaders(module, project, loop.target, loop.iter) if loop.asynchronous is None else []
        if loaders:
            yield loop, loaders


def iterated_loaders(
    module: Module, project: Project, target: cst.BaseExpression, iterable: cst.BaseExpression, depth: int = 0
) -> list[tuple[cst.BaseExpression, LoaderValue]]:
    """Return the loaders that a loop iterates over, each with the part of the target that receives its batches.

    The loop may iterate over the loader itself, over ``enumerate(loader)``, ``zip(loader, …)`` or ``tqdm(loader)``, or
    over a variable with such a value.
    """
    value = iterable
    values = assigned_values(module, iterable)
    if len(values) == 1 and values[0].part is None and isinstance(values[0].value, cst.Call):
        value = values[0].value
    if isinstance(value, cst.Call) and depth < _DEPTH_LIMIT:
        called = resolve_node(project, module, value.func)
        given = [a.value for a in value.args if not a.star and (a.keyword is None or a.keyword.value == "iterable")]
        parts = [e.value for e in target.elements] if isinstance(target, cst.Tuple | cst.List) else []
        if called == {"builtins.enumerate"} and given:
            return iterated_loaders(module, project, parts[1], given[0], depth + 1) if len(parts) == 2 else []
        if called == {"builtins.zip"}:
            pairs = zip(parts, given, strict=True) if len(parts) == len(given) else ()
            return [found for pair in pairs for found in iterated_loaders(module, project, *pair, depth + 1)]
        if given and resolves_to(module, value.func, WRAPPER, project):
            return iterated_loaders(module, project, target, given[0], depth + 1)
    loader = module.once(LoaderExpressions, project).loader(iterable)
    return [(target, loader)] if loader is not None else []
