"""Format rewritten statements as the project's formatter would write them."""

from __future__ import annotations

import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from io import StringIO
from itertools import accumulate

import libcst as cst

from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.piece_table import Owners
from chirp_migrate.source.text import SOURCE_LINE, apply_edits_in_span
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.module import Module, walk_code

_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")


def is_formatted(module: Module, style: CodeStyle, node: cst.CSTNode) -> bool:
    """Return whether the statement around ``node`` is formatted as the project's formatter would format it."""
    for one in (node, *module.ancestors(node)):
        found = _line_range(module, one)
        if found is not None:
            return style.has_black_layout(module.text[slice(*found)], module.text)
    return False


def formatting_edits(
    module: Module, edits: Mapping[Edit, Owners], other_edits: Iterable[Edit], style: CodeStyle
) -> list[tuple[Edit, Owners]]:
    """Return further edits that format each changed statement, if the statement was formatted before.

    Args:
        module: the module before the edits.
        edits: the edits that change statements; each edit maps to the rewrites that contain the edit.
        other_edits: further edits of the module. Statements that these edits change are not formatted.
        style: how the project formats its code.

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
        laid_out = list(_realign_comments(module, style, (start, end), after)) or _layout_changes(
            after, style.laid_out(before, after, module.text)
        )
        shift = start + sum(len(one.replacement) - (one.end - one.start) for one in every if one.end <= start)
        owners = frozenset().union(*(edits[one] for one in own))
        found += [(Edit(one.start + shift, one.end + shift, one.replacement), owners) for one in laid_out]
    return found


@dataclass(frozen=True)
class _Comment:
    """A comment after code on the same line.

    Attributes:
        line: number of the line in the text, from 0.
        code: column at which the code ends.
        column: column at which the comment begins.
        text: the text of the comment.
    """

    line: int
    code: int
    column: int
    text: str


def _realign_comments(module: Module, style: CodeStyle, lines: tuple[int, int], after: str) -> Iterator[Edit]:
    """Yield edits of ``after`` that keep a comment in the same column as the comments on neighbouring lines.

    If the code of a line gets too long, all comments in the column move to the right. If some of these comments are
    outside of the changed lines, only the comment of the long line moves.
    """
    before = module.text[slice(*lines)]
    pairs = list(_matching_comments(_comments(before), _comments(after)))
    if not pairs or style.has_black_layout(before, module.text):
        return
    columns = {one.line: one.column for one in _comments(module.text)}
    first = module.position(lines[0])[0] - 1
    last = first + len(SOURCE_LINE.findall(before)) - 1
    starts = [0, *accumulate(map(len, SOURCE_LINE.findall(after)))]
    groups: dict[tuple[int, int], list[tuple[_Comment, _Comment]]] = {}
    for was, now in pairs:
        groups.setdefault(_lines_with_aligned_comments(columns, first + was.line), []).append((was, now))
    for (top, bottom), members in groups.items():
        if top == bottom:
            continue
        blanks = min(2, *(was.column - was.code for was, _ in members))
        longest = max(now.code for _, now in members) if first <= top and bottom <= last else 0
        for was, now in members:
            column = max(was.column, longest + blanks, now.code + blanks)
            if column != now.column:
                start = starts[now.line]
                yield Edit(start + now.code, start + now.column, " " * (column - now.code))


def _matching_comments(old: Sequence[_Comment], new: Sequence[_Comment]) -> Iterator[tuple[_Comment, _Comment]]:
    """Yield the pairs of equal comments in two versions of a text.

    If a text occurs in one version more often than in the other, the comments with this text are omitted.
    """
    for text in dict.fromkeys(one.text for one in new):
        was, now = ([comment for comment in comments if comment.text == text] for comments in (old, new))
        if len(was) == len(now):
            yield from zip(was, now, strict=True)


def _lines_with_aligned_comments(columns: Mapping[int, int], line: int) -> tuple[int, int]:
    """Return the first and the last of the consecutive lines around ``line`` with comments in the same column."""
    top = bottom = line
    while columns.get(top - 1) == columns[line]:
        top -= 1
    while columns.get(bottom + 1) == columns[line]:
        bottom += 1
    return top, bottom


@lru_cache(maxsize=8)
def _comments(text: str) -> tuple[_Comment, ...]:
    """Return the comments that follow code on the same line, up to the first place that cannot be tokenized."""
    found: list[_Comment] = []
    if "#" not in text:
        return ()
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(StringIO(text, newline="").readline):
            line, column = token.start
            code = len(token.line[:column].rstrip())
            if token.type == tokenize.COMMENT and code:
                found.append(_Comment(line - 1, code, column, token.string))
    return tuple(found)


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
