"""What a report in the terminal is made of: titles, paragraphs, lists and tables that fit the width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chirp_migrate.console.paint import Paint
from chirp_migrate.report.terminal.text import columns, padded, plain, wrapped

__all__ = ["BOLD", "CODE", "DIM", "LEAST_WIDTH", "Screen"]

#: Columns below which nothing is laid out: lines are that long on a narrower terminal.
LEAST_WIDTH = 40

BOLD, DIM, CODE = "1", "2", "36"
_GAP = "  "


@dataclass(frozen=True)
class Screen:
    """Lines of at most ``width`` columns, painted where that is wanted. Texts are shown harmlessly (see ``plain``)."""

    width: int
    paint: Paint

    def title(self, text: str) -> Iterator[str]:
        """A part of the report: an empty line, its name in capitals, and a rule below it."""
        name = plain(text).upper()
        yield ""
        for line in wrapped(name, self.width):
            yield self.paint(line, BOLD)
        yield self.paint("=" * min(self.width, columns(name)), DIM)

    def heading(self, text: str) -> Iterator[str]:
        """A part of a part: an empty line and its name."""
        yield ""
        for line in wrapped(plain(text), self.width):
            yield self.paint(line, BOLD)

    def text(self, text: str, indent: int = 0, code: str = "") -> Iterator[str]:
        """A paragraph."""
        for line in wrapped(plain(text), self.width, " " * indent):
            yield self.paint(line, code) if code else line

    def item(self, mark: str, text: str, indent: int = 2, code: str = "") -> Iterator[str]:
        """A paragraph behind a mark, which is painted with ``code``; what follows stands below the text."""
        shown = plain(mark)
        first = " " * indent + shown + _GAP
        if columns(first) > self.width // 2:
            yield from self.text(mark, indent, code)
            yield from self.text(text, indent + 2)
            return
        yield from self._marked(wrapped(plain(text), self.width, first), shown, indent, code)

    def term(self, name: str, meaning: str, indent: int = 2, code: str = BOLD) -> Iterator[str]:
        """A word, painted with ``code``, and its meaning, which goes on a little further to the right."""
        shown = f"{plain(name)}:"
        lines = wrapped(f"{shown} {plain(meaning)}", self.width, " " * indent, " " * (indent + 4))
        yield from self._marked(lines, shown, indent, code)

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,), indent: int = 2
    ) -> Iterator[str]:
        """Rows in columns, the header underlined.

        Where they do not fit beside each other, the first column gets a line of its own; where even that is too wide,
        each row is a paragraph of names and values.

        Args:
            header: a name for each column.
            rows: as many cells each.
            left: columns that are flush left; the others hold figures.
            indent: columns in front.
        """
        shown = [[plain(cell) for cell in row] for row in (header, *rows)]
        widths = [max(columns(row[number]) for row in shown) for number in range(len(header))]
        beside = indent + sum(widths) + len(_GAP) * (len(widths) - 1)
        below = 2 * indent + sum(widths[1:]) + len(_GAP) * (len(widths) - 2)
        if beside <= self.width:
            for number, row in enumerate(shown):
                line = " " * indent + self._cells(row, widths, left)
                yield self.paint(line.rstrip(), DIM) if number == 0 else line.rstrip()
        elif below <= self.width:
            numbers = [number - 1 for number in left if number]
            for number, row in enumerate(shown):
                line = " " * (2 * indent) + self._cells(row[1:], widths[1:], numbers)
                yield from self.text(row[0], indent, DIM if number == 0 else "")
                yield self.paint(line.rstrip(), DIM) if number == 0 else line.rstrip()
        else:
            for row in shown[1:]:
                cells = ", ".join(f"{name} {cell}" for name, cell in zip(shown[0][1:], row[1:], strict=True) if cell)
                yield from self.text(row[0], indent)
                yield from self.text(cells, 2 * indent)

    def _cells(self, row: Sequence[str], widths: Sequence[int], left: Sequence[int]) -> str:
        cells = zip(row, widths, strict=True)
        return _GAP.join(padded(cell, room, right=number not in left) for number, (cell, room) in enumerate(cells))

    def _marked(self, lines: Sequence[str], mark: str, indent: int, code: str) -> Iterator[str]:
        """The lines with the mark that the first one begins with in its colour."""
        for number, line in enumerate(lines):
            begins = number == 0 and bool(code) and line.startswith(mark, indent)
            yield " " * indent + self.paint(mark, code) + line[indent + len(mark) :] if begins else line
