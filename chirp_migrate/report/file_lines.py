"""Find the hunk that changed each line of a file, so that reports can show the changed lines of each hunk.

The edits of a hunk determine the lines that the hunk changes. Added imports and removed dead code belong to no hunk.
The module finds the lines of such imports and code by comparing the texts before and after the changes. The lines of a
notebook are the lines of its code cells.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache, cached_property
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

from chirp_migrate.engine.project_files import decode_source
from chirp_migrate.plans.plan import Edit, FilePlan, Finding, Hunk
from chirp_migrate.report.change_rows import ChangeRow, ChangeSection
from chirp_migrate.review.blocks import SourceLines
from chirp_migrate.source.magics import parse_cell
from chirp_migrate.source.matching_lines import shortest_diff_opcodes
from chirp_migrate.source.notebook import NotebookSource
from chirp_migrate.source.piece_table import line_range_of_edit
from chirp_migrate.source.text import SOURCE_LINE, UnreadableSource

if TYPE_CHECKING:
    from chirp_migrate.report.code_tokens import Word

#: Hunk number of changed lines that belong to no hunk.
FOLLOWS = 0
#: Number of unchanged lines to show above and below a change.
_CONTEXT = 3
_CODE = (".py", ".ipynb")
_FIRST_WORD = re.compile(r"\W*\w+")

_REST = frozenset({FOLLOWS})
_NOBODY: frozenset[int] = frozenset()

#: Position of a line: (number of the notebook cell, number of the line), both from 1. In a Python file, the cell is
#: None.
_Place = tuple[int | None, int]


@dataclass(frozen=True)
class _DiffLine:
    """A line of a unified diff.

    Attributes:
        sign: sign of the line: a minus for a removed line, a plus for an added line, a blank for an unchanged line.
        before: number of the line in the original file, from 1; None for an added line.
        after: number of the line in the changed file, from 1; None for a removed line.
        owners: numbers of the hunks that changed the line. ``FOLLOWS`` is the number for a change that belongs to no
            hunk. The set is empty for an unchanged line.
    """

    sign: str
    before: int | None
    after: int | None
    owners: frozenset[int]


@dataclass(frozen=True)
class _ChangedRange:
    """A range of lines that one or more hunks replace.

    Attributes:
        first: number of the first line of the range, counted from 0 in the original text.
        end: number of the first line after the range, counted in the same way.
        written: the lines that replace the range.
        owners: numbers of the hunks that replace the range.
    """

    first: int
    end: int
    written: Sequence[str]
    owners: frozenset[int]


class FileLines:
    """All lines of a file in a plan, before and after the changes."""

    def __init__(self, file: FilePlan) -> None:
        self._old, self._new = _FileText(file.path, file.before or b""), _FileText(file.path, file.after)
        self._name_at = make_definition_finder(self._old.text) if file.path.endswith(_CODE) else lambda line: ""
        every = _lines(self._old.text, self._new.text, _changed_ranges(self._old.text, file.hunks))
        self._lines = [line for line in every if self._place(line) is not None]

    def sections(self, number: int) -> Iterator[ChangeSection]:
        """Yield the changed lines of a hunk, with unchanged lines around them.

        A section does not contain lines that another hunk changes. In a notebook, a section ends with its cell.

        Args:
            number: number of the hunk; ``FOLLOWS`` for changed lines that belong to no hunk.
        """
        spans: list[tuple[int, int]] = []
        for at in (at for at, line in enumerate(self._lines) if number in line.owners):
            start, end = self._last_context_position(at, -1), self._last_context_position(at, 1)
            if spans and start <= spans[-1][1] + 1:
                spans[-1] = spans[-1][0], end
            else:
                spans.append((start, end))
        for start, end in spans:
            for cell, members in groupby(self._lines[start : end + 1], key=self._cell):
                lines = list(members)
                first = next((at for at, line in enumerate(lines) if line.sign != " "), None)
                if first is not None:
                    yield ChangeSection(
                        tuple(map(self._row, lines)), cell, self._enclosing_definition(lines[: first + 1])
                    )

    def source_line(self, finding: Finding) -> str:
        """Return the original line of code at a finding; an empty string if the line does not exist."""
        place = (finding.cell, finding.line)
        return self._old.lines[self._old.places.index(place)] if place in self._old.places else ""

    def with_new_line(self, finding: Finding) -> Finding:
        """Return the finding with its line number in the changed file.

        If a hunk rewrote the line of the finding, the result has the number of the most similar line that this hunk
        added.
        """
        new = self._new_place((finding.cell, finding.line), finding.hunk)
        return finding if new is None else replace(finding, cell=new[0], line=new[1])

    def new_line(self, line: int) -> int:
        """Return the number of a line of a Python file after the changes.

        If a hunk rewrote the line, the result is the number of the most similar line that this hunk added.
        """
        new = self._new_place((None, line), None)
        return line if new is None else new[1]

    def _new_place(self, place: _Place, hunk: int | None) -> _Place | None:
        at = next((n for n, line in enumerate(self._lines) if self._old.place(line.before) == place), None)
        if at is None:
            return None
        number = self._lines[at].after
        if number is None:
            number = self._most_similar(at, hunk) or self._next_after(at)
        return self._new.place(number)

    def _most_similar(self, at: int, hunk: int | None) -> int | None:
        """Return the number of the added line that is most similar to a removed line; None without an added line.

        Lines that begin with the same word count first if no unchanged line is between them and the removed line.

        Args:
            at: position of the removed line in the diff of the file.
            hunk: number of the hunk whose added lines are compared. If the number is None, the added lines of all hunks
                that removed the line are compared.
        """
        removed = self._old.lines[(self._lines[at].before or 1) - 1].strip()
        owners = self._lines[at].owners if hunk is None else {hunk}
        added = [n for n, line in enumerate(self._lines) if line.before is None and line.owners & owners]

        def likeness(n: int) -> tuple[int, float, int]:
            text = self._new.lines[(self._lines[n].after or 1) - 1].strip()
            begin = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(removed, text, strict=False)))
            return begin, SequenceMatcher(None, removed, text, autojunk=False).ratio(), -abs(n - at)

        word = _FIRST_WORD.match(removed)
        near = [
            n
            for n in added
            if all(line.sign != " " for line in self._lines[min(n, at) : max(n, at)])
            and (word is None or likeness(n)[0] >= word.end())
        ]
        return self._lines[max(near or added, key=likeness)].after if added else None

    def _next_after(self, at: int) -> int | None:
        """Return the new line number of the next line of the diff that was not removed.

        The search begins at position ``at``. If all lines from there on were removed, the result is the number of the
        nearest line above that was not removed.
        """
        following = (line.after for line in (*self._lines[at:], *reversed(self._lines[:at])))
        return next((number for number in following if number is not None), None)

    def _last_context_position(self, at: int, step: int) -> int:
        """Return the position of the farthest context line above (``step`` -1) or below (``step`` 1) the line ``at``.

        Context lines are unchanged lines around a change, at most three on each side. Without context lines, the result
        is ``at``.
        """
        for _ in range(_CONTEXT):
            beside = at + step
            if not 0 <= beside < len(self._lines) or self._lines[beside].owners:
                break
            at = beside
        return at

    def _row(self, line: _DiffLine) -> ChangeRow:
        old, new = self._old.place(line.before), self._new.place(line.after)
        text, number = (self._new, line.after) if line.before is None else (self._old, line.before)
        assert number is not None
        return ChangeRow(line.sign, old and old[1], new and new[1], text.lines[number - 1], text.words(number))

    def _place(self, line: _DiffLine) -> _Place | None:
        """Return (cell, line number) of a diff line; None for a line between notebook cells."""
        return self._old.place(line.before) or self._new.place(line.after)

    def _cell(self, line: _DiffLine) -> int | None:
        place = self._place(line)
        return place and place[0]

    def _enclosing_definition(self, lines: Sequence[_DiffLine]) -> str:
        """Return the name of the function or class around the last of ``lines`` that is in the original text.

        If all lines are added lines, the result is an empty string.
        """
        numbers = [line.before for line in lines if line.before is not None]
        return self._name_at(numbers[-1]) if numbers else ""


def update_finding_lines(files: Iterable[FilePlan], findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, and the reasons of their gains, with their line numbers after the changes of ``files``."""
    rewritten = {file.path: file for file in files if file.before is not None}

    @cache
    def lines_of(path: str) -> FileLines | None:
        return FileLines(rewritten[path]) if path in rewritten else None

    found: list[Finding] = []
    for finding in findings:
        own, gain = lines_of(finding.path), finding.gain
        reason = None if gain is None else lines_of(gain.path)
        if gain is not None and reason is not None:
            finding = replace(finding, gain=replace(gain, line=reason.new_line(gain.line)))
        found.append(finding if own is None else own.with_new_line(finding))
    return found


class _FileText:
    """One version of a file.

    Attributes:
        text: the text of the whole file. For a notebook, the text is all code cells joined to one module, without
            IPython magics.
        places: for each line of ``text``, a pair (cell, line number); None for a line between notebook cells.
        lines: the lines of the file or of its code cells, with IPython magics such as ``%matplotlib inline``.
    """

    def __init__(self, path: str, data: bytes) -> None:
        try:
            source = decode_source(path, data) if path.endswith(_CODE) and data else None
        except UnreadableSource:
            source = None
        self._is_python = source is not None
        self.text = data.decode("utf-8", errors="backslashreplace") if source is None else source.text
        lines = [line.rstrip("\r\n") for line in SOURCE_LINE.findall(self.text)]
        self.places: Sequence[_Place | None] = [(None, number) for number in range(1, len(lines) + 1)]
        masked: dict[_Place | None, str] = {}
        if isinstance(source, NotebookSource):
            self.places = source.places()
            masked = {(cell, line): text.partition("\n")[0].rstrip("\r") for cell, line, text in source.masked}
        self.lines = [masked.get(place, line) for place, line in zip(self.places, lines, strict=True)]

    def place(self, line: int | None) -> _Place | None:
        """Return (cell, line number) of a line of ``text``; None for a line between notebook cells."""
        return None if line is None else self.places[line - 1]

    def words(self, line: int) -> tuple[Word, ...]:
        """Return the tokens of a line with their kinds. A line that is not Python, such as a magic, is one token."""
        words, text = self._words[line - 1] if line <= len(self._words) else (), self.lines[line - 1]
        return words if "".join(word for _, word in words) == text else (("", text),)

    @cached_property
    def _words(self) -> list[tuple[Word, ...]]:
        from chirp_migrate.report.code_tokens import tokens_by_line  # slow import, only needed here

        return tokens_by_line(self.text) if self._is_python else []


def make_definition_finder(text: str) -> Callable[[int], str]:
    """Return a function that maps a line number (from 1) to the name of the function or class around the line.

    For a line outside of functions and classes, the name is an empty string.
    """
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
    # Of all definitions around a line, the innermost definition begins last.
    return lambda line: max(((start, name) for start, end, name in found if start <= line <= end), default=(0, ""))[1]


def _changed_ranges(before: str, hunks: Sequence[Hunk]) -> list[_ChangedRange]:
    """Return the ranges of lines that the hunks replace, in the order of the text.

    If two hunks contain the same edit, its range belongs to both hunks.
    """
    owners: dict[Edit, frozenset[int]] = {}
    for hunk in hunks:
        for edit in hunk.edits:
            owners[edit] = owners.get(edit, _NOBODY) | {hunk.number}
    lines = SourceLines(before)
    groups: list[tuple[int, int, list[Edit]]] = []
    for edit in sorted(owners, key=lambda one: (one.start, one.end)):
        first, end = line_range_of_edit(edit, lines.starts)
        start, stop, members = groups[-1] if groups else (-1, -1, [])
        if first < stop or (first == start and owners[edit] == owners[members[-1]]):
            groups[-1] = start, max(stop, end), [*members, edit]
        else:
            groups.append((first, end, [edit]))
    runs = []
    for _, _, members in groups:
        (block,) = lines.blocks(members)
        of = _NOBODY.union(*(owners[edit] for edit in members))
        runs.append(_ChangedRange(block.first - 1, block.end - 1, SOURCE_LINE.findall(block.after), of))
    return runs


def _lines(before: str, after: str, runs: Sequence[_ChangedRange]) -> Iterator[_DiffLine]:
    """Yield the lines of both texts as a diff. A line that is in both texts occurs once in the diff."""
    old, new = SOURCE_LINE.findall(before), SOURCE_LINE.findall(after)
    middle: list[str] = []  # the original lines with the changes of the hunks, and no other changes
    line = 0
    for run in runs:
        middle += [*old[line : run.first], *run.written]
        line = run.end
    match, inserted = _match_lines([*middle, *old[line:]], new)

    def follows(position: int) -> Iterator[_DiffLine]:
        return (_DiffLine("+", None, number, _REST) for number in inserted.get(position, ()))

    yield from follows(-1)
    position, line = 0, 0
    for run in (*runs, _ChangedRange(len(old), len(old), (), _NOBODY)):
        for number in range(line + 1, run.first + 1):
            there = match[position]
            yield _DiffLine("-", number, None, _REST) if there is None else _DiffLine(" ", number, there, _NOBODY)
            yield from follows(position)
            position += 1
        written = zip(match[position:], run.written, strict=False)
        yield from _changed_lines(run, old, [(there, text) for there, text in written if there is not None])
        for _ in run.written:
            yield from follows(position)
            position += 1
        line = run.end


def _match_lines(middle: Sequence[str], new: Sequence[str]) -> tuple[list[int | None], dict[int, list[int]]]:
    """Compare two versions of a text, and find each line of the old version in the new version.

    Args:
        middle: lines of the old version, which already has the changes of all hunks.
        new: lines of the new version, which also has the changes that belong to no hunk.

    Returns:
        Two values. The first value is a list with one item for each line of ``middle``: the line number in ``new``
        (from 1), or None for a line that ``new`` lacks. The second value is a dictionary, position in ``middle`` (from
        0) → numbers of the lines that ``new`` inserts after this position. Position -1 stands for the beginning of the
        text.
    """
    match: list[int | None] = [None] * len(middle)
    inserted: dict[int, list[int]] = {}
    for tag, i1, i2, j1, j2 in shortest_diff_opcodes(middle, new):
        if tag == "equal":
            match[i1:i2] = range(j1 + 1, j2 + 1)
        elif j2 > j1:
            inserted.setdefault(i2 - 1, []).extend(range(j1 + 1, j2 + 1))
    return match, inserted


def _changed_lines(run: _ChangedRange, old: Sequence[str], written: Sequence[tuple[int, str]]) -> Iterator[_DiffLine]:
    """Yield the lines of a range as a diff. A line that a hunk replaces by an equal line counts as unchanged.

    Args:
        run: the range.
        old: all lines of the original text.
        written: the new lines of the range, each with its line number in the changed text.
    """
    for tag, i1, i2, j1, j2 in shortest_diff_opcodes(old[run.first : run.end], [text for _, text in written]):
        removed = range(run.first + i1 + 1, run.first + i2 + 1)
        added = [there for there, _ in written[j1:j2]]
        if tag == "equal":
            yield from (_DiffLine(" ", number, there, _NOBODY) for number, there in zip(removed, added, strict=True))
        else:
            yield from (_DiffLine("-", number, None, run.owners) for number in removed)
            yield from (_DiffLine("+", None, there, run.owners) for there in added)
