"""Find comprehensions and loops that only use the labels of a dataset, and reasons why a rewrite is not possible."""

from __future__ import annotations

import re
from itertools import chain, takewhile

import libcst as cst

from chirp_migrate.analysis.dataflow.effects import first_side_effect, side_effect_message
from chirp_migrate.analysis.dataflow.read_outside import is_read_outside_loop
from chirp_migrate.analysis.dataflow.symbolic import block_statements
from chirp_migrate.analysis.datasets.collecting_loops import (
    has_only_collecting_statements,
    why_early_reading_is_noticeable,
)
from chirp_migrate.analysis.datasets.label_scan import (
    IsDataset,
    ScannedSamples,
    match_label_scan,
    may_be_rebound_during_loop,
    why_not_readable_before_loop,
)
from chirp_migrate.analysis.known_names import resolves_to
from chirp_migrate.syntax.module import Module, code_children
from chirp_migrate.syntax.name_uses import is_imported_elsewhere
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted_source, is_name, one_line_source

Comprehension = cst.ListComp | cst.SetComp | cst.DictComp | cst.GeneratorExp
#: Calls that consume a generator at once, and discard its items if the generator raises an error.
_AT_ONCE = re.compile(
    r"builtins\.(list|tuple|set|frozenset|sorted|sum|min|max|dict)|collections\.Counter|numpy\.fromiter"
)


def match_label_comprehension(
    module: Module, project: Project, is_dataset: IsDataset, node: Comprehension
) -> ScannedSamples | None:
    """Return the label scan (see ``label_scan``) of a comprehension that only uses labels; else None."""
    loops = [node.for_in]
    while loops[-1].inner_for_in is not None:
        loops.append(loops[-1].inner_for_in)
    if any(loop.asynchronous is not None for loop in loops) or isinstance(module.enclosing_scope(node), cst.ClassDef):
        return None  # comprehensions in the body of a class cannot see the names of the class
    results = (node.key, node.value) if isinstance(node, cst.DictComp) else (node.elt,)
    tests = [condition.test for loop in loops for condition in loop.ifs]
    for position, loop in enumerate(loops):
        code = [*results, *tests, *(inner.iter for inner in loops[position + 1 :])]
        scan = match_label_scan(module, is_dataset, loop.target, loop.iter, code)
        if scan is not None:
            problem = (
                "the comprehension has more than one `for`"
                if len(loops) > 1
                else "the comprehension has an `if`"
                if tests
                else scan.problem
            )
            scan.problem = (
                problem
                or side_effect_message(module, results)
                or _why_read_is_conditional(module, scan, node)
                or _why_order_matters(module, project, scan, node)
                or why_not_readable_before_loop(module, project, scan)
            )
            if isinstance(node, cst.GeneratorExp) and not _is_consumed_at_once(module, node):
                scan.problem = scan.problem or "a generator expression reads the samples lazily"
            return scan
    return None


def match_label_loop(module: Module, project: Project, is_dataset: IsDataset, node: cst.For) -> ScannedSamples | None:
    """Return the label scan (see ``label_scan``) of a ``for`` that only uses the labels of a dataset; else None."""
    if node.orelse is not None or node.asynchronous is not None:
        return None
    body, scope = block_statements(node.body), module.enclosing_scope(node)
    if isinstance(scope, cst.ClassDef) or not has_only_collecting_statements(body):
        return None
    scan = match_label_scan(module, is_dataset, node.target, node.iter, body)
    if scan is None:
        return None
    statements = body if scan.opening is None else body[1:]
    early = [scan.dataset, scan.iterable, *([scan.index] if scan.index is not None else [])]
    problem = (
        scan.problem
        or why_early_reading_is_noticeable(module, node, statements, early)
        or (
            None
            if scan.opening
            else _why_read_is_conditional(module, scan, node) or _why_order_matters(module, project, scan, node)
        )
        or why_not_readable_before_loop(module, project, scan)
    )
    for name in scan.dropped:
        if is_read_outside_loop(module, node, name):
            problem = problem or f"`{name}` may be read after the loop"
        if isinstance(scope, cst.Module) and is_imported_elsewhere(project, module, name):
            problem = problem or f"another module may import `{name}`"
    scan.problem = problem
    return scan


def _why_read_is_conditional(module: Module, scan: ScannedSamples, node: cst.CSTNode) -> str | None:
    """Return why an iteration may read no sample; None if each iteration reads a sample."""
    for read in scan.reads if scan.index is not None else ():
        inner = read
        for ancestor in module.ancestors(read):
            if ancestor is node:
                break
            match ancestor:
                case cst.IfExp(test=first) | cst.If(test=first) | cst.BooleanOperation(left=first):
                    decides = inner is not first
                case cst.Comparison(left=first, comparisons=[second, *_]):
                    decides = inner is not first and inner is not second
                case _:
                    decides = False
            if decides:
                return "a condition decides whether a sample is read"
            inner = ancestor
    return None


def _why_order_matters(module: Module, project: Project, scan: ScannedSamples, node: cst.CSTNode) -> str | None:
    """Return why it matters that the rewritten code reads the sample before it evaluates other expressions; else None.

    For example, in ``f(x) + dataset[i][1]``, the call of ``f`` might return another value after the sample is read.
    """
    for read in scan.reads if scan.index is not None else ():
        inner = read
        around = takewhile(lambda one: one is not node, module.ancestors(read))
        for ancestor in chain(around, [node] if isinstance(node, cst.DictComp) else []):
            # The order does not matter for a plain name of a called function or of a subscripted object. Python
            # evaluates the targets of assignments later.
            later: set[cst.CSTNode] = {ancestor.func} if isinstance(ancestor, cst.Call) else set()
            later |= {ancestor.value} if isinstance(ancestor, cst.Subscript) else set()
            later |= set(ancestor.targets) if isinstance(ancestor, cst.Assign) else set()
            for part in code_children(ancestor):
                if part is inner:
                    break
                if not (_is_constant_expression(module, project, part) or (part in later and _is_named(part))):
                    code = one_line_source(module, part).rstrip(" ,")
                    return f"`{code}` is evaluated before the sample is read, and might have another value afterwards"
            inner = ancestor
    return None


def _is_named(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.AssignTarget) or dotted_source(node) is not None


def _is_constant_expression(module: Module, project: Project, node: cst.CSTNode) -> bool:
    """Return whether the value of code is constant: only literals, and names that no code rebinds during the loop."""
    if isinstance(node, cst.Arg):
        return _is_constant_expression(module, project, node.value)
    if isinstance(node, cst.Integer | cst.Float | cst.SimpleString) or is_name(node, "None", "True", "False"):
        return True
    if isinstance(node, cst.BaseExpression) and not isinstance(node, cst.Tuple):
        return dotted_source(node) is not None and not may_be_rebound_during_loop(module, project, node)
    return all(_is_constant_expression(module, project, child) for child in code_children(node))


def _is_consumed_at_once(module: Module, node: cst.GeneratorExp) -> bool:
    argument = module.parents[node]
    call = module.parents[argument]
    if not isinstance(call, cst.Call) or call.args[0] is not argument or call.args[0].keyword:
        return False
    return resolves_to(module, call.func, _AT_ONCE) and all(
        first_side_effect(module, other) is None for other in call.args[1:]
    )
