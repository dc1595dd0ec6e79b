"""Lambdas that do what something shipped does for whole batches: standardise a sample, or stack samples."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from chirp_migrate.module import Module
from chirp_migrate.project import Project
from chirp_migrate.symbolic import Evaluator, NotStraightLine, Value, const, name
from chirp_migrate.transform_shapes import handing_on

__all__ = ["Shipped", "shipped_meaning"]

_SAMPLE = name("<sample>")
_APPLIERS = frozenset(f"torchvision.transforms.{module}Lambda" for module in ("", "transforms.", "v2."))
_STACKS = frozenset({"torch.stack"})


@dataclass(frozen=True)
class Shipped:
    """What stands for a lambda.

    Attributes:
        source: the expression.
        name: of the runtime, to be imported.
        node: what it replaces: the lambda, or the call of a class that does nothing but call it.
        does: what it does, as a clause.
    """

    source: str
    name: str
    node: cst.BaseExpression
    does: str


def shipped_meaning(module: Module, project: Project, node: cst.Lambda) -> Shipped | None:
    """What is shipped for this lambda; None where it does something else."""
    parameters = node.params
    plain = m.matches(parameters, m.Parameters(params=[m.Param(default=None)], kwonly_params=[], posonly_params=[]))
    if not plain or isinstance(parameters.star_arg, cst.Param) or parameters.star_kwarg is not None:
        return None
    parameter = parameters.params[0].name.value
    if _stacks_pairs(module, project, node.body, parameter):
        return Shipped("collate_pairs", "collate_pairs", node, "stacks samples and labels")
    source = _standardizing(module, node.body, parameter)
    if source is None:
        return None
    return Shipped(source, "Standardize", _with_applier(module, project, node), "standardises a sample")


def _standardizing(module: Module, body: cst.BaseExpression, parameter: str) -> str | None:
    """``Standardize(mean, std, …)`` for ``(x - mean) / (std + eps)`` with names for mean and std."""
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


def _with_applier(module: Module, project: Project, node: cst.Lambda) -> cst.BaseExpression:
    """The call around ``node`` of a class that does nothing but call what it is given; else ``node`` itself."""
    argument = module.parents.get(node)
    call = module.parents.get(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(call, cst.Call) or len(call.args) != 1 or call.args[0].keyword or call.args[0].star:
        return node
    names = project.resolved_names(module, call.func)
    applies = bool(names) and all(one in _APPLIERS or _only_applies(project, one) for one in names)
    return call if applies else node


def _only_applies(project: Project, qualified: str) -> bool:
    """Whether a class of the project keeps its one argument, calls it, and has nothing else to it."""
    found = project.class_definition(qualified)
    if found is None:
        return False
    hands_on = handing_on(found[1])
    if hands_on is not None:
        return not (hands_on.composes or hands_on.others)
    # The same class, migrated.
    bases = {name for base in found[1].bases for name in project.resolved_names(found[0], base.value)}
    methods = [one for one in found[1].body.body if isinstance(one, cst.FunctionDef)]
    return bases == {"chirpid_patch.Lambda"} and [one.name.value for one in methods] == ["__init__"]
