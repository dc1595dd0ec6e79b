"""Format rewritten statements as the project's formatter would write them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from itertools import accumulate

import libcst as cst

from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.piece_table import Owners
from chirp_migrate.source.text import apply_edits_in_span
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.module import Module, walk_code

_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")


def is_formatted(module: Module, code_style: CodeStyle, node: cst.CSTNode) -> bool:
    """Return whether the statement around ``node`` has the layout that the project's formatter would produce."""
    for one in (node, *module.ancestors(node)):
        found = _line_range(module, one)
        if found is not None:
            return code_style.has_black_layout(module.text[slice(*found)], module.text)
    return False


def formatting_edits(
    module: Module, edits: Mapping[Edit, Owners], other_edits: Iterable[Edit], code_style: CodeStyle
) -> list[tuple[Edit, Owners]]:
    """Return further edits that format each changed statement that had the formatter's layout before the change.

    Args:
        module: the module before the edits.
        edits: the edits that change statements; each edit maps to the rewrites that contain the edit.
        other_edits: further edits of the module. Statements that these edits change are not formatted.
        code_style: how the project formats its code.

    Returns:
        Edits that must be applied after ``edits`` and ``other_edits``, each with the rewrites that change its
        statement.
    """
    touched = module.statements_at(edit.start for edit in edits)
    statements = sorted(
        lines for around in touched for node in walk_code(around) if (lines := _line_range(module, node)) is not None
    )
    starts = [start for start, _ in statements]
    inside: dict[tuple[int, int], list[Edit]] = {}
    for edit in edits:
        place = statements[max(bisect_right(starts, edit.start) - 1, 0)] if statements else (0, 0)
        between = edit.start == edit.end == place[0]
        if place[0] <= edit.start and edit.end <= place[1] and edit.start < place[1] and not between:
            inside.setdefault(place, []).append(edit)
    every = [*edits, *other_edits]
    found: list[tuple[Edit, Owners]] = []
    for (start, end), own in inside.items():
        before = module.text[start:end]
        after = apply_edits_in_span(module.text, (start, end), own)
        laid_out = _layout_changes(after, code_style.laid_out(before, after, module.text))
        shift = start + sum(len(one.replacement) - (one.end - one.start) for one in every if one.end <= start)
        owners = frozenset().union(*(edits[one] for one in own))
        found += [(Edit(one.start + shift, one.end + shift, one.replacement), owners) for one in laid_out]
    return found


def _layout_changes(before: str, after: str) -> Iterator[Edit]:
    """Yield small edits that turn ``before`` into ``after``. The edits change only white space, brackets and commas."""
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    starts = [0, *accumulate(map(len, old))]
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield Edit(starts[i1], starts[i2], "".join(new[j1:j2]))


def _line_range(module: Module, node: cst.CSTNode) -> tuple[int, int] | None:
    """Return start and end of the lines of a simple statement, or of the header of an ``if``, loop or ``with``.

    The result is None for any other node.
    """
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
