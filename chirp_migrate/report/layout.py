"""From the hunks of a file to the lines a reader sees: every line of the real result belongs to the hunk that made it.

The hunks' own edits say which lines they wrote. What the result has besides (imports that they need, code that they
left unused) is found by comparing with it, and belongs to no hunk.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from chirp_migrate.plans.plan import Edit, Hunk
from chirp_migrate.report.hunks import CONTEXT, Row
from chirp_migrate.review.blocks import Lines
from chirp_migrate.source.magics import parse_cell
from chirp_migrate.source.matching_lines import fewest_changes
from chirp_migrate.source.piece_table import lines_of
from chirp_migrate.source.text import SOURCE_LINE

__all__ = ["FOLLOWS", "Layout", "enclosing"]

#: Number of what belongs to no hunk.
FOLLOWS = 0


_REST = frozenset({FOLLOWS})
_NOBODY: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Line:
    """A row of the whole file, and the numbers of the hunks that it belongs to; none for a line that stays."""

    row: Row
    owners: frozenset[int]


@dataclass(frozen=True)
class _Run:
    """Lines ``first`` up to, not including, ``end`` (from 0) of the text before, and what hunks made of them."""

    first: int
    end: int
    written: Sequence[str]
    owners: frozenset[int]


class Layout:
    """All lines of one file, before and after.

    Args:
        before: text before.
        after: text after, as it really is.
        hunks: what rules rewrote; none where that is not known.
    """

    def __init__(self, before: str, after: str, hunks: Sequence[Hunk]) -> None:
        self._lines = list(_lines(before, after, _runs(before, hunks)))

    def sections(self, number: int) -> list[tuple[Row, ...]]:
        """What the hunk with this number changes, each with the lines around it; ``FOLLOWS`` for the rest.

        Lines that another hunk changes are no context.
        """
        spans: list[tuple[int, int]] = []
        for at in (at for at, line in enumerate(self._lines) if number in line.owners):
            start, end = self._reach(at, -1), self._reach(at, 1)
            if spans and start <= spans[-1][1] + 1:
                spans[-1] = spans[-1][0], end
            else:
                spans.append((start, end))
        return [tuple(line.row for line in self._lines[start : end + 1]) for start, end in spans]

    def _reach(self, at: int, step: int) -> int:
        """The last position in one direction that still is context of ``at``."""
        for _ in range(CONTEXT):
            beside = at + step
            if not 0 <= beside < len(self._lines) or self._lines[beside].owners:
                break
            at = beside
        return at


def enclosing(text: str) -> Callable[[int], str]:
    """For a 1-based line of ``text`` the name of the function or class around it; empty where there is none."""
    found: list[tuple[int, int, str]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}".lstrip(".")
                found.append((child.lineno, child.end_lineno or child.lineno, name))
            visit(child, name)

    try:
        visit(parse_cell(text), "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return lambda line: ""
    # Definitions are nested: the last one to begin is the innermost.
    return lambda line: max(((start, name) for start, end, name in found if start <= line <= end), default=(0, ""))[1]


def _runs(before: str, hunks: Sequence[Hunk]) -> list[_Run]:
    """The runs of lines that hunks replace, in order; an edit that two hunks share belongs to both."""
    owners: dict[Edit, frozenset[int]] = {}
    for hunk in hunks:
        for edit in hunk.edits:
            owners[edit] = owners.get(edit, _NOBODY) | {hunk.number}
    lines = Lines(before)
    groups: list[tuple[int, int, list[Edit]]] = []
    for edit in sorted(owners, key=lambda one: (one.start, one.end)):
        first, end = lines_of(edit, lines.starts)
        start, stop, members = groups[-1] if groups else (-1, -1, [])
        if first < stop or (first == start and owners[edit] == owners[members[-1]]):
            groups[-1] = start, max(stop, end), [*members, edit]
        else:
            groups.append((first, end, [edit]))
    runs = []
    for _, _, members in groups:
        (block,) = lines.blocks(members)
        of = _NOBODY.union(*(owners[edit] for edit in members))
        runs.append(_Run(block.first - 1, block.end - 1, SOURCE_LINE.findall(block.after), of))
    return runs


def _lines(before: str, after: str, runs: Sequence[_Run]) -> Iterator[_Line]:
    """Every line of both texts, once where it stays."""
    old, new = SOURCE_LINE.findall(before), SOURCE_LINE.findall(after)
    middle: list[str] = []  # the lines before with all runs replaced and nothing else
    line = 0
    for run in runs:
        middle += [*old[line : run.first], *run.written]
        line = run.end
    match, inserted = _compared([*middle, *old[line:]], new)

    def follows(position: int) -> Iterator[_Line]:
        for at in inserted.get(position, ()):
            yield _Line(Row("+", None, at + 1, _bare(new[at])), _REST)

    yield from follows(-1)
    position, line = 0, 0
    for run in (*runs, _Run(len(old), len(old), (), _NOBODY)):
        for number, text in enumerate(old[line : run.first], start=line + 1):
            found = match[position]
            if found is None:
                yield _Line(Row("-", number, None, _bare(text)), _REST)
            else:
                yield _Line(Row(" ", number, found + 1, _bare(text)), _NOBODY)
            yield from follows(position)
            position += 1
        written = zip(match[position:], run.written, strict=False)
        yield from _changed(run, old, [(there, text) for there, text in written if there is not None])
        for _ in run.written:
            yield from follows(position)
            position += 1
        line = run.end


def _compared(middle: Sequence[str], new: Sequence[str]) -> tuple[list[int | None], dict[int, list[int]]]:
    """For each line of ``middle`` its place in ``new``, and which lines of ``new`` come behind which of ``middle``."""
    match: list[int | None] = [None] * len(middle)
    inserted: dict[int, list[int]] = {}
    for tag, i1, i2, j1, j2 in fewest_changes(middle, new):
        if tag == "equal":
            match[i1:i2] = range(j1, j2)
        elif j2 > j1:
            inserted.setdefault(i2 - 1, []).extend(range(j1, j2))
    return match, inserted


def _changed(run: _Run, old: Sequence[str], written: Sequence[tuple[int, str]]) -> Iterator[_Line]:
    """The lines of a run: those that it wrote as they were are no change."""
    gone = old[run.first : run.end]
    for tag, i1, i2, j1, j2 in fewest_changes(gone, [text for _, text in written]):
        if tag == "equal":
            for i, (there, text) in zip(range(i1, i2), written[j1:j2], strict=True):
                yield _Line(Row(" ", run.first + i + 1, there + 1, _bare(text)), _NOBODY)
            continue
        yield from (_Line(Row("-", run.first + i + 1, None, _bare(gone[i])), run.owners) for i in range(i1, i2))
        yield from (_Line(Row("+", None, there + 1, _bare(text)), run.owners) for there, text in written[j1:j2])


def _bare(line: str) -> str:
    return line.rstrip("\r\n")
