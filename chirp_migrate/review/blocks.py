"""Convert the edits of a hunk, which replace spans of text, to replacements of whole lines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.piece_table import line_range_of_edit
from chirp_migrate.source.text import SOURCE_LINE, apply_edits_in_span


@dataclass(frozen=True)
class LineBlock:
    """A range of lines in a text, and the new text for this range.

    Attributes:
        first: number of the first line of the range, counted from 1.
        end: number of the line after the range. If the block only inserts text, ``end`` is equal to ``first``.
        after: the text that replaces the lines of the range.
    """

    first: int
    end: int
    after: str


class SourceLines:
    """The lines of a text. Each line includes its newline."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines: Sequence[str] = SOURCE_LINE.findall(text)
        #: Offsets in the text: of the start of each line, and of the end of the text.
        self.starts: Sequence[int] = [0, *accumulate(map(len, self.lines))]

    def blocks(self, edits: Iterable[Edit]) -> list[LineBlock]:
        """Return the ranges of lines that ``edits`` change, from top to bottom."""
        runs: list[tuple[int, int, list[Edit]]] = []
        for edit in sorted(edits, key=lambda one: (one.start, one.end)):
            first, end = line_range_of_edit(edit, self.starts)
            if runs and (first < runs[-1][1] or first == runs[-1][0]):
                run_first, run_end, members = runs.pop()
                runs.append((run_first, max(run_end, end), [*members, edit]))
            else:
                runs.append((first, end, [edit]))
        return [self._block(*run) for run in runs]

    def edit(self, block: LineBlock) -> Edit:
        """Return the edit that replaces the lines of ``block``."""
        return Edit(self.starts[block.first - 1], self.starts[block.end - 1], block.after)

    def position(self, offset: int) -> tuple[int, int]:
        """Convert an offset to a line and a column, both counted from 1."""
        line = min(bisect_right(self.starts, offset), max(len(self.lines), 1)) - 1
        return line + 1, offset - self.starts[line] + 1

    def offset(self, line: int, column: int) -> int:
        """Convert a line and a column, both counted from 1, to an offset.

        Raises:
            ValueError: the text does not have this line, or the line does not have this column.
        """
        if not 1 <= line <= max(len(self.lines), 1) or column < 1:
            raise ValueError(f"the source has no line {line}, column {column}")
        offset = self.starts[line - 1] + column - 1
        if offset > len(self.text) or (line < len(self.lines) and offset >= self.starts[line]):
            raise ValueError(f"the source has no line {line}, column {column}")
        return offset

    def _block(self, first: int, end: int, edits: Sequence[Edit]) -> LineBlock:
        last = min(end, len(self.lines))
        start, stop = self.starts[min(first, len(self.lines))], self.starts[last]
        return LineBlock(first + 1, last + 1, apply_edits_in_span(self.text, (start, stop), edits))
