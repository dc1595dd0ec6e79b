"""CHP004: build lists of standardised samples without temporary tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.dataflow.symbolic import names_in_code
from chirp_migrate.analysis.datasets.declared_class import shortest_number_source
from chirp_migrate.analysis.datasets.standardized_list import (
    StandardizedList,
    empty_list_line,
    list_built_by_comprehension,
    list_built_by_loop,
    may_be_read_outside_loop,
    unfinished_list_may_be_seen,
)
from chirp_migrate.edits.call_arguments import call_text
from chirp_migrate.edits.statements import delete_lines_of_statement
from chirp_migrate.rules.api import (
    Edit,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    runtime_import,
)

_REPLACEMENT = "standardized_samples"
_FOUND = "the code standardises samples one by one"
_MESSAGE = f"{_FOUND}; `{_REPLACEMENT}` builds the same list, in one operation if possible"


class MaterializedStandardization(Rule):
    """Rewrites a list comprehension, or a loop that appends to a list, only if all these conditions hold:

    - `standardised-samples`: each element is ``((x - mean) / (std + number), y)``, with or without the number. The code
      gets ``x, y`` from ``dataset[i]`` for each ``i`` of a sequence, or from a loop over the dataset.
    - `known-reads`: the code reads each sample once and unpacks it, as in ``x, y = dataset[i]``. Or the element reads
      the sample twice, as ``dataset[i][0]`` for x and ``dataset[i][1]`` for y.
    - `plain-loop`: the code has one ``for``, which iterates over a variable, as in ``for i in indices``, and not over a
      longer expression. The ``for`` has no ``if``, ``else`` or ``async``, and is not inside an f-string.
    - `assignments-only`: the body of a loop contains only assignments to names and, as the last statement, the
      ``append`` of one element.
    - `starts-empty`: the statement ``samples = []`` is before the loop, in the same block. No statement between
      ``samples = []`` and the loop uses the list or leaves the block.
    - `unused-in-loop`: no inner function or class uses the list, and the list is not declared ``global`` or
      ``nonlocal``. An error in the loop leaves the list unfinished. So if the loop is in the body of a `try`, all uses
      of the list must be in this body. The same condition applies to the body of a `with` that may swallow exceptions.
    - `plain-names`: the dataset, the sequence, mean and std are names that the loop does not bind. None of these names
      is the name of the list.
    - `names-have-values`: the dataset, the sequence, mean and std provably have values before the loop. None of these
      names is a variable of a class body. No function assigns one of these names after `global` or `nonlocal`.
    - `nothing-else`: the code computes nothing except the elements of the list. The code calls no function except
      ``append``.
    - `loop-names-unused`: the loop is not directly in a class body, and its variables are not declared ``global`` or
      ``nonlocal``. Provably no code outside of the loop reads these variables.
    """

    code = "CHP004"
    name = "materialized-standardization"
    reason = (
        "The code standardises one sample at a time, with two temporary tensors for each sample. The runtime's "
        "function builds the same list in one operation if the samples are rows of tensors in memory. The function "
        "reads samples of any other kind one by one, as the original code does."
    )
    safety = Safety.SAFE
    trigger = ("ataset",)
    beside = ("/",)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a list comprehension, or a ``for`` that ends with ``append``, contains a division.

        The comprehension or ``for`` must iterate over a variable, as in ``for i in indices``.
        """
        loops = [
            loop
            for loop in outline.find(ast.For)
            if isinstance(loop.iter, ast.Name) and _is_append_statement(loop.body[-1])
        ]
        makers = [one for one in outline.find(ast.ListComp) if isinstance(one.generators[0].iter, ast.Name)]
        code = (one for loop in (*loops, *makers) for one in outline.inside(loop))
        return any(isinstance(getattr(one, "op", 0), ast.Div) for one in code)

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Rewrite lists built by a comprehension or by a loop with ``append``."""
        for node in module.find(cst.ListComp):
            if (found := list_built_by_comprehension(module, node)) is not None:
                edit = Edit(*module.span(node), _call_text(module, project, node, found, "").lstrip())
                yield RuleMatch(edit.start, _MESSAGE, (edit,), frozenset({runtime_import(_REPLACEMENT)}))
        for loop in module.find(cst.For):
            if (found := list_built_by_loop(module, loop)) is not None:
                yield _rewrite_loop(module, project, loop, found)


def _is_append_statement(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(), attr="append"), args=[_])):
            return True
    return False


def _call_text(module: Module, project: Project, node: cst.CSTNode, found: StandardizedList, before: str) -> str:
    """Return the source of a call of ``standardized_samples``, with the text ``before`` in front of the call."""
    arguments = [str(one) for one in (found.dataset, found.indices, found.mean, found.std)]
    arguments += [f"eps={shortest_number_source(found.eps)}"] if found.eps else []
    arguments += [f"reads={found.reads}"] if found.reads != 1 else []
    start, end = module.span(node)
    indent = module.indentation(start)
    around = 0
    if not before:  # other code on the comprehension's line leaves fewer columns for the call
        around = start - module.line_start(start) - len(indent) + len(module.text[end : module.line_end(end)].rstrip())
    return call_text(
        module, project.code_style, f"{before}{_REPLACEMENT}", arguments, indent=indent, columns_taken=around
    )


def _rewrite_loop(module: Module, project: Project, node: cst.For, found: StandardizedList) -> RuleMatch:
    """Return the finding for ``samples = []`` and a later loop that appends standardised samples to this list."""
    (offset, end), collected = module.span(node), found.collected
    empty = empty_list_line(module, node, collected)
    problem = ""
    if empty is None:
        problem = (
            f"the rule needs `{collected} = []` above the loop in the same block, without a use of `{collected}` or a "
            "statement such as `return` in between"
        )
    elif unfinished_list_may_be_seen(module, node, collected):
        problem = f"code may read `{collected}` before the loop has filled the list"
    elif any(may_be_read_outside_loop(module, project, node, one) for one in sorted(names_in_code(node))):
        problem = "code outside the loop may read a variable that the loop assigns"
    if empty is None or problem:
        return RuleMatch(offset, f"{_FOUND}; not rewritten: {problem}")
    made = Edit(offset, end, _call_text(module, project, node, found, f"{collected} = "))
    return RuleMatch(
        offset, _MESSAGE, (delete_lines_of_statement(module, empty), made), frozenset({runtime_import(_REPLACEMENT)})
    )
