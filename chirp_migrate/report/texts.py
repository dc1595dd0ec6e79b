"""The text of a file before and after, and its lines as a reader knows them: a notebook is its code cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from chirp_migrate.engine.plan_tree import source_of
from chirp_migrate.plans.plan import FilePlan, Finding
from chirp_migrate.report.hunks import Row, Section
from chirp_migrate.report.layout import enclosing
from chirp_migrate.source.notebook import NotebookSource
from chirp_migrate.source.text import NEWLINE, SOURCE_LINE, UnreadableSource

__all__ = ["Texts", "words_by_line"]

_CODE = (".py", ".ipynb")

#: A kind, as the page's style sheet names it, and the text; ``""`` is the kind of all that has none.
Word = tuple[str, str]

_KINDS: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (String, "s"),
    (Number, "n"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Builtin, "b"),
    (Name.Decorator, "r"),
    (Name.Function, "d"),
    (Name.Class, "d"),
)

#: Where a reader finds a line: the cell (None in a file of one text) and the line, both from 1.
_Place = tuple[int | None, int]


class Texts:
    """A file of a plan as text.

    Attributes:
        before: its text before; empty where it is created.
        after: its text after.
    """

    def __init__(self, file: FilePlan) -> None:
        self._old, self._new = _Text(file.path, file.before or b""), _Text(file.path, file.after)
        self.before, self.after = self._old.text, self._new.text
        self._name_at = enclosing(self.before) if file.path.endswith(_CODE) else lambda line: ""

    def sections(self, rows: Sequence[Row]) -> Iterator[Section]:
        """Rows with the numbers of the texts, as sections with the numbers that a reader counts."""
        run: list[Row] = []
        within, cell = "", None
        for row in rows:
            old, new = self._old.place(row.before), self._new.place(row.after)
            place = old or new
            if place is None:
                continue
            if run and place[0] != cell:
                yield from _section(run, cell, within)
                run = []
            cell = place[0]
            if row.sign != " " and all(one.sign == " " for one in run):
                within = self._name_at(row.before) if row.before is not None else self._above(rows, row)
            side, line = (self._old, row.before) if old is not None else (self._new, row.after)
            text = side.shown(row.text, place)
            run.append(Row(row.sign, old and old[1], new and new[1], text, side.words(line, text)))
        yield from _section(run, cell, within)

    def source_line(self, finding: Finding) -> str:
        """The line before that a finding is about; empty where there is none."""
        return self._old.lines.get((finding.cell, finding.line), "")

    def _above(self, rows: Sequence[Row], row: Row) -> str:
        """What is around an added line: what is around the line before it."""
        earlier = [one.before for one in rows[: rows.index(row)] if one.before is not None]
        return self._name_at(earlier[-1]) if earlier else ""


class _Text:
    """One version of a file."""

    def __init__(self, path: str, data: bytes) -> None:
        self._notebook: NotebookSource | None = None
        self._hidden: frozenset[int] = frozenset()
        self._masked: dict[_Place, str] = {}
        try:
            source = source_of(path, data) if path.endswith(_CODE) and data else None
        except UnreadableSource:
            source = None
        self.text = data.decode("utf-8", errors="backslashreplace") if source is None else source.text
        self._is_python = source is not None
        if isinstance(source, NotebookSource):
            self._notebook = source
            self._masked = {(cell, line): text.partition("\n")[0].rstrip("\r") for cell, line, text in source.masked}
            self._hidden = _markers(source.text)

    def place(self, line: int | None) -> _Place | None:
        """Where a reader finds a line of the text; None for one that is only there for us."""
        if line is None or line in self._hidden:
            return None
        return (None, line) if self._notebook is None else self._notebook.locate(line)

    def words(self, line: int | None, shown: str) -> tuple[Word, ...]:
        """The words of a line that is shown so; one of no kind where the text has another line, and in no Python."""
        found = self._words[line - 1] if line is not None and line <= len(self._words) else ()
        return found if "".join(text for _, text in found) == shown else (("", shown),)

    @cached_property
    def _words(self) -> list[tuple[Word, ...]]:
        return words_by_line(self.text) if self._is_python else []

    def shown(self, text: str, place: _Place) -> str:
        """A line as it is in the file: with a magic where we put Python in its place."""
        return self._masked.get(place, text)

    @cached_property
    def lines(self) -> dict[_Place, str]:
        """The lines by their places."""
        lines = enumerate(SOURCE_LINE.findall(self.text), start=1)
        placed = ((place, line.rstrip("\r\n")) for number, line in lines if (place := self.place(number)) is not None)
        return {place: self.shown(line, place) for place, line in placed}


def _section(rows: Sequence[Row], cell: int | None, within: str) -> Iterator[Section]:
    """The rows as a section, where something changes in them."""
    if any(row.sign != " " for row in rows):
        yield Section(tuple(rows), cell, within)


def _markers(text: str) -> frozenset[int]:
    """Lines of a notebook's text that are in no cell: the marker above each with its blank line, and the last one."""
    lines = text.splitlines()
    if not lines:
        return frozenset()
    marker = lines[0].rpartition(" ")[0] + " "
    found = {at for number, line in enumerate(lines, start=1) if line.startswith(marker) for at in (number, number + 1)}
    tag = marker.split()[-1]
    return frozenset(found | ({len(lines)} if lines[-1].startswith(f"{tag}: ") else set()))


def words_by_line(text: str) -> list[tuple[Word, ...]]:
    """For every line its words, which together are the line without its newline."""
    lines: list[list[Word]] = [[]]
    for _, token, value in PythonLexer().get_tokens_unprocessed(NEWLINE.sub("\n", text)):
        kind = next((name for of, name in _KINDS if token in of), "")
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append((kind, part))
    return [tuple(line) for line in lines]
