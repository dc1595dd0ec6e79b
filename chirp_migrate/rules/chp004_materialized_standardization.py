"""CHP004: lists of standardised samples become a standardised dataset (R-000-1.1, R-000-4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.closures import is_variable
from chirp_migrate.dataset_class import read_dataset_class
from chirp_migrate.dataset_meaning import Listing, standardized_pair
from chirp_migrate.imports import runtime
from chirp_migrate.module import Module, matching
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.statements import line_deletion
from chirp_migrate.symbolic import Evaluator, NotStraightLine, Value, const, item, name

_SHIPPED = "WorkerSafeStandardizedDataset"
_SAMPLE = name("<sample>")
#: The look of a division behind a bracket, or by name.
_DIVIDES = re.compile(r"\)\s*/|div|normalize")


class MaterializedStandardization(Rule):
    code: ClassVar[str] = "CHP004"
    name: ClassVar[str] = "materialized-standardization"
    reason: ClassVar[str] = (
        "A Python list of standardised samples is built one sample at a time, holds a second copy of the data, and is "
        "collated sample by sample in every epoch. The shipped dataset standardises whole batches as they are read; "
        "samples that are not plainly in memory are still read once, as before."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("Dataset",)

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules that divide something, as standardising does, beside datasets."""
        return super().concerns(text, project) and _DIVIDES.search(text) is not None

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite lists built by a comprehension or by a loop with ``append``."""
        for node in module.find(cst.ListComp):
            found = _from_comprehension(module, node)
            if found is not None:
                yield _rewrite_comprehension(module, project, node, found)
        for loop in module.find(cst.For):
            proposal = _examine_loop(module, project, loop)
            if proposal is not None:
                yield proposal


@dataclass(frozen=True)
class _Built:
    """``(dataset[i] standardised for i in indices)``."""

    dataset: Value
    indices: str
    mean: Value
    std: Value
    eps: float

    @property
    def call(self) -> str:
        eps = "" if self.eps == 1e-8 else f", eps={self.eps!r}"
        return f"{_SHIPPED}.from_samples({self.dataset}, {self.indices}, {self.mean}, {self.std}{eps})"


def _from_comprehension(module: Module, node: cst.ListComp) -> _Built | None:
    loop = node.for_in
    if loop.ifs or loop.inner_for_in is not None or loop.asynchronous is not None:
        return None
    return _built(module, loop.target, loop.iter, node.elt, ())


def _built(
    module: Module,
    target: cst.BaseExpression,
    source: cst.BaseExpression,
    element: cst.BaseExpression,
    body: Sequence[cst.CSTNode],
) -> _Built | None:
    """Meaning of one pass of the loop, if it standardises one sample."""
    evaluator = Evaluator(module.source)
    env: dict[str, Value] = {}
    index: Value | None = None
    if isinstance(target, cst.Name):
        index = name(target.value)
        env[target.value] = index
    elif isinstance(target, cst.Tuple) and len(target.elements) == 2:
        for position, part in enumerate(target.elements):
            if not isinstance(part.value, cst.Name):
                return None
            env[part.value.value] = item(_SAMPLE, const(str(position)))
    else:
        return None
    bound = set(env)
    try:
        evaluator.block(body, env)
        value = evaluator.expression(element, env)
    except NotStraightLine:
        return None
    if value.kind != "tuple" or not isinstance(value.parts[0], tuple) or len(value.parts[0]) != 2:
        return None
    parts = standardized_pair(value.parts[0])
    if parts is None:
        return None
    sample, mean, std, eps = parts
    iterated = module.source(source)
    if sample == _SAMPLE:
        # `for x, y in subset`: the samples of subset in order.
        if not isinstance(source, cst.Name | cst.Attribute):
            return None
        built = _Built(evaluator.expression(source, {}), f"range(len({iterated}))", mean, std, eps)
    elif index is not None and sample.kind == "item" and sample.parts[1] == index:
        dataset = sample.parts[0]
        assert isinstance(dataset, Value)
        built = _Built(dataset, iterated, mean, std, eps)
    else:
        return None
    stable = all(part.kind in ("name", "attr") for part in (built.dataset, mean, std))
    changed = bound | (set(env) - bound)
    return (
        built if stable and not any(str(p).partition(".")[0] in changed for p in (built.dataset, mean, std)) else None
    )


def _rewrite_comprehension(module: Module, project: Project, node: cst.ListComp, built: _Built) -> Proposal:
    offset = module.span(node)[0]
    parent = module.parents[node]
    usable = False
    if isinstance(parent, cst.Arg):
        call = module.parents[parent]
        usable = isinstance(call, cst.Call) and _wraps_samples(module, project, call)
    elif isinstance(parent, cst.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0].target, cst.Name):
        usable = _only_wrapped(module, project, parent.targets[0].target.value, node, ())
    if not usable:
        return Proposal(offset, _NOT_WRAPPED)
    message = f"standardised samples collected in a list: {_SHIPPED} standardises batches instead"
    return Proposal(offset, message, (Edit(*module.span(node), built.call),), frozenset({runtime(_SHIPPED)}))


_NOT_WRAPPED = (
    "standardised samples are collected in a list, but the list is used for more than being wrapped in a dataset, "
    f"so it is left alone; use {_SHIPPED} where it is read"
)


def _examine_loop(module: Module, project: Project, node: cst.For) -> Proposal | None:
    """``for i in indices: …; samples.append((standardised x, y))`` with ``samples = []`` before it."""
    if node.orelse is not None or node.asynchronous is not None or not isinstance(node.body, cst.IndentedBlock):
        return None
    *body, last = node.body.body
    append = m.SimpleStatementLine([m.Expr(m.Call(m.Attribute(m.Name(), m.Name("append")), args=[m.Arg()]))])
    if not m.matches(last, append):
        return None
    call = last.body[0].value  # type: ignore[attr-defined]
    collected = call.func.value.value
    built = _built(module, node.target, node.iter, call.args[0].value, body)
    if built is None:
        return None
    offset = module.span(node)[0]
    empty = _empty_list_before(module, node, collected)
    if empty is None:
        return Proposal(offset, f"{_NOT_WRAPPED} (`{collected}` does not start empty right before the loop)")
    loop_names = {n.value for n in matching(node, m.Name()) if isinstance(n, cst.Name) and _is_bound(module, node, n)}
    if _read_after(module, node, loop_names):
        return Proposal(offset, "standardised samples are collected in a list, but a name of the loop is used after it")
    if not _only_wrapped(module, project, collected, node, (empty,)):
        return Proposal(offset, _NOT_WRAPPED)
    message = f"standardised samples collected in a list: {_SHIPPED} standardises batches instead"
    edits = (line_deletion(module, empty), Edit(*module.span(node), f"{collected} = {built.call}"))
    return Proposal(offset, message, edits, frozenset({runtime(_SHIPPED)}))


def _empty_list_before(module: Module, node: cst.For, collected: str) -> cst.SimpleStatementLine | None:
    """The line ``collected = []`` in the same block before the loop, with nothing in between that names it."""
    block = module.parents[node]
    statements = list(block.body) if isinstance(block, cst.IndentedBlock | cst.Module) else []
    for statement in reversed(statements[: statements.index(node)] if node in statements else []):
        assign = m.Assign([m.AssignTarget(m.Name(collected))], m.List([]))
        if m.matches(statement, m.SimpleStatementLine([assign])):
            assert isinstance(statement, cst.SimpleStatementLine)
            return statement
        if matching(statement, m.Name(collected)):
            return None
    return None


def _is_bound(module: Module, loop: cst.For, node: cst.Name) -> bool:
    """Whether a name in the loop is assigned there."""
    if any(node is n for n in matching(loop.target, m.Name())):
        return True
    return any(isinstance(a, cst.AssignTarget) for a in module.ancestors(node)) and not isinstance(
        module.parents[node], cst.Subscript | cst.Attribute
    )


def _scope(module: Module, node: cst.CSTNode) -> cst.CSTNode:
    return module.enclosing_function(node) or module.tree


def _read_after(module: Module, loop: cst.For, names: set[str]) -> bool:
    """Whether the first later mention of a loop name in the function reads it."""
    end = module.span(loop)[1]
    for one in names:
        later = [n for n in matching(_scope(module, loop), m.Name(one)) if module.span(n)[0] >= end]
        first = min(later, key=lambda n: module.span(n)[0], default=None)
        if first is None or not is_variable(module, first):
            continue
        bound = any(
            isinstance(
                a,
                cst.AssignTarget | cst.CompFor | cst.ListComp | cst.GeneratorExp | cst.SetComp | cst.DictComp,
            )
            or (isinstance(a, cst.For) and _within(module, first, a.target))
            or isinstance(a, cst.Lambda)
            for a in module.ancestors(first)
            if a is not loop and module.span(a)[0] >= end
        )
        if not bound:
            return True
    return False


def _within(module: Module, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
    start, end = module.span(outer)
    return start <= module.span(node)[0] < end


def _only_wrapped(
    module: Module, project: Project, collected: str, builder: cst.CSTNode, besides: Sequence[cst.CSTNode]
) -> bool:
    """Whether every read of the list hands it to a dataset of its samples or asks its length."""
    scope = _scope(module, builder)
    if isinstance(scope, cst.Module):
        return False
    inside = (builder, *besides)
    for mention in matching(scope, m.Name(collected)):
        if any(_within(module, mention, node) for node in inside):
            continue
        parent = module.parents[mention]
        if isinstance(parent, cst.AssignTarget) or not is_variable(module, mention):
            continue
        call = module.parents[parent] if isinstance(parent, cst.Arg) else None
        if not isinstance(call, cst.Call):
            return False
        if not (m.matches(call.func, m.Name("len")) or _wraps_samples(module, project, call)):
            return False
    return True


def _wraps_samples(module: Module, project: Project, call: cst.Call) -> bool:
    """Whether a call builds a dataset that hands out the samples of its only argument."""
    if len(call.args) != 1 or call.args[0].star:
        return False
    for qualified in project.resolved_names(module, call.func):
        if qualified == "chirpid_patch.WorkerSafeSequenceDataset":
            return True
        found = project.class_definition(qualified)
        if found is None:
            continue
        owner, definition = found
        names = {n for base in definition.bases for n in project.resolved_names(owner, base.value)}
        if names == {"chirpid_patch.WorkerSafeSequenceDataset"}:
            return True
        read = read_dataset_class(owner, project, definition)
        if read is not None and isinstance(read.meaning, Listing):
            return True
    return False
