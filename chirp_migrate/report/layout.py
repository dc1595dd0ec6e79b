"""From the hunks of a file to the lines a reader sees: every line of the real result belongs to the hunk that made it.

The hunks' own edits say which lines they wrote. What the result has besides (imports that they need, code that they
left unused) is found by comparing with it, and belongs to no hunk.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from chirp_migrate.plans.plan import Edit, Hunk
from chirp_migrate.report.hunks import CONTEXT, Row
from chirp_migrate.review.blocks import Block, Lines
from chirp_migrate.source.magics import parse_cell
from chirp_migrate.source.matching_lines import fewest_changes
from chirp_migrate.source.piece_table import lines_of
from chirp_migrate.source.text import SOURCE_LINE

__all__ = ["FOLLOWS", "Layout", "enclosing"]

#: Number of what belongs to no hunk.
FOLLOWS = 0


@dataclass(frozen=True)
class _Line:
    """A row of the whole file, and the numbers of the hunks that it belongs to; none for a line that stays."""

    row: Row
    owners: frozenset[int]


@dataclass(frozen=True)
class _Run:
    """Lines of the text before that hunks replace."""

    block: Block
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
        mine = [at for at, line in enumerate(self._lines) if line.row.sign != " " and _is_in(number, line.owners)]
        spans: list[tuple[int, int]] = []
        for at in mine:
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
            if not 0 <= beside < len(self._lines) or self._lines[beside].row.sign != " ":
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
    found.sort()
    starts = [start for start, _, _ in found]

    def name_at(line: int) -> str:
        # Definitions are nested: the last one that begins before the line and has not ended is the innermost.
        for _, end, name in reversed(found[: bisect_right(starts, line)]):
            if end >= line:
                return name
        return ""

    return name_at


def _is_in(number: int, owners: frozenset[int]) -> bool:
    return number in owners if number != FOLLOWS else not owners


def _runs(before: str, hunks: Sequence[Hunk]) -> list[_Run]:
    """The runs of lines that hunks replace, in order; an edit that two hunks share belongs to both."""
    owners: dict[Edit, frozenset[int]] = {}
    for hunk in hunks:
        for edit in hunk.edits:
            owners[edit] = owners.get(edit, frozenset()) | {hunk.number}
    lines = Lines(before)
    groups: list[tuple[int, int, list[Edit]]] = []
    for edit in sorted(owners, key=lambda one: (one.start, one.end)):
        first, end = lines_of(edit, lines.starts)
        joins = bool(groups) and (
            first < groups[-1][1] or (first == groups[-1][0] and owners[edit] == owners[groups[-1][2][-1]])
        )
        if joins:
            start, stop, members = groups.pop()
            groups.append((start, max(stop, end), [*members, edit]))
        else:
            groups.append((first, end, [edit]))
    return [
        _Run(block, frozenset().union(*(owners[edit] for edit in members)))
        for _, _, members in groups
        for block in lines.blocks(members)
    ]


def _lines(before: str, after: str, runs: Sequence[_Run]) -> Iterator[_Line]:
    """Every line of both texts, once where it stays."""
    old, new = SOURCE_LINE.findall(before), SOURCE_LINE.findall(after)
    middle, sizes = _with_runs(old, runs)
    match, inserted = _compared(middle, new)

    def follows(position: int) -> Iterator[_Line]:
        for at in inserted.get(position, ()):
            yield _Line(Row("+", None, at + 1, _bare(new[at])), frozenset())

    yield from follows(-1)
    position, line, run_number = 0, 0, 0
    while position < len(middle) or run_number < len(runs):
        run = runs[run_number] if run_number < len(runs) else None
        if run is not None and line == run.block.first - 1:
            size = sizes[run_number]
            written = ((match[at], middle[at]) for at in range(position, position + size))
            yield from _changed(run, old, [(there, text) for there, text in written if there is not None])
            for at in range(position, position + size):
                yield from follows(at)
            position, line, run_number = position + size, run.block.end - 1, run_number + 1
            continue
        if position >= len(middle):
            break
        found = match[position]
        if found is None:
            yield _Line(Row("-", line + 1, None, _bare(old[line])), frozenset())
        else:
            yield _Line(Row(" ", line + 1, found + 1, _bare(old[line])), frozenset())
        yield from follows(position)
        position += 1
        line += 1


def _with_runs(old: Sequence[str], runs: Sequence[_Run]) -> tuple[list[str], list[int]]:
    """The lines with all runs replaced and nothing else, and how many of them each run wrote."""
    middle: list[str] = []
    sizes = []
    line = 0
    for run in runs:
        written = SOURCE_LINE.findall(run.block.after)
        middle += [*old[line : run.block.first - 1], *written]
        sizes.append(len(written))
        line = run.block.end - 1
    return [*middle, *old[line:]], sizes


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
    first = run.block.first - 1
    gone = old[first : run.block.end - 1]
    for tag, i1, i2, j1, j2 in fewest_changes(gone, [text for _, text in written]):
        if tag == "equal":
            for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                yield _Line(Row(" ", first + i + 1, written[j][0] + 1, _bare(gone[i])), frozenset())
            continue
        yield from (_Line(Row("-", first + i + 1, None, _bare(gone[i])), run.owners) for i in range(i1, i2))
        yield from (_Line(Row("+", None, written[j][0] + 1, _bare(written[j][1])), run.owners) for j in range(j1, j2))


def _bare(line: str) -> str:
    return line.rstrip("\r\n")
