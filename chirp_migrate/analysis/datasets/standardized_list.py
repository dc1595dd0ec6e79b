"""Recognise comprehensions, and loops with ``append``, that build a list of standardised samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import libcst as cst

from chirp_migrate.analysis.dataflow.capture_timing import is_always_assigned_before
from chirp_migrate.analysis.dataflow.read_outside import is_read_outside_loop
from chirp_migrate.analysis.dataflow.symbolic import (
    Const,
    Evaluator,
    Name,
    Subscript,
    UnmodelledCode,
    Value,
    make_subscript,
    names_in_code,
)
from chirp_migrate.analysis.dataflow.with_blocks import swallows_no_exceptions
from chirp_migrate.analysis.datasets.dataset_meaning import is_part_of_value, match_standardized_pair
from chirp_migrate.syntax.module import Module, find_nodes
from chirp_migrate.syntax.name_uses import is_imported_elsewhere
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import contains_node, find_nodes_in_scope, is_in_fstring, normalized_source

_SAMPLE = Name("<sample>")
_LEAVES = (cst.Return, cst.Raise, cst.Break, cst.Continue, cst.Yield, cst.Await)


@dataclass(frozen=True)
class StandardizedList:
    """A list of the standardised samples (x, y) of ``dataset`` at ``indices``.

    Attributes:
        dataset: the variable with the dataset.
        indices: the variable with the indices of the samples, in order; the constant ``...`` for all samples.
        mean: the variable that the code subtracts from x.
        std: the variable to which the code adds ``eps``. The code divides x by this sum.
        eps: number that is added to ``std``.
        reads: number of times that the code reads each sample: 1 if the code unpacks the sample, 2 if the code reads x
            and y separately.
        collected: the variable with the list to which a loop appends; "" for a comprehension.
    """

    dataset: Value
    indices: Value
    mean: Value
    std: Value
    eps: float
    reads: int
    collected: str = ""

    @property
    def names(self) -> set[str]:
        """Return the names of the variables from which the list is computed."""
        return {str(one) for one in (self.dataset, self.indices, self.mean, self.std)} - {"..."}


def list_built_by_comprehension(module: Module, node: cst.ListComp) -> StandardizedList | None:
    """Return the list of standardised samples that a comprehension builds; None for other comprehensions."""
    loop = node.for_in
    if loop.ifs or loop.inner_for_in is not None or loop.asynchronous is not None:
        return None
    if is_in_fstring(module, node):
        return None
    return _read_iteration(module, loop.target, loop.iter, node.elt, ())


def list_built_by_loop(module: Module, node: cst.For) -> StandardizedList | None:
    """Return the list to which a loop appends standardised samples; None for other loops."""
    *steps, last = node.body.body
    match last:
        case cst.SimpleStatementLine(
            body=[
                cst.Expr(
                    value=cst.Call(
                        func=cst.Attribute(value=cst.Name(value=collected), attr=cst.Name(value="append")),
                        args=[cst.Arg(value=element, keyword=None, star="")],
                    )
                )
            ]
        ) if node.orelse is None and node.asynchronous is None:
            found = _read_iteration(module, node.target, node.iter, element, steps)
            return None if found is None or collected in found.names else replace(found, collected=collected)
    return None


def _read_iteration(
    module: Module,
    target: cst.BaseExpression,
    source: cst.BaseExpression,
    element: cst.BaseExpression,
    body: Sequence[cst.CSTNode],
) -> StandardizedList | None:
    """Return the list that a loop or comprehension builds if each iteration standardises one sample; else None."""
    env: dict[str, Value]
    index = None
    match target:
        case cst.Name(value=each):
            index = Name(each)
            env = {each: index}
        case cst.Tuple(elements=[cst.Element(value=cst.Name(value=x)), cst.Element(value=cst.Name(value=y))]):
            env = {x: make_subscript(_SAMPLE, Const("0")), y: make_subscript(_SAMPLE, Const("1"))}
        case _:
            return None
    if not isinstance(source, cst.Name) or any(find_nodes(one, cst.Call) for one in (element, *body)):
        return None
    try:
        path, *others = Evaluator(module.source).paths(body, env, element)
    except UnmodelledCode:
        return None
    parts = match_standardized_pair(path.value)
    if parts is None or others or not all(is_part_of_value(one, path.value) for one in path.evaluated):
        return None
    match parts:
        case sample, mean, std, eps if sample == _SAMPLE:  # `for x, y in subset` reads all samples of subset in order
            found = StandardizedList(Name(source.value), Const("..."), mean, std, eps, 1)
        case Subscript(dataset, at) as sample, mean, std, eps if at == index:
            # If no statement precedes the ``append``, the pair reads the sample twice: first for x, then for y.
            is_read_twice = not body and path.items == [sample, sample]
            if not is_read_twice and not (path.items == [sample] and _is_unpacked(body)):
                return None
            found = StandardizedList(dataset, Name(source.value), mean, std, eps, 2 if is_read_twice else 1)
        case _:
            return None
    clear = path.names.keys().isdisjoint(found.names) and all(
        _has_stable_value(module, source, name) for name in found.names
    )
    return found if clear else None


def _is_unpacked(body: Sequence[cst.CSTNode]) -> bool:
    """Return whether the first statement of a loop is ``x, y = dataset[i]``."""
    match body:
        case [cst.SimpleStatementLine(body=[cst.Assign(targets=[one], value=cst.Subscript())]), *_]:
            return isinstance(one.target, cst.Tuple | cst.List) and len(one.target.elements) == 2
    return False


def _has_stable_value(module: Module, node: cst.CSTNode, name: str) -> bool:
    """Return whether a name always has a value at ``node``, and only code in the scope of the name assigns to it.

    Then reading a sample cannot change the value. The result is False for a name of a class body, because
    comprehensions cannot see such a name. For a module-level name that a function reads, it is enough that the module
    always assigns the name, even below the function.
    """
    owner = module.scopes.lookup(name, node)
    if owner is None or isinstance(owner[0].node, cst.ClassDef):
        return False
    if any(module.scopes.scope_of(one.node) is not owner[0] for one in owner[1] if not isinstance(one.node, cst.Param)):
        return False
    is_later = isinstance(owner[0].node, cst.Module) and module.enclosing_function(node) is not None
    return is_always_assigned_before(module, module.tree.body[-1] if is_later else node, owner)


def empty_list_line(module: Module, loop: cst.For, name: str) -> cst.SimpleStatementLine | None:
    """Return the line ``name = []`` above a loop; None without such a line.

    No statement between the line and the loop may use the name or leave the block.
    """
    statements: Sequence[cst.CSTNode] = getattr(module.parents[loop], "body", ())
    before = list(takewhile(lambda one: one is not loop, statements))
    for one in reversed(before):
        if isinstance(one, cst.SimpleStatementLine) and normalized_source(module, one) == f"{name} = []":
            return one
        if name in names_in_code(one) or find_nodes_in_scope(one, *_LEAVES):
            return None
    return None


def unfinished_list_may_be_seen(module: Module, loop: cst.For, name: str) -> bool:
    """Return whether code may see the list ``name`` while a loop fills the list, or after an error in the loop."""
    owner, scope = module.scopes.lookup(name, loop), module.scopes.scope_of(loop)
    if owner is None or owner[0] is not scope or isinstance(scope.node, cst.ClassDef):
        return True
    uses = [one for one in module.named(name) if module.scopes.lookup(name, one) == owner]
    if any(module.enclosing_scope(one) is not scope.node for one in uses):
        return True
    bodies: list[cst.BaseSuite] = []
    for ancestor in takewhile(lambda one: one is not scope.node, module.ancestors(loop)):
        match ancestor:
            case cst.Try(body=body) | cst.TryStar(body=body):
                bodies.append(body)
            case cst.With(body=body) if not swallows_no_exceptions(module, ancestor):
                bodies.append(body)
    return not all(contains_node(module, body, use) for body in bodies for use in uses)


def may_be_read_outside_loop(module: Module, project: Project, loop: cst.For, name: str) -> bool:
    """Return whether code outside a loop may read the loop's variable ``name``."""
    owner, scope = module.scopes.lookup(name, loop), module.scopes.scope_of(loop)
    if owner is None or not any(contains_node(module, loop, one.node) for one in owner[1]):
        return False
    if owner[0] is not scope or isinstance(scope.node, cst.ClassDef):
        return True
    exported = scope.parent is None and is_imported_elsewhere(project, module, name)
    return exported or is_read_outside_loop(module, loop, name)
