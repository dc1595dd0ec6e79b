"""Recognise expressions that are datasets, and classes that may be dataset classes.

A variable counts as a dataset if a dataset class or ``random_split`` creates its value, or if its annotation names a
dataset class. A variable also counts if code in the same scope passes the variable to a loader or subset, or if its
name is typical of datasets. A literal, an array or a table is not a dataset, even if its name is typical.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import assigned_values_and_annotations
from chirp_migrate.analysis.known_names import (
    ITERABLE_DATASET,
    MAP_DATASET,
    NO_DATASET,
    TAKES_DATASET,
    TORCH_DATASET,
    inherits_from,
    is_call_of,
    resolves_to,
)
from chirp_migrate.syntax.module import Module, walk_code
from chirp_migrate.syntax.name_resolution import resolve_ast_node, resolve_node
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import binding_scope, contains_node, dotted_source, function_parameters

#: Names that are typical of datasets.
DATASET_NAME = re.compile(
    r"\w*(dataset|data_set|subset)|(\w*_)?ds|(\w*_)?(train|training|val|valid|validation|test|eval|dev|holdout|full)_?set",
    re.IGNORECASE,
)
_LITERALS = (
    *(cst.Integer, cst.Float, cst.SimpleString, cst.FormattedString, cst.ConcatenatedString, cst.Lambda),
    *(cst.List, cst.Tuple, cst.Dict, cst.Set, cst.ListComp, cst.DictComp, cst.SetComp, cst.GeneratorExp),
)


def is_dataset(module: Module, project: Project, node: cst.CSTNode) -> bool:
    """Return whether a name or attribute refers to a dataset."""
    name = dotted_source(node)
    if name is None:
        return False
    scope = binding_scope(module, node, name)
    given, annotations = assigned_values_and_annotations(module, scope, name)
    values = [one.value for one in given]
    parts = (part for annotation in annotations for part in walk_code(annotation))
    named = [part for part in parts if isinstance(part, cst.Name | cst.Attribute | cst.SimpleString)]
    if any(_names_dataset(module, project, one) for one in (*named, *map(_called_or_value, values))):
        return True
    if any(_is_known_non_dataset(module, project, annotation) for annotation in annotations):
        return False
    if (
        values
        and name not in function_parameters(scope)
        and all(_is_non_dataset_value(module, project, value) for value in values)
    ):
        return False
    last = name.rpartition(".")[2]
    return DATASET_NAME.fullmatch(last) is not None or _is_passed_as_dataset(module, project, scope, name)


def _called_or_value(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return the called function or class of a call; any other value unchanged."""
    return value.func if isinstance(value, cst.Call) else value


def _names_dataset(module: Module, project: Project, node: cst.CSTNode) -> bool:
    """Return whether a name, or a quoted name, refers to a dataset class or to a function that splits datasets."""
    if isinstance(node, cst.SimpleString):
        return re.search(r"Dataset\b|Subset\b", node.value) is not None
    if isinstance(node, cst.Name | cst.Attribute):
        return any(is_dataset_class(project, name) for name in resolve_node(project, module, node))
    return False


def _is_computed(module: Module, project: Project, node: cst.CSTNode, name: str) -> bool:
    """Return whether a read of an attribute may run code.

    The attribute may be a property, or the enclosing class may have a method ``__getattr__``.
    """
    owner, _, attribute = name.rpartition(".")
    if not owner:
        return False
    around = module.enclosing_class(node)
    computed = around is not None and "__getattr" in module.source(around)
    return computed or project.search(rf"\bdef\s+{re.escape(attribute)}\s*\(", attribute)


def is_dataset_class(project: Project, qualified: str) -> bool:
    """Return whether ``qualified`` is a known dataset class of a library, or a dataset class of the project."""
    return inherits_from(project, qualified, MAP_DATASET)


def only_base_is_torch_dataset(module: Module, project: Project, bases: Sequence[cst.BaseExpression]) -> bool:
    """Return whether the only base of a class is PyTorch's ``Dataset`` or ``Dataset[...]``."""
    return len(bases) == 1 and resolves_to(module, bases[0], TORCH_DATASET, project)


def _is_known_non_dataset(module: Module, project: Project, node: cst.BaseExpression) -> bool:
    """Return whether ``node``, the type or the constructor of a value, shows that the value is not a dataset."""
    bare = node.value if isinstance(node, cst.Subscript) else node
    return isinstance(bare, cst.Name | cst.Attribute) and resolves_to(module, bare, NO_DATASET, project)


def _is_non_dataset_value(module: Module, project: Project, value: cst.BaseExpression) -> bool:
    return isinstance(value, _LITERALS) or (
        isinstance(value, cst.Call) and _is_known_non_dataset(module, project, value.func)
    )


def _is_passed_as_dataset(module: Module, project: Project, scope: cst.CSTNode, name: str) -> bool:
    """Return whether code passes ``name`` as dataset to a loader, to ``Subset`` or similar."""
    return any(
        (scope is module.tree or contains_node(module, scope, call))
        and is_call_of(module, call, TAKES_DATASET, project)
        for call in module.once(_calls_with_dataset).get(name, ())
    )


def _calls_with_dataset(module: Module) -> dict[str, list[cst.Call]]:
    """Return the calls in the module, grouped by the name that a call passes as first argument or as ``dataset=``."""
    calls: dict[str, list[cst.Call]] = {}
    for call in module.find(cst.Call):
        given = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "dataset"]
        given += [a.value for a in call.args[:1] if a.keyword is None and not a.star]
        for name in {dotted_source(value) for value in given} - {None}:
            calls.setdefault(str(name), []).append(call)
    return calls


def make_cached_dataset_predicate(module: Module, project: Project) -> Callable[[cst.CSTNode], bool]:
    """Return a function that tests whether a name in ``module`` is a dataset, and caches the result for each name.

    The returned function returns False for an attribute if a read of the attribute may run code, as for a property.
    """
    known: dict[tuple[cst.CSTNode, str], bool] = {}

    def stands_for_dataset(node: cst.CSTNode) -> bool:
        name = dotted_source(node)
        if name is None:
            return False
        key = (binding_scope(module, node, name), name)
        if key not in known:
            known[key] = is_dataset(module, project, node) and not _is_computed(module, project, node, name)
        return known[key]

    return stands_for_dataset


def possible_dataset_classes(outline: Outline, project: Project) -> list[ast.ClassDef]:
    """Return the classes that may inherit from a dataset class of PyTorch, torchvision or ``chirpid_patch``."""

    def is_known(name: str) -> bool:
        return is_dataset_class(project, name) or inherits_from(project, name, ITERABLE_DATASET)

    return [
        definition
        for definition in outline.find(ast.ClassDef)
        if any(is_known(name) for base in definition.bases for name in resolve_ast_node(project, outline, base))
    ]
