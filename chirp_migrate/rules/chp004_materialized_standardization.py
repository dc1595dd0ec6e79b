"""CHP004: lists of standardised samples are made without temporaries (R-000-1.1, R-000-4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.capture_timing import has_value
from chirp_migrate.analysis.dataflow.closures import Capture, is_target, reads_of
from chirp_migrate.analysis.dataflow.symbolic import (
    Const,
    Evaluator,
    Item,
    Made,
    Name,
    NotStraightLine,
    Value,
    item,
    names_in_code,
)
from chirp_migrate.analysis.datasets.dataset_meaning import is_part, standardized_pair
from chirp_migrate.edits.dataset_class import short
from chirp_migrate.edits.imports import runtime
from chirp_migrate.plans.plan import Edit, Safety
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.module import Module, matching
from chirp_migrate.syntax.project import Project

_SHIPPED = "standardized_samples"
_MESSAGE = f"samples standardised one by one: `{_SHIPPED}` makes the same list, at once where it can"
#: Around these an `or` needs brackets.
_BINDS_TIGHTER = (
    cst.BinaryOperation,
    cst.BooleanOperation,
    cst.Attribute,
    cst.Subscript,
    cst.Comparison,
    cst.ComparisonTarget,
    cst.UnaryOperation,
    cst.CompFor,
    cst.IfExp,
    cst.StarredElement,
)
_SAMPLE = Name("<sample>")
#: The look of a division behind a bracket, or by name.
_DIVIDES = re.compile(r"\)\s*/|div|normalize")


class MaterializedStandardization(Rule):
    """Requires, of a list comprehension, or of a loop that appends to a list:

    - `standardised-samples`: the elements are ``((x - mean) / (std + number), y)``, with or without the number, of ``x,
      y = dataset[i]`` for each ``i`` of a sequence, or of each ``x, y`` of a dataset.
    - `plain-loop`: one ``for`` over a name, without ``if``, ``else`` or ``async``, and not inside an f-string.
    - `assignments-only`: a loop holds assignments to names, and at its end the ``append`` of one element.
    - `empty-list-before`: right before a loop stands ``samples = []``.
    - `plain-names`: dataset, sequence, mean and std are names, which the loop does not bind, and not that of the list.
    - `names-have-values`: these names surely have values in front of the loop, and none is bound in the body of a
      class.
    - `nothing-besides`: everything that is evaluated becomes part of the element, and nothing is called but arithmetic.
    - `torch-is-torch`: where arithmetic is spelled ``torch.sub``, ``torch`` is PyTorch.
    - `loop-names-unread`: what a loop binds is a name of the function, or of the module, around it, and is surely not
      read outside of it.
    """

    code: ClassVar[str] = "CHP004"
    name: ClassVar[str] = "materialized-standardization"
    reason: ClassVar[str] = (
        "A list of standardised samples is built one sample at a time, each through two temporaries. The shipped "
        "function makes the same list, with tensors of their own, where the samples are rows of tensors in memory; "
        "anything else is read by the code that stood there."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("Dataset",)

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules that divide something, as standardising does, beside datasets."""
        return super().concerns(text, project) and _DIVIDES.search(text) is not None

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite lists built by a comprehension or by a loop with ``append``."""
        for node in module.find(cst.ListComp):
            found = None if _stands_in(module, node) else _from_comprehension(module, project, node)
            if found is not None:
                yield _rewrite_comprehension(module, node, found, project.code_style)
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
        eps = f", eps={short(self.eps)}" if self.eps else ""
        return f"{_SHIPPED}({self.dataset}, {self.indices}, {self.mean}, {self.std}{eps})"

    @property
    def names(self) -> set[str]:
        """The names that the call reads."""
        return {str(self.dataset), self.indices, str(self.mean), str(self.std)} - {"None"}


def _from_comprehension(module: Module, project: Project, node: cst.ListComp) -> _Built | None:
    loop = node.for_in
    if loop.ifs or loop.inner_for_in is not None or loop.asynchronous is not None:
        return None
    if any(isinstance(one, cst.FormattedStringExpression) for one in module.ancestors(node)):
        return None
    return _built(module, project, loop.target, loop.iter, node.elt, ())


def _built(
    module: Module,
    project: Project,
    target: cst.BaseExpression,
    source: cst.BaseExpression,
    element: cst.BaseExpression,
    body: Sequence[cst.CSTNode],
) -> _Built | None:
    """Meaning of one pass of the loop, if it standardises one sample."""
    evaluator = Evaluator(module.source, traced=True)
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
        evaluator.block(body, env)
        value = evaluator.expression(element, env)
    except NotStraightLine:
        return None
    parts = standardized_pair(value)
    if parts is None or not isinstance(source, cst.Name):
        return None
    if any(isinstance(one, Made) or not is_part(one.value, value) for one in evaluator.trace):
        return None
    mentioned = (one for part in (element, *body) for one in matching(part, m.Name("torch")))
    if any(project.resolved_names(module, one) != {"torch"} for one in mentioned):
        return None
    sample, mean, std, eps = parts
    if sample == _SAMPLE:
        # `for x, y in subset`: the samples of subset in order.
        built = _Built(evaluator.expression(source, {}), "None", mean, std, eps)
    elif index is not None and isinstance(sample, Item) and sample.index == index:
        built = _Built(sample.base, source.value, mean, std, eps)
    else:
        return None
    if not env.keys().isdisjoint(built.names):
        return None
    return built if all(_surely_has_value(module, source, one) for one in built.names) else None


def _surely_has_value(module: Module, node: cst.CSTNode, name: str) -> bool:
    """Whether a name has a value where ``node`` stands, and is none of a class body, which comprehensions cannot see.

    For functions, what the module binds on every way through it has one.
    """
    owner = module.scopes.lookup(name, node)
    if owner is None or isinstance(owner[0].node, cst.ClassDef):
        return False
    is_later = isinstance(owner[0].node, cst.Module) and module.enclosing_function(node) is not None
    return has_value(module, module.tree.body[-1] if is_later else node, Capture(name, *owner))


def _rewrite_comprehension(module: Module, node: cst.ListComp, built: _Built, style: CodeStyle) -> Proposal:
    span, newline = module.span(node), module.newline
    parts = [built.call, f"or {module.source(node)}"]
    text = " ".join(parts)
    indent = module.indentation(span[0])
    if len(indent) + len(text) > style.longest_line(module.text):
        inner = f"{newline}{indent}{module.tree.default_indent}"
        text = f"({inner}{inner.join(parts)}{newline}{indent})"
    elif isinstance(module.parents[node], _BINDS_TIGHTER):
        text = f"({text})"
    return Proposal(span[0], _MESSAGE, (Edit(*span, text),), frozenset({runtime(_SHIPPED)}))


def _examine_loop(module: Module, project: Project, node: cst.For) -> Proposal | None:
    """``for i in indices: …; samples.append((standardised x, y))`` right after ``samples = []``."""
    if node.orelse is not None or node.asynchronous is not None:
        return None
    *body, last = node.body.body
    append = m.SimpleStatementLine(
        [m.Expr(m.Call(m.Attribute(m.Name(), m.Name("append")), args=[m.Arg(keyword=None, star="")]))]
    )
    if not m.matches(last, append):
        return None
    call = last.body[0].value  # type: ignore[union-attr]
    collected = call.func.value.value
    built = _built(module, project, node.target, node.iter, call.args[0].value, body)
    if built is None or collected in built.names:
        return None
    offset = module.span(node)[0]
    if _stands_in(module, node, collected):
        return None
    empty = _empty_list_before(module, node, collected)
    if empty is None:
        message = f"samples standardised one by one, left alone: `{collected}` is not made right before the loop"
        return Proposal(offset, message)
    if any(_may_be_read(module, project, node, one) for one in sorted(names_in_code(node))):
        message = "samples standardised one by one, left alone: a name of the loop may be read outside of it"
        return Proposal(offset, message)
    outer = module.indentation(module.span(empty)[0])
    step = module.tree.default_indent
    start, end = module.text.rindex("\n", 0, module.span(node)[0]) + 1, module.span(node)[1]
    lines = module.text[start:end].split(module.newline)
    moved = module.newline.join(f"{step}{line}" if line.strip() else line for line in lines)
    first = f"{collected} = {built.call}{module.newline}{outer}if {collected} is None:{module.newline}"
    edits = (
        Edit(*module.span(empty), f"{first}{outer}{step}{collected} = []"),
        Edit(start, end, moved),
    )
    return Proposal(offset, _MESSAGE, edits, frozenset({runtime(_SHIPPED)}))


def _stands_in(module: Module, node: cst.ListComp | cst.For, collected: str = "") -> bool:
    """Whether ``node`` is what stood there before this rule: behind ``or``, or where ``collected`` is None."""
    parent = module.parents[node]
    if isinstance(node, cst.ListComp):
        made = m.BooleanOperation(left=m.Call(m.Name(_SHIPPED)), operator=m.Or())
        return m.matches(parent, made)
    around = module.parents.get(parent)
    unmade = m.Comparison(m.Name(collected), [m.ComparisonTarget(m.Is(), m.Name("None"))])
    return isinstance(around, cst.If) and m.matches(around.test, unmade)


def _empty_list_before(module: Module, node: cst.For, collected: str) -> cst.SimpleStatementLine | None:
    """The line ``collected = []`` right before the loop."""
    block = module.parents[node]
    statements = list(block.body) if isinstance(block, cst.IndentedBlock | cst.Module) else []
    place = statements.index(node) if node in statements else 0
    before = statements[place - 1] if place else None
    assign = m.Assign([m.AssignTarget(m.Name(collected))], m.List([]))
    if isinstance(before, cst.SimpleStatementLine) and m.matches(before, m.SimpleStatementLine([assign])):
        return before
    return None


def _may_be_read(module: Module, project: Project, loop: cst.For, name: str) -> bool:
    """Whether what a loop bound to ``name`` may be read outside of it."""
    owner, scope = module.scopes.lookup(name, loop), module.scopes.scope_of(loop)
    if owner is None or not any(_within(module, one.node, loop) for one in owner[1]):
        return False
    if owner[0] is not scope or isinstance(scope.node, cst.ClassDef):
        return True
    if scope.parent is None and project.imported_elsewhere(module, name):
        return True
    outside = Capture(name, scope, [one for one in owner[1] if not _within(module, one.node, loop)])
    mentions = (one for one in reads_of(module, name, scope) if not _within(module, one, loop))
    return any(not is_target(module, one) and not _is_bound_anew(module, loop, one, outside) for one in mentions)


def _is_bound_anew(module: Module, loop: cst.For, read: cst.Name, name: Capture) -> bool:
    """Whether a name read outside of ``loop`` does not have the value from it, because of the bindings of ``name``."""
    around = list(module.ancestors(read))
    inner = around[: around.index(name.scope.node)]
    if any(isinstance(one, cst.FunctionDef | cst.Lambda | cst.GeneratorExp) for one in inner):
        return False
    start, end = module.span(loop)
    if module.span(read)[0] > start:
        later = [one for one in name.bindings if module.span(one.node)[0] >= end]
    else:
        both = (one for one in module.ancestors(loop) if isinstance(one, cst.For | cst.While) and one in inner)
        turn = next(both, None)
        if turn is None:
            return True
        later = [one for one in name.bindings if _within(module, one.node, turn)]
    return has_value(module, read, Capture(name.name, name.scope, later))


def _within(module: Module, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
    start, end = module.span(outer)
    return start <= module.span(node)[0] < end
