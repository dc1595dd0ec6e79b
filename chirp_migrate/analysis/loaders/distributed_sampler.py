"""Find the distributed sampler that shuffles the samples of a loader, and check whether code sets its epoch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import AssignedValue, assigned_values, assigning_scope
from chirp_migrate.analysis.known_names import DISTRIBUTED_SAMPLER, resolves_to
from chirp_migrate.analysis.loaders.loader_values import LoaderExpressions, LoaderValue
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    call_argument,
    called_method_name,
    contains_node,
    dotted_source,
    find_nodes_in_scope,
    is_name,
)
from chirp_migrate.syntax.scopes import BindingKind

_SET = r"\.\s*set_epoch\s*\("
#: Position of ``sampler`` in ``DataLoader(…)`` and of ``shuffle`` in ``DistributedSampler(…)``.
_POSITION = 3


@dataclass(frozen=True)
class DistributedSampler:
    """A distributed sampler that shuffles.

    Attributes:
        name: an expression by which code in the loop can refer to the sampler, such as ``sampler`` or
            ``loader.sampler``.
        made: the values that code assigns to the variable with the sampler. For a name such as ``loader.sampler``, the
            values that code assigns to the variable with the loader.
        guard: name of the sampler's class if the rewrite has to add an ``isinstance`` check to the loop, because the
            sampler may be another object; else "". For a name such as ``loader.sampler``, the rewrite adds no check.
        is_known: whether the object provably is a distributed sampler, or a rewrite can add a check with ``isinstance``
            to the loop.
    """

    name: str
    made: Sequence[AssignedValue]
    guard: str = ""
    is_known: bool = True


def distributed_sampler_of_loader(
    module: Module, project: Project, loader_expression: cst.BaseExpression, loader: LoaderValue, place: cst.CSTNode
) -> DistributedSampler | None:
    """Return the sampler of a loader if the sampler may be a distributed sampler that shuffles; else None.

    Args:
        module: the module that iterates over the loader.
        project: the project that contains the module.
        loader_expression: the expression that refers to the loader.
        loader: the value of this expression.
        place: the code in which the ``name`` of the result must refer to the sampler, such as the loop.
    """
    given = ((owner, call_argument(call, _POSITION, "sampler")) for owner, call in loader.calls)
    made = [(owner, value, *_sampler_calls(owner, project, value)) for owner, value in given if value is not None]
    known = [one for one in made if one[2]]
    if not known:
        return None
    owner, value, calls, certain = known[0]
    name, loader_name = dotted_source(value), dotted_source(loader_expression)
    is_here = owner is module and len(known) == 1
    if name is not None and is_here and assigning_scope(module, place, name) is assigning_scope(module, value, name):
        guard = "" if certain else module.source(calls[0].func).strip()
        is_known = certain or _is_imported(module, calls[0].func)
        return DistributedSampler(name, assigned_values(module, value), guard, is_known)
    if loader_name is None:
        return None
    always = certain and loader.complete and len(known) == len(loader.calls)
    return DistributedSampler(f"{loader_name}.sampler", assigned_values(module, loader_expression), is_known=always)


def _sampler_calls(module: Module, project: Project, value: cst.BaseExpression) -> tuple[list[cst.Call], bool]:
    """Return the calls that create ``value`` as a distributed sampler that shuffles.

    The second result is whether every possible value comes from such a call.
    """
    found = assigned_values(module, value)
    if any(one.part is not None for one in found) or (not found and dotted_source(value) is not None):
        return [], False
    values = [one.value for one in found] or [value]
    values = [part for one in values for part in ((one.body, one.orelse) if isinstance(one, cst.IfExp) else (one,))]
    calls = [
        one
        for one in values
        if isinstance(one, cst.Call)
        and resolves_to(module, one.func, DISTRIBUTED_SAMPLER, project)
        and not is_name(call_argument(one, _POSITION, "shuffle"), "False")
    ]
    return calls, bool(calls) and len(calls) == len(values)


def _is_imported(module: Module, node: cst.BaseExpression) -> bool:
    """Return whether the module imports the first name of an expression at its top level."""
    bindings = module.scopes.module.bindings.get((dotted_source(node) or "").partition(".")[0], ())
    lines = (module.parents[binding.node] for binding in bindings if binding.kind is BindingKind.IMPORT)
    return any(isinstance(module.parents.get(line), cst.Module) for line in lines)


def has_set_epoch_call(
    module: Module, project: Project, loop: cst.For, sampler: DistributedSampler, loader: cst.BaseExpression
) -> bool:
    """Return whether code may call ``set_epoch`` for ``sampler``.

    The call may be in the function that contains the loop, in other code that names the sampler or its loader, or in a
    function that the loop calls.
    """
    if re.search(_SET, module.text) is None and not project.search(_SET, "set_epoch"):
        return False
    telling = [one for one in module.find(cst.Call) if called_method_name(one) == "set_epoch"]
    function = module.enclosing_function(loop)
    named = dotted_source(loader) or ""
    receivers = {sampler.name, named, f"{named}.sampler", f"{named}.batch_sampler"}
    for call in telling:
        here = function is None or contains_node(module, function, call)
        if here or (isinstance(call.func, cst.Attribute) and dotted_source(call.func.value) in receivers):
            return True
    names = module.once(LoaderExpressions, project)
    definitions = (one for call in find_nodes_in_scope(loop.body, cst.Call) for one in names.functions(call))
    return any(re.search(_SET, owner.source(definition)) for owner, definition in definitions)
