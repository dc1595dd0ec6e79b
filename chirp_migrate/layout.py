"""Rewritten statements in the layout that the project's formatter would give them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from itertools import accumulate

import libcst as cst

from chirp_migrate.code_style import CodeStyle
from chirp_migrate.module import Module
from chirp_migrate.plan import Edit
from chirp_migrate.provenance import Owners
from chirp_migrate.source import apply_edits

__all__ = ["is_laid_out", "layout_edits"]

_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")


def is_laid_out(module: Module, style: CodeStyle, node: cst.CSTNode) -> bool:
    """Whether the lines of the statement around ``node`` are as the project's formatter writes them."""
    for one in (node, *module.ancestors(node)):
        found = _lines(module, one)
        if found is not None:
            return style.is_kept(module.text[slice(*found)], module.text)
    return False


def layout_edits(
    module: Module, edits: Mapping[Edit, Owners], others: Iterable[Edit], style: CodeStyle
) -> list[tuple[Edit, Owners]]:
    """Edits that lay out the statements in which ``edits`` change something, as they would have been before.

    Args:
        module: the text before.
        edits: of it, with the rewrites that they belong to.
        others: what is changed besides.
        style: how the project lays out its code.

    Returns:
        Edits of the text in which ``edits`` and ``others`` are made, each with the rewrites of its statement.
    """
    statements = sorted(
        lines
        for one in module.find(cst.SimpleStatementLine, cst.For, cst.While, cst.With, cst.If)
        if (lines := _lines(module, one)) is not None
    )
    starts = [start for start, _ in statements]
    inside: dict[tuple[int, int], list[Edit]] = {}
    for edit in edits:
        place = statements[max(bisect_right(starts, edit.start) - 1, 0)] if statements else (0, 0)
        between = edit.start == edit.end == place[0]
        if place[0] <= edit.start and edit.end <= place[1] and edit.start < place[1] and not between:
            inside.setdefault(place, []).append(edit)
    every = [*edits, *others]
    found: list[tuple[Edit, Owners]] = []
    for (start, end), own in inside.items():
        before = module.text[start:end]
        after = apply_edits(before, [Edit(one.start - start, one.end - start, one.replacement) for one in own])
        written = style.laid_out(before, after, module.text)
        shift = start + sum(len(one.replacement) - (one.end - one.start) for one in every if one.end <= start)
        owners = frozenset().union(*(edits[one] for one in own))
        found += [
            (Edit(one.start + shift, one.end + shift, one.replacement), owners) for one in _changes(after, written)
        ]
    return found


def _changes(before: str, after: str) -> Iterator[Edit]:
    """Edits of white space, brackets and commas that make ``before`` into ``after``: what is code keeps its place."""
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    starts = [0, *accumulate(map(len, old))]
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield Edit(starts[i1], starts[i2], "".join(new[j1:j2]))


def _lines(module: Module, node: cst.CSTNode) -> tuple[int, int] | None:
    """Offsets of the lines of a simple statement, or of what goes before the block of one that has a block."""
    if isinstance(node, cst.SimpleStatementLine):
        last: cst.CSTNode = node
    elif isinstance(node, cst.For):
        last = node.iter
    elif isinstance(node, cst.While | cst.If):
        last = node.test
    elif isinstance(node, cst.With):
        last = node.items[-1]
    else:
        return None
    return module.line_start(module.span(node)[0]), module.line_end(module.span(last)[1] - 1)
