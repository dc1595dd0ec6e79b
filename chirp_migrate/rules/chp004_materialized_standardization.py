"""CHP004: lists of standardised samples are made without temporaries (R-000-1.1, R-000-4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.closures import is_variable
from chirp_migrate.dataset_class import short
from chirp_migrate.dataset_meaning import is_part, standardized_pair
from chirp_migrate.imports import runtime
from chirp_migrate.module import Module, matching
from chirp_migrate.names import Kind
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.symbolic import Evaluator, NotStraightLine, Value, const, item, name, names_in_code

_SHIPPED = "standardized_samples"
_MESSAGE = f"standardised samples are collected one by one: {_SHIPPED} makes the same list where it can do so faster"
#: Longer generated lines are broken.
_LINE_LENGTH = 100
#: Around these an `or` needs brackets.
_BINDS_TIGHTER = (
    cst.BinaryOperation,
    cst.BooleanOperation,
    cst.Attribute,
    cst.Subscript,
    cst.Comparison,
    cst.UnaryOperation,
    cst.CompFor,
    cst.IfExp,
    cst.StarredElement,
)
_SAMPLE = name("<sample>")
#: The look of a division behind a bracket, or by name.
_DIVIDES = re.compile(r"\)\s*/|div|normalize")


class MaterializedStandardization(Rule):
    """Requires a comprehension, or a loop right after ``samples = []`` that appends:

    - elements ``((x - mean) / (std + number), y)`` of the samples ``dataset[i]`` for the ``i`` of a sequence, or of
      ``for x, y in dataset``;
    - ``dataset``, ``mean``, ``std`` and the sequence that are names which the loop does not bind;
    - of a loop: nothing else in it but assignments to names, none of which is read after it.
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
            found = None if _stands_in(module, node) else _from_comprehension(module, node)
            if found is not None:
                yield _rewrite_comprehension(module, node, found)
        for loop in module.find(cst.For):
            proposal = _examine_loop(module, loop)
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
    evaluator = Evaluator(module.source, traced=True)
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
    made = any(one.kind == "made" for one in evaluator.trace)
    kept = (one.parts[0] for one in evaluator.trace if one.kind == "kept")
    if (
        made
        or not all(isinstance(one, Value) and is_part(one, value) for one in kept)
        or not isinstance(source, cst.Name)
    ):
        return None
    if "torch" in names_in_code(element) | {one for line in body for one in names_in_code(line)}:
        owner = module.scopes.lookup("torch", element)
        if owner is None or [one.kind for one in owner[1]] != [Kind.IMPORT]:
            return None
    iterated = source.value
    if sample == _SAMPLE:
        # `for x, y in subset`: the samples of subset in order.
        built = _Built(evaluator.expression(source, {}), "None", mean, std, eps)
    elif index is not None and sample.kind == "item" and sample.parts[1] == index:
        dataset = sample.parts[0]
        assert isinstance(dataset, Value)
        built = _Built(dataset, iterated, mean, std, eps)
    else:
        return None
    stable = all(part.kind == "name" for part in (built.dataset, mean, std))
    changed = not env.keys().isdisjoint({str(part) for part in (built.dataset, mean, std)} | {iterated})
    return built if stable and not changed else None


def _rewrite_comprehension(module: Module, node: cst.ListComp, built: _Built) -> Proposal:
    span, newline = module.span(node), module.newline
    parts = [built.call, f"or {module.source(node)}"]
    text = " ".join(parts)
    indent = module.indentation(span[0])
    if len(indent) + len(text) > _LINE_LENGTH:
        inner = f"{newline}{indent}{module.tree.default_indent}"
        text = f"({inner}{inner.join(parts)}{newline}{indent})"
    elif isinstance(module.parents[node], _BINDS_TIGHTER):
        text = f"({text})"
    return Proposal(span[0], _MESSAGE, (Edit(*span, text),), frozenset({runtime(_SHIPPED)}))


def _examine_loop(module: Module, node: cst.For) -> Proposal | None:
    """``for i in indices: …; samples.append((standardised x, y))`` right after ``samples = []``."""
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
    if _stands_in(module, node, collected):
        return None
    empty = _empty_list_before(module, node, collected)
    if empty is None:
        message = f"standardised samples are collected in a list, but `{collected}` is not made right before the loop"
        return Proposal(offset, message)
    names = (one for one in matching(node, m.Name()) if isinstance(one, cst.Name))
    bound = {one.value for one in names if _is_bound(module, node, one)}
    if _read_after(module, node, bound):
        return Proposal(offset, "standardised samples are collected in a list, but a name of the loop is used after it")
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
