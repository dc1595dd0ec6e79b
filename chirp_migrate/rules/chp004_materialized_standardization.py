"""CHP004: lists of standardised samples are made without temporaries (R-000-1.1, R-000-4.2)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import libcst as cst

from chirp_migrate.analysis.dataflow.symbolic import names_in_code
from chirp_migrate.analysis.datasets.declared_class import short
from chirp_migrate.analysis.datasets.standardized_list import (
    StandardizedList,
    in_comprehension,
    in_loop,
    may_be_read_outside,
)
from chirp_migrate.rules.api import (
    Edit,
    Module,
    Outline,
    Project,
    Proposal,
    Rule,
    Safety,
    is_name,
    last_name,
    plain_source,
    runtime,
)

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
#: A division, or the name of one.
_DIVIDES = re.compile(r"/|div|normalize")


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

    code = "CHP004"
    name = "materialized-standardization"
    reason = (
        "A list of standardised samples is built one sample at a time, each through two temporaries. The shipped "
        "function makes the same list, with tensors of their own, where the samples are rows of tensors in memory; "
        "anything else is read by the code that stood there."
    )
    safety = Safety.SAFE
    trigger = ("ataset",)
    beside = (_DIVIDES,)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Only where a comprehension, or a loop that appends in the end, goes through a name and divides something."""
        loops = [loop for loop in outline.find(ast.For) if isinstance(loop.iter, ast.Name) and _appends(loop.body[-1])]
        makers = [one for one in outline.find(ast.ListComp) if isinstance(one.generators[0].iter, ast.Name)]
        code = (one for loop in (*loops, *makers) for one in outline.inside(loop))
        return any(isinstance(getattr(one, "op", 0), ast.Div) or _DIVIDES.search(last_name(one)) for one in code)

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite lists built by a comprehension or by a loop with ``append``."""
        for node in module.find(cst.ListComp):
            found = None if _stands_in(module, node) else in_comprehension(module, project, node)
            if found is not None:
                yield _rewrite_comprehension(module, project, node, found)
        for loop in module.find(cst.For):
            found = in_loop(module, project, loop)
            if found is not None and not _stands_in(module, loop, found.collected):
                yield _rewrite_loop(module, project, loop, found)


def _appends(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(), attr="append"), args=[_])):
            return True
    return False


def _call(found: StandardizedList) -> str:
    eps = f", eps={short(found.eps)}" if found.eps else ""
    return f"{_SHIPPED}({found.dataset}, {found.indices}, {found.mean}, {found.std}{eps})"


def _rewrite_comprehension(module: Module, project: Project, node: cst.ListComp, found: StandardizedList) -> Proposal:
    span, newline = module.span(node), module.newline
    parts = [_call(found), f"or {module.source(node)}"]
    text = " ".join(parts)
    indent = module.indentation(span[0])
    if len(indent) + len(text) > project.code_style.longest_line(module.text):
        inner = f"{newline}{indent}{module.tree.default_indent}"
        text = f"({inner}{inner.join(parts)}{newline}{indent})"
    elif isinstance(module.parents[node], _BINDS_TIGHTER):
        text = f"({text})"
    return Proposal(span[0], _MESSAGE, (Edit(*span, text),), frozenset({runtime(_SHIPPED)}))


def _rewrite_loop(module: Module, project: Project, node: cst.For, found: StandardizedList) -> Proposal:
    """``for i in indices: …; samples.append((standardised x, y))`` right after ``samples = []``."""
    offset, collected = module.span(node)[0], found.collected
    empty = _empty_list_before(module, node, collected)
    if empty is None:
        message = f"samples standardised one by one, left alone: `{collected}` is not made right before the loop"
        return Proposal(offset, message)
    if any(may_be_read_outside(module, project, node, one) for one in sorted(names_in_code(node))):
        message = "samples standardised one by one, left alone: a name of the loop may be read outside of it"
        return Proposal(offset, message)
    outer, step, newline = module.indentation(module.span(empty)[0]), module.tree.default_indent, module.newline
    start, end = module.line_start(offset), module.span(node)[1]
    lines = module.text[start:end].split(newline)
    moved = newline.join(f"{step}{line}" if line.strip() else line for line in lines)
    first = f"{collected} = {_call(found)}{newline}{outer}if {collected} is None:{newline}"
    edits = Edit(*module.span(empty), f"{first}{outer}{step}{collected} = []"), Edit(start, end, moved)
    return Proposal(offset, _MESSAGE, edits, frozenset({runtime(_SHIPPED)}))


def _stands_in(module: Module, node: cst.ListComp | cst.For, collected: str = "") -> bool:
    """Whether ``node`` is what stood there before this rule: after ``or``, or where ``collected`` is None."""
    parent = module.parents[node]
    match parent if isinstance(node, cst.ListComp) else module.parents.get(parent):
        case cst.BooleanOperation(left=cst.Call(func=called), operator=cst.Or()):
            return is_name(called, _SHIPPED)
        case cst.If(test=test):
            return plain_source(module, test) == f"{collected} is None"
    return False


def _empty_list_before(module: Module, node: cst.For, collected: str) -> cst.SimpleStatementLine | None:
    """The line ``collected = []`` right before the loop."""
    statements: Sequence[cst.CSTNode] = getattr(module.parents[node], "body", ())
    before = next((one for one, following in pairwise(statements) if following is node), None)
    if isinstance(before, cst.SimpleStatementLine) and plain_source(module, before) == f"{collected} = []":
        return before
    return None
