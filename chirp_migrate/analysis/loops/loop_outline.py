"""Find calls in the bodies of loops that may iterate over a loader, with Python's ``ast`` only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from chirp_migrate.syntax.outline import Outline, last_name

_MOVES = frozenset({"to", "cuda"})


def may_be_loader(outline: Outline, node: ast.expr) -> bool:
    """Return whether an expression may be a loader, or an iterator of one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        return "range" in outline.bound
    return isinstance(node, ast.Call | ast.Name | ast.Attribute | ast.Subscript | ast.IfExp)


def calls_in_loops(outline: Outline) -> Iterator[list[ast.Call]]:
    """Yield, for each loop that may iterate over a loader, the calls in it."""
    for loop in outline.find(ast.For):
        if may_be_loader(outline, loop.iter):
            yield [one for one in outline.inside(loop) if isinstance(one, ast.Call)]


def names_called_in_loops(outline: Outline, *, only_moving: bool = False) -> Iterator[set[str]]:
    """Yield, for each loop that may iterate over a loader, the names of the functions that it calls.

    Args:
        outline: the module that contains the loops.
        only_moving: whether only loops count that may move an object to a device, with ``x.to(…)``, ``x.cuda(…)`` or a
            function that they call.
    """
    for calls in calls_in_loops(outline):
        names = {last_name(call.func) for call in calls}
        if not only_moving or names & _MOVES or any(len(call.args) + len(call.keywords) > 1 for call in calls):
            yield names
