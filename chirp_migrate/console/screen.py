"""Print paragraphs, lists, tables and diffs with the library rich, so that they fit the width of the terminal.

The module escapes control characters in all texts (see ``escape_invisible`` in :mod:`.text`), so that a text of the
project cannot send commands to the terminal. Rich does not interpret the texts as markup. Importing rich is slow, so
only code that prints results imports this module.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import NoReturn, TextIO

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from chirp_migrate.console.text import escape_invisible, to_one_line

#: Smallest width of the output, in columns. A narrower terminal wraps the lines.
LEAST_WIDTH = 40
#: Number of columns of a terminal whose width is not known.
_USUAL_WIDTH = 80
#: Number of blanks between two columns of a table.
_GAP = 2
_TAB = 4
_NOTE = " (-v)"
_MORE = f" …{_NOTE}"
#: Smallest number of words to which a text is shortened, including a path at the beginning. Fewer words would be hard
#: to understand.
_WORDS_OF_CLAUSE = 4
_DIFF_STYLES = {"+++": "bold", "---": "bold", "+": "green", "-": "red", "@": "cyan", "#": "dim"}


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Raise the ``BrokenPipeError`` again, so that the command line exits with 141, its code for a closed pipe.

        Without this method, rich would exit with 1.
        """
        raise


class Screen:
    """Print the output of a command, with lines of at most ``width`` columns.

    Args:
        stream: the stream to print to.
        width: largest number of columns in a line. A value below 40 counts as 40.
        colour: whether to print colours.
        quiet: whether callers of the screen should print only the most important lines.
        verbose: whether callers of the screen should print all details.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        width: int = _USUAL_WIDTH,
        colour: bool = False,
        quiet: bool = False,
        verbose: bool = False,
    ) -> None:
        self.width = max(width, LEAST_WIDTH)
        self.colour, self.quiet, self.verbose = colour, quiet, verbose
        self._begun = False
        self._console = _Console(
            file=stream,
            width=self.width,
            tab_size=_TAB,
            color_system="standard" if colour else None,
            force_terminal=colour,
            no_color=False,
            legacy_windows=False,
        )

    def line(self, text: str = "", style: str = "", *, end: str = "\n") -> None:
        """Print one line without wrapping, so that users can copy the line and programs can read the line.

        An empty line at the beginning of the output is omitted.
        """
        if not text and not self._begun:
            return
        self._begun = True
        self._console.print(Text(escape_invisible(text), style), soft_wrap=True, end=end)

    def styled(self, text: str, style: str) -> str:
        """Return ``text`` with the terminal codes for ``style``. If colours are off, return ``text`` unchanged."""
        return Style.parse(style).render(text, color_system=ColorSystem.STANDARD if self.colour else None)

    def heading(self, text: str) -> None:
        """Print an empty line, and a heading in bold."""
        self.line()
        self.text(text, style="bold")

    def text(
        self,
        text: str,
        indent: int = 0,
        style: str = "",
        *,
        first: str = "",
        hang: int = 0,
        most: int | None = None,
        short: str = "",
    ) -> None:
        """Print a paragraph.

        Args:
            text: the text of the paragraph.
            indent: number of blanks in front of every line.
            style: name of a style of rich, such as ``bold``; "" for plain text.
            first: text in front of the first line. All other lines are indented by the width of this text.
            hang: additional indentation of all lines after the first line, in columns.
            most: largest number of lines. If the text is longer, the note " … (-v)" replaces its end. The note means
                that ``-v`` prints the whole text. If ``most`` is None, there is no limit.
            short: a shorter form of the text; "" if there is none. If the text has more than ``most`` lines, the
                shorter form is printed instead, with the note " (-v)" at its end. If the shorter form is also too long,
                only its beginning is printed, on one line if possible.
        """
        self._paragraph(
            Text(to_one_line(text), style), indent, Text(first), hang, most, Text(to_one_line(short), style)
        )

    def item(self, mark: str, text: str, indent: int = 2, style: str = "") -> None:
        """Print an item of a list: a mark in ``style``, and to its right a paragraph whose lines are aligned."""
        shown = Text(to_one_line(mark), style)
        if indent + shown.cell_len + _GAP > self.width // 2:
            self._paragraph(shown, indent)
            self.text(text, indent + 2)
        else:
            self._paragraph(Text(to_one_line(text)), indent, shown + Text(" " * _GAP))

    def term(self, name: str, meaning: str, indent: int = 2, style: str = "bold", hang: int = 4) -> None:
        """Print a term in ``style``, followed by its meaning. ``hang`` indents all lines after the first line."""
        begun = to_one_line(name) if name.endswith(".") else f"{to_one_line(name)}:"
        self._paragraph(Text.assemble((begun, style), " ", to_one_line(meaning)), indent, hang=hang)

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,), indent: int = 2
    ) -> None:
        """Print a table.

        If the table is wider than the screen, the first cell of each row gets a separate line. If the other cells of a
        row still do not fit, the row becomes a paragraph of column names and values.

        Args:
            header: the name of each column; an empty sequence for a table without a header.
            rows: the rows of the table. Each row has one cell for each column.
            left: indices of the left-aligned columns; all other columns are right-aligned.
            indent: number of blanks in front of every line.
        """
        shown = [[to_one_line(cell) for cell in row] for row in (*([header] if header else []), *rows)]
        widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
        head = "dim" if header else ""
        room = self.width - indent - _GAP * (len(widths) - 1)
        rights = [number not in left for number in range(len(widths))]
        if sum(widths) <= room:
            self._cells(shown[:1], widths, rights, indent, head)
            self._cells(shown[1:], widths, rights, indent)
        elif sum(widths[1:]) + 2 <= room + _GAP:
            for number, (name, *cells) in enumerate(shown):
                if name:
                    self.text(name, indent, "" if number else head)
                self._cells([cells], widths[1:], rights[1:], indent + 2, "" if number else head)
        else:
            names = shown.pop(0)[1:] if header else [""] * len(widths[1:])
            for name, *cells in shown:
                said = (f"{of} {cell}".strip() for of, cell in zip(names, cells, strict=True) if cell)
                if name:
                    self.text(name, indent)
                self.text(", ".join(said), indent + 2)

    def _cells(
        self, rows: Sequence[Sequence[str]], widths: Sequence[int], rights: Sequence[bool], indent: int, style: str = ""
    ) -> None:
        table = Table.grid(padding=(0, _GAP, 0, 0))
        for width, right in zip(widths, rights, strict=True):
            table.add_column(justify="right" if right else "left", width=width)
        for row in rows:
            table.add_row(*map(Text, row), style=style)
        self._print(table, indent)

    def diff_line(self, line: str) -> None:
        """Print one line of a unified diff in its colour, without wrapping."""
        self.line(line.rstrip("\n"), diff_style(line))

    def _paragraph(
        self,
        text: Text,
        indent: int,
        first: Text | None = None,
        hang: int = 0,
        most: int | None = None,
        short: Text | None = None,
    ) -> None:
        first = first or Text()
        hang += first.cell_len
        room = max(self.width - indent - hang, 8)
        lines = list(text.wrap(self._console, room, overflow="fold", tab_size=_TAB)) or [Text()]
        if most is not None and len(lines) > most:
            if short:
                lines = list((short + _NOTE).wrap(self._console, room, overflow="fold", tab_size=_TAB))
            if len(lines) > most:
                # One line is enough for the shorter form, unless a long path at its beginning leaves too little room
                # for words.
                is_enough = short and len(_whole_words(lines[0].plain, room - len(_MORE)).split()) >= _WORDS_OF_CLAUSE
                kept = 1 if is_enough else most
                lines = [*lines[: kept - 1], Text(_whole_words(lines[kept - 1].plain, room - len(_MORE)) + _MORE)]
        for number, line in enumerate(lines):
            line.rstrip()
            front = Text(" " * indent) + first if number == 0 else Text(" " * (indent + hang))
            self._print(front + line, 0)

    def _print(self, shown: RenderableType, indent: int) -> None:
        """Print ``shown``, but remove the blanks that rich adds at the ends of lines."""
        self._begun = True
        for line in self._console.render_lines(shown, self._console.options.update(width=self.width - indent)):
            segments = [Segment(" " * indent), *line]
            while segments and not segments[-1].text.strip():
                segments.pop()
            if segments:
                last = segments.pop()
                segments.append(Segment(last.text.rstrip(), last.style))
            self._console.print(Segments([*segments, Segment.line()]), end="", soft_wrap=True)


def _whole_words(line: str, most: int) -> str:
    """Return as many words of a line as fit into ``most`` columns. If the first word is too long, cut this word."""
    if len(line) <= most:
        return line.rstrip()
    fitting = line[: most + 1]
    return (fitting.rpartition(" ")[0] or fitting[:-1]).rstrip()


def render_to_text(print_to_screen: Callable[[Screen], None], width: int = _USUAL_WIDTH, **options: bool) -> str:
    """Return the text that ``print_to_screen`` prints to a new :class:`Screen` with this width and these options."""
    stream = io.StringIO()
    print_to_screen(Screen(stream, width=width, **options))
    return stream.getvalue()


def diff_style(line: str) -> str:
    """Return the name of the rich style for a line of a unified diff, or "" for an unchanged line."""
    return next((style for start, style in _DIFF_STYLES.items() if line.startswith(start)), "")
