"""Lists of standardised samples that a comprehension, or a loop with ``append``, makes one sample at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import libcst as cst

from chirp_migrate.analysis.dataflow.capture_timing import has_value
from chirp_migrate.analysis.dataflow.read_outside import is_read_outside
from chirp_migrate.analysis.dataflow.symbolic import Const, Evaluator, Item, Name, NotStraightLine, Value, item
from chirp_migrate.analysis.datasets.dataset_meaning import is_part, standardized_pair
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import holds, names_below

_SAMPLE = Name("<sample>")


@dataclass(frozen=True)
class StandardizedList:
    """``(dataset[i] standardised for i in indices)``; ``indices`` ``...``: all of them.

    All but ``eps`` are names; ``collected`` is that of the list which a loop appends to.
    """

    dataset: Value
    indices: Value
    mean: Value
    std: Value
    eps: float
    collected: str = ""

    @property
    def names(self) -> set[str]:
        """The names that it is made from."""
        return {str(one) for one in (self.dataset, self.indices, self.mean, self.std)} - {"..."}


def in_comprehension(module: Module, project: Project, node: cst.ListComp) -> StandardizedList | None:
    """The list that a comprehension makes, if it is one of standardised samples."""
    loop = node.for_in
    if loop.ifs or loop.inner_for_in is not None or loop.asynchronous is not None:
        return None
    if any(isinstance(ancestor, cst.FormattedStringExpression) for ancestor in module.ancestors(node)):
        return None
    return _built(module, project, loop.target, loop.iter, node.elt, ())


def in_loop(module: Module, project: Project, node: cst.For) -> StandardizedList | None:
    """The list that a loop appends to, if it is one of standardised samples."""
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
            found = _built(module, project, node.target, node.iter, element, steps)
            return None if found is None or collected in found.names else replace(found, collected=collected)
    return None


def _built(
    module: Module,
    project: Project,
    target: cst.BaseExpression,
    source: cst.BaseExpression,
    element: cst.BaseExpression,
    body: Sequence[cst.CSTNode],
) -> StandardizedList | None:
    """Meaning of one iteration of the loop, if it standardises one sample."""
    env: dict[str, Value]
    index = None
    match target:
        case cst.Name(value=each):
            index = Name(each)
            env = {each: index}
        case cst.Tuple(elements=[cst.Element(value=cst.Name(value=x)), cst.Element(value=cst.Name(value=y))]):
            env = {x: item(_SAMPLE, Const("0")), y: item(_SAMPLE, Const("1"))}
        case _:
            return None
    try:
        path, *others = Evaluator(module.source).paths(body, env, element)
    except NotStraightLine:
        return None
    parts = standardized_pair(path.value)
    if parts is None or others or not isinstance(source, cst.Name):
        return None
    if path.calls or not all(is_part(one, path.value) for one in path.evaluated):
        return None
    mentioned = (name for part in (element, *body) for name in names_below(part, "torch"))
    if any(project.resolved_names(module, one) != {"torch"} for one in mentioned):
        return None
    match parts:
        case sample, mean, std, eps if sample == _SAMPLE:  # `for x, y in subset`: the samples of subset in order
            found = StandardizedList(Name(source.value), Const("..."), mean, std, eps)
        case Item(dataset, at), mean, std, eps if at == index:
            found = StandardizedList(dataset, Name(source.value), mean, std, eps)
        case _:
            return None
    clear = path.names.keys().isdisjoint(found.names) and all(
        _surely_has_value(module, source, name) for name in found.names
    )
    return found if clear else None


def _surely_has_value(module: Module, node: cst.CSTNode, name: str) -> bool:
    """Whether a name has a value where ``node`` stands, and is none of a class body, which comprehensions cannot see.

    For functions, what the module binds on every way through it has one.
    """
    owner = module.scopes.lookup(name, node)
    if owner is None or isinstance(owner[0].node, cst.ClassDef):
        return False
    is_later = isinstance(owner[0].node, cst.Module) and module.enclosing_function(node) is not None
    return has_value(module, module.tree.body[-1] if is_later else node, owner)


def may_be_read_outside(module: Module, project: Project, loop: cst.For, name: str) -> bool:
    """Whether what a loop bound to ``name`` may be read outside of it."""
    owner, scope = module.scopes.lookup(name, loop), module.scopes.scope_of(loop)
    if owner is None or not any(holds(module, loop, one.node) for one in owner[1]):
        return False
    if owner[0] is not scope or isinstance(scope.node, cst.ClassDef):
        return True
    exported = scope.parent is None and project.imported_elsewhere(module, name)
    return exported or is_read_outside(module, loop, name)
