"""Lambdas that do what another function does: one that they only call, or a shipped one that takes whole batches."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.dataflow.symbolic import Const, Evaluator, Name, NotStraightLine, Op, takes_plain_arguments
from chirp_migrate.analysis.dataflow.uses_elsewhere import (
    calls_of,
    gives_more,
    has_subclass,
    is_assigned,
    is_probed,
    is_quoted,
    is_replaced,
    is_settled,
    may_set_computed,
    passed_by_name,
)
from chirp_migrate.syntax.module import Module, find_in, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import Mention, dotted, mention, plain_source
from chirp_migrate.syntax.scopes import Kind

_SAMPLE = Name("<sample>")
#: Functions of PyTorch; what is no function there, and can be called, is left out.
_FUNCTIONS = re.compile(
    r"torch\.(?:(?:nn\.functional|nn\.utils\.rnn|utils\.data|utils\.data\.dataloader)\.)?"
    r"(?!(?:autocast|device|dtype|enable_grad|finfo|get_device_module|iinfo|inference_mode|layout|memory_format|no_grad"
    r"|qscheme|set_grad_enabled)$)[a-z]\w*"
)
_STACKS = frozenset({"torch.stack"})


@dataclass(frozen=True)
class Forwarded:
    """The function that a lambda only calls."""

    function: str


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


def instead_of(
    module: Module, project: Project, node: cst.Lambda, called: Collection[str]
) -> Forwarded | Shipped | None:
    """What stands for this lambda where every name in it means what it will mean when it is called, by position.

    Args:
        module: the module.
        project: the project around it.
        node: the lambda.
        called: by what names it is called.
    """
    forwarded, shipped = _forwarded(module, project, node), _shipped(module, project, node)
    if (forwarded is None and shipped is None) or not _means_the_same_early(module, project, node):
        return None
    arguments = len(node.params.params)
    if forwarded is not None and not any(
        gives_more(call, arguments) or call.keywords for call in calls_of(module, project, called)
    ):
        return Forwarded(forwarded)
    owner = module.scopes.lookup(shipped.name, node) if shipped is not None else None
    return shipped if owner is None or isinstance(owner[0].node, cst.Module) else None


def _means_the_same_early(module: Module, project: Project, node: cst.Lambda) -> bool:
    """Whether every name in the lambda means where it stands what it will mean when it is called, by position."""
    if isinstance(module.scopes.scope_of(node).node, cst.ClassDef):
        return False
    if any(passed_by_name(project, one.name.value) for one in (*node.params.posonly_params, *node.params.params)):
        return False
    names = (one for one in find_in(node.body, cst.Name) if mention(module, one) is not Mention.LABEL)
    return all(_is_settled(module, project, node, name.value, name) for name in names)


def _is_settled(module: Module, project: Project, node: cst.Lambda, name: str, use: cst.Name) -> bool:
    """Whether a name of the module gets its value once, above; others are checked before."""
    owner = module.scopes.lookup(name, use)
    if owner is None or not isinstance(owner[0].node, cst.Module):
        return owner is not None or module.scopes.is_builtin(name)
    around = module.parents[use]
    path = (dotted(around) if isinstance(around, cst.Attribute) else None) or name
    return is_settled(module, project, path, owner[1], module.span(node)[0])


def _forwarded(module: Module, project: Project, node: cst.Lambda) -> str | None:
    """``f`` for ``lambda a, b: f(a, b)``, if ``f`` is a function and can be nothing else: whoever is given the lambda
    may ask whether it is ``None``, empty, or a module of PyTorch.
    """
    parameters, body = node.params, node.body
    names = [parameter.name.value for parameter in parameters.params]
    if not isinstance(body, cst.Call) or not takes_plain_arguments(node):
        return None
    given = [
        one.value.value for one in body.args if isinstance(one.value, cst.Name) and not one.star and not one.keyword
    ]
    path = dotted(body.func)
    if given != names or len(body.args) != len(names) or path is None or path.partition(".")[0] in names:
        return None
    last = path.rpartition(".")[2]
    if "." in path and (is_assigned(project, last) or is_quoted(project, last)):
        return None
    if project.holds(rf"{last}(?<!\w{last})\s*\.\s*\w+\s*=(?!=)|setattr(?<!\wsetattr)\s*\(\s*{last}\b", last):
        return None  # it may have any attribute
    is_function = _is_method(module, project, node, path) or _is_function(module, project, body.func, len(names))
    return path if is_function else None


def _is_function(module: Module, project: Project, called: cst.BaseExpression, arguments: int) -> bool:
    """Whether an expression names a function of Python, of PyTorch, or of the project: one without decorators that
    takes so many ``arguments``.
    """
    path = dotted(called) or ""
    owner = module.scopes.lookup(path.partition(".")[0], called)
    if owner is None:
        return "." not in path and module.scopes.is_builtin(path)
    if "." not in path and owner[1][0].kind is Kind.DEFINITION:
        return _is_plain(owner[1][0].node, arguments)
    qualified = "".join(project.resolved_names(module, called)) if owner[1][0].kind is Kind.IMPORT else ""
    if not project.defines(qualified):
        return _FUNCTIONS.fullmatch(qualified) is not None and not project.has_package("torch")
    home, function = project.function_definition(qualified) or (module, None)
    name = qualified.rpartition(".")[2]
    once = len(home.scopes.module.bindings.get(name, ())) == 1
    return once and function is not None and _is_plain(function, arguments) and not is_replaced(home, project, name)


def _is_plain(function: cst.CSTNode, arguments: int) -> bool:
    if not isinstance(function, cst.FunctionDef) or function.decorators:
        return False
    return takes_plain_arguments(function) and len(function.params.params) == arguments


def _is_method(module: Module, project: Project, node: cst.Lambda, path: str) -> bool:
    """Whether ``path`` is ``self.name`` for a method of the class around, which no other class inherits."""
    owner, (first, _, name) = module.enclosing_class(node), path.partition(".")
    if first != "self" or owner is None or has_subclass(project, owner.name.value):
        return False
    methods = [one for one in owner.body.body if isinstance(one, cst.FunctionDef) and one.name.value == name]
    return (
        len(methods) == 1
        and _is_plain(methods[0], len(node.params.params) + 1)
        and not may_set_computed(module, project, owner)
    )


def _shipped(module: Module, project: Project, node: cst.Lambda) -> Shipped | None:
    """What is shipped for this lambda; None where it does something else."""
    if len(node.params.params) != 1 or not takes_plain_arguments(node):
        return None
    parameter = node.params.params[0].name.value
    if _stacks_pairs(module, project, node.body, parameter):
        return Shipped("collate_pairs", "collate_pairs", "stacks samples and labels")
    source = _standardizing(module, node.body, parameter)
    if source is None:
        return None
    # Unlike a lambda it has attributes, by which a program may take it for a transform of another library.
    return None if is_probed(project, "mean", "std") else Shipped(source, "Standardize", "standardises a sample")


def _standardizing(module: Module, body: cst.BaseExpression, parameter: str) -> str | None:
    """``Standardize(mean, std, …)`` for ``(x - mean) / (std + eps)`` with names for mean and std."""
    if any(isinstance(node, cst.Attribute) and node.attr.value.endswith("_") for node in walk(body)):
        return None  # in place, the dtype stays as it is
    try:
        path, *others = Evaluator(module.source).paths((), {parameter: _SAMPLE}, body)
    except NotStraightLine:
        return None
    if others:
        return None
    match path.value:
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
    called = [call.func for call in find_in(body, cst.Call)]
    if len(called) != 2 or any(project.resolved_names(module, one) != _STACKS for one in called):
        return False
    stacked = rf"[\w.]+\(\[(\w+)\[{{}}\] for \{{}} in {parameter}\]\)"
    pair = re.fullmatch(rf"\({stacked.format(0, 1)}, {stacked.format(1, 2)}\)", plain_source(module, body))
    return pair is not None and parameter not in pair.groups()
