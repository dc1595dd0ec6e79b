"""Lambdas that do what something shipped does for whole batches: standardise a sample, or stack samples."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.symbolic import Const, Evaluator, Name, NotStraightLine, Op
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.project import Project

__all__ = ["Shipped", "shipped_meaning"]

_SAMPLE = Name("<sample>")
_STACKS = frozenset({"torch.stack"})


@dataclass(frozen=True)
class Shipped:
    """What stands for a lambda.

    Attributes:
        source: the expression.
        name: of the runtime, to be imported.
        does: what it does, as a clause.
    """

    source: str
    name: str
    does: str


def shipped_meaning(module: Module, project: Project, node: cst.Lambda) -> Shipped | None:
    """What is shipped for this lambda; None where it does something else."""
    parameters = node.params
    plain = m.matches(parameters, m.Parameters(params=[m.Param(default=None)], kwonly_params=[], posonly_params=[]))
    if not plain or isinstance(parameters.star_arg, cst.Param) or parameters.star_kwarg is not None:
        return None
    parameter = parameters.params[0].name.value
    if _stacks_pairs(module, project, node.body, parameter):
        return Shipped("collate_pairs", "collate_pairs", "stacks samples and labels")
    source = _standardizing(module, node.body, parameter)
    if source is None:
        return None
    return Shipped(source, "Standardize", "standardises a sample")


def _standardizing(module: Module, body: cst.BaseExpression, parameter: str) -> str | None:
    """``Standardize(mean, std, …)`` for ``(x - mean) / (std + eps)`` with names for mean and std."""
    if any(isinstance(one, cst.Attribute) and one.attr.value.endswith("_") for one in walk(body)):
        return None  # in place, the dtype stays as it is
    try:
        value = Evaluator(module.source).expression(body, {parameter: _SAMPLE})
    except NotStraightLine:
        return None
    match value:
        case Op("/", Op("-", sample, Name() as mean), divisor) if sample == _SAMPLE != mean:
            std, eps = divisor, Const("None")
        case _:
            return None
    match divisor:
        case Op("+", Name() as std, Const() as eps) | Op("+", Const() as eps, Name() as std):
            pass
    if not isinstance(std, Name) or std == _SAMPLE:
        return None
    return f"Standardize({mean}, {std}, eps={eps})"


def _stacks_pairs(module: Module, project: Project, body: cst.BaseExpression, parameter: str) -> bool:
    """Whether it is ``(torch.stack([s[0] for s in batch]), torch.stack([s[1] for s in batch]))``."""
    if not isinstance(body, cst.Tuple) or len(body.elements) != 2:
        return False
    for position, element in enumerate(body.elements):
        call = element.value
        if not isinstance(call, cst.Call) or len(call.args) != 1 or call.args[0].keyword or call.args[0].star:
            return False
        if project.resolved_names(module, call.func) != _STACKS:
            return False
        loop = call.args[0].value
        if not isinstance(loop, cst.ListComp) or not isinstance(loop.for_in.target, cst.Name):
            return False
        each = loop.for_in.target.value
        index = m.Subscript(m.Name(each), [m.SubscriptElement(m.Index(m.Integer(str(position))))])
        over = m.CompFor(iter=m.Name(parameter), ifs=[], inner_for_in=None, asynchronous=None)
        if each == parameter or not m.matches(loop, m.ListComp(elt=index, for_in=over)):
            return False
    return True
