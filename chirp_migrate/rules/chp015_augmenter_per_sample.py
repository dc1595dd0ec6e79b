"""CHP015: report transforms that are created again for every sample."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

import libcst as cst

from chirp_migrate.analysis.known_names import (
    NN_MODULE,
    TORCH_DATASET,
    TORCHVISION_DATASET,
    TRANSFORM,
    join_name_patterns,
    resolves_to,
)
from chirp_migrate.rules.api import (
    CALL,
    GAP,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    bases_may_match,
    find_base_classes,
    find_nodes,
    find_nodes_in_scope,
    methods_of,
    methods_of_class,
    resolve_node,
)

_ENTRY = re.compile(r"__getitems?__|__call__|\w*collate\w*")
_BASE = join_name_patterns(r"builtins\.object", TORCH_DATASET, TORCHVISION_DATASET)
#: A method that runs for each sample.
_METHOD = re.compile(rf"\bdef{GAP}(__getitems?__|__call__|\w*collate\w*){CALL}")


class AugmenterPerSample(Rule):
    code = "CHP015"
    name = "augmenter-per-sample"
    reason = (
        "A transform that is created inside `__getitem__` checks its arguments, computes windows and filter banks, "
        "and sets up its module for every sample. A transform that is created once in `__init__` saves that time. "
        "The rule does not rewrite the code: a subclass, an old pickle or a test may not run this `__init__`, and "
        "the arguments of the transform may change later."
    )
    safety = Safety.ADVICE
    trigger = ("Dataset", "__getitem__", "ugment", "torchvision", "torchaudio")
    beside = (_METHOD,)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a class may have a method that runs for each sample."""
        return any(
            any(map(_ENTRY.fullmatch, methods_of_class(definition)))
            and bases_may_match(outline, project, definition, _BASE)
            for definition in outline.find(ast.ClassDef)
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report the calls that create a transform from values that do not depend on the sample."""
        for definition in module.find(cst.ClassDef):
            if all(resolves_to(module, base.value, _BASE, project) for base in definition.bases):
                for call in _find_created_transforms(module, project, definition):
                    shown = module.source(call.func).strip()
                    message = f"`{shown}` is created again for every sample; create it once in `__init__`"
                    yield RuleMatch(module.span(call)[0], message)


def _find_created_transforms(module: Module, project: Project, definition: cst.ClassDef) -> Iterator[cst.Call]:
    """Yield the outermost calls that create a transform in methods that run for each sample.

    Calls that use a local variable of the method are omitted: the transform may depend on the sample.
    """
    methods = methods_of(definition)
    running = [name for name in methods if _ENTRY.fullmatch(name)]
    for name in running:  # the loop appends methods that the listed methods call on ``self``
        for call in find_nodes_in_scope(methods[name], cst.Call):
            match call.func:
                case cst.Attribute(value=cst.Name(value="self"), attr=cst.Name(value=called)):
                    if called in methods.keys() - {"__init__", *running}:
                        running.append(called)
    for method in (methods[name] for name in running):
        local = module.scopes.names_bound(method) - {"self"}
        found = {
            call for call in find_nodes_in_scope(method.body, cst.Call) if _creates_transform(module, project, call)
        }
        for call in sorted(found, key=lambda one: module.span(one)[0]):
            around = takewhile(lambda one, method=method: one is not method, module.ancestors(call))  # type: ignore[misc]
            names = {name.value for name in find_nodes(call, cst.Name)}
            if found.isdisjoint(around) and local.isdisjoint(names):
                yield call


def _creates_transform(module: Module, project: Project, call: cst.Call) -> bool:
    """Return whether a call creates a transform of a library, or a module (``nn.Module``) of the project."""
    if not isinstance(call.func, cst.Name | cst.Attribute):
        return False
    names = resolve_node(project, module, call.func)
    return bool(names) and all(TRANSFORM.fullmatch(one) or _is_module_class(project, one) for one in names)


def _is_module_class(project: Project, qualified: str) -> bool:
    """Return whether a name refers to a class of the project that inherits directly from ``torch.nn.Module``."""
    return any(map(NN_MODULE.fullmatch, find_base_classes(project, qualified) or ()))
