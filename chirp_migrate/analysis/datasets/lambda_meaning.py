"""Find lambdas for which ``chirpid_patch`` has an equal function or object that can process whole batches."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst

from chirp_migrate.analysis.dataflow.attribute_reads import has_dynamic_attribute_read
from chirp_migrate.analysis.dataflow.rebinding import is_dotted_name_bound_once
from chirp_migrate.analysis.dataflow.symbolic import (
    Const,
    Evaluator,
    Name,
    Operation,
    UnmodelledCode,
    takes_plain_arguments,
)
from chirp_migrate.syntax.module import Module, find_nodes, syntax_tree_or_empty, walk_code, walk_tree
from chirp_migrate.syntax.name_resolution import import_table, resolve_node
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import NameRole, dotted_source, name_role, normalized_source

_SAMPLE = Name("<sample>")
_STACKS = frozenset({"torch.stack"})


@dataclass(frozen=True)
class RuntimeReplacement:
    """The object of ``chirpid_patch`` that replaces a lambda.

    Attributes:
        source: source of the expression that replaces the lambda.
        name: name to import from ``chirpid_patch``.
        does: what the object does, such as "stacks samples and labels".
    """

    source: str
    name: str
    does: str


def replacement_for_lambda(module: Module, project: Project, node: cst.Lambda) -> RuntimeReplacement | None:
    """Return the object of ``chirpid_patch`` that replaces a lambda; None if no object has the same effect.

    Each name in the lambda must refer to the same object when the lambda is defined and when it is called.
    """
    shipped = _find_replacement(module, project, node)
    if shipped is None or not has_same_meaning_at_definition(module, project, node):
        return None
    owner = module.scopes.lookup(shipped.name, node)
    return shipped if owner is None or isinstance(owner[0].node, cst.Module) else None


def has_same_meaning_at_definition(module: Module, project: Project, node: cst.Lambda) -> bool:
    """Return whether names in a lambda refer to the same objects when the lambda is defined and when it is called.

    Captured names (variables of enclosing functions) do not count, because callers check captured names. The result is
    False for a lambda in the body of a class, because such a lambda may be a method. The result is also False if code
    of the project may pass a parameter of the lambda by keyword, because the parameters of a replacement may have other
    names.
    """
    if isinstance(module.scopes.scope_of(node).node, cst.ClassDef):
        return False
    if any(
        _is_passed_as_keyword(project, one.name.value) for one in (*node.params.posonly_params, *node.params.params)
    ):
        return False
    names = (one for one in find_nodes(node.body, cst.Name) if name_role(module, one) is not NameRole.LABEL)
    return all(_is_bound_once(module, project, node, name.value, name) for name in names)


def _is_bound_once(module: Module, project: Project, node: cst.Lambda, name: str, use: cst.Name) -> bool:
    """Return whether a module-level name is assigned exactly once, above the lambda.

    For a name that occurs as ``name.attribute``, no code may assign to the attribute either. The result is True for
    built-in names, and for local variables, which callers check.
    """
    owner = module.scopes.lookup(name, use)
    if owner is None or not isinstance(owner[0].node, cst.Module):
        return owner is not None or module.scopes.is_builtin(name)
    around = module.parents[use]
    path = (dotted_source(around) if isinstance(around, cst.Attribute) else None) or name
    return is_dotted_name_bound_once(module, project, path, owner[1], module.span(node)[0])


def _find_replacement(module: Module, project: Project, node: cst.Lambda) -> RuntimeReplacement | None:
    """Return the object of ``chirpid_patch`` with the same effect as a lambda; None without such an object."""
    if len(node.params.params) != 1 or not takes_plain_arguments(node):
        return None
    parameter = node.params.params[0].name.value
    if _stacks_pairs(module, project, node.body, parameter):
        return RuntimeReplacement("collate_pairs", "collate_pairs", "stacks samples and labels")
    source = _standardizing(module, node.body, parameter)
    if source is None:
        return None
    # `Standardize` has the attributes `mean` and `std`, and a lambda has not. Code that checks for such attributes may
    # behave differently.
    return (
        None
        if has_dynamic_attribute_read(project, "mean", "std")
        else RuntimeReplacement(source, "Standardize", "standardises a sample")
    )


def _standardizing(module: Module, body: cst.BaseExpression, parameter: str) -> str | None:
    """Return the source ``Standardize(mean, std, …)`` if ``body`` is ``(x - mean) / (std + eps)``; else None.

    In ``body``, mean and std must be names.
    """
    if any(isinstance(node, cst.Attribute) and node.attr.value.endswith("_") for node in walk_code(body)):
        return None  # an in-place operation keeps the dtype, and `Standardize` does not
    try:
        path, *others = Evaluator(module.source).paths((), {parameter: _SAMPLE}, body)
    except UnmodelledCode:
        return None
    if others:
        return None
    match path.value:
        case Operation("/", Operation("-", sample, Name() as mean), divisor) if sample == _SAMPLE != mean:
            std, eps = divisor, Const("None")
        case _:
            return None
    match divisor:
        case Operation("+", Name() as std, Const() as eps) | Operation("+", Const() as eps, Name() as std):
            pass
    if not isinstance(std, Name) or std == _SAMPLE:
        return None
    return f"Standardize({mean}, {std}, eps={eps})"


def _stacks_pairs(module: Module, project: Project, body: cst.BaseExpression, parameter: str) -> bool:
    """Return whether ``body`` is ``(torch.stack([s[0] for s in batch]), torch.stack([s[1] for s in batch]))``."""
    called = [call.func for call in find_nodes(body, cst.Call)]
    if len(called) != 2 or any(resolve_node(project, module, one) != _STACKS for one in called):
        return False
    stacked = rf"[\w.]+\(\[(\w+)\[{{}}\] for \{{}} in {parameter}\]\)"
    pair = re.fullmatch(rf"\({stacked.format(0, 1)}, {stacked.format(1, 2)}\)", normalized_source(module, body))
    return pair is not None and parameter not in pair.groups()


def _is_passed_as_keyword(project: Project, parameter: str) -> bool:
    """Return whether a call passes the keyword argument ``parameter=`` to code of the project."""
    keyword = re.compile(rf"[(,]\s*{re.escape(parameter)}\s*=(?!=)")
    return any(
        not _is_foreign(project, path, called)
        for path, text in project.matching(keyword, parameter)
        for called in _callees_by_keyword(text).get(parameter, ())
    )


@lru_cache(maxsize=1024)
def _callees_by_keyword(text: str) -> Mapping[str, frozenset[str]]:
    """Return, for each keyword in the calls of a text, the first names of the called expressions.

    For ``a.b(key=1)``, the keyword is ``key``, and the first name is ``a``. The first name is "" if the called
    expression does not begin with a name.
    """
    called: dict[str, set[str]] = defaultdict(set)
    for call in walk_tree(syntax_tree_or_empty(text)):
        if isinstance(call, ast.Call):
            root = call.func
            while isinstance(root, ast.Attribute):
                root = root.value
            for keyword in call.keywords:
                called[keyword.arg or ""].add(root.id if isinstance(root, ast.Name) else "")
    return {keyword: frozenset(names) for keyword, names in called.items()}


def _is_foreign(project: Project, path: str, called: str) -> bool:
    """Return whether the file at ``path`` imports the name ``called`` from outside the project."""
    table = import_table(project, path)
    if not called or table is None or table.defines(called):
        return False
    sources = table.imports.get(called, set())
    return bool(sources) and not any(project.module_paths.has_package(source.partition(".")[0]) for source in sources)
