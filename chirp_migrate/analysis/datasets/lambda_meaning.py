"""Lambdas that do what something shipped does for whole batches: standardise a sample, or stack samples."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.symbolic import Evaluator, NotStraightLine, Value, const, name
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.project import Project

__all__ = ["Shipped", "shipped_meaning"]

_SAMPLE = name("<sample>")
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
    difference, divisor = _operation(value, "/")
    sample, mean = _operation(difference, "-")
    if sample != _SAMPLE or mean is None or mean.kind != "name" or mean == _SAMPLE or divisor is None:
        return None
    std, eps = _operation(divisor, "+")
    if std is None or eps is None:
        std, eps = divisor, const("None")
    if eps.kind != "const":
        std, eps = eps, std
    if std.kind != "name" or std == _SAMPLE or eps.kind != "const":
        return None
    return f"Standardize({mean}, {std}, eps={eps})"


def _operation(value: Value | None, symbol: str) -> tuple[Value, Value] | tuple[None, None]:
    if value is None or value.kind != "op" or value.parts[0] != symbol:
        return None, None
    _, left, right = value.parts
    assert isinstance(left, Value) and isinstance(right, Value)
    return left, right


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
