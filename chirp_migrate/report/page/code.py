"""Render lines of source code as HTML, and make invisible characters visible in all text on the web page."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from os.path import commonprefix
from typing import Any

from markupsafe import Markup

from chirp_migrate.report.change_rows import (
    ChangeRow,
    ChangeSection,
    differing_words,
    group_changed_rows,
    pair_rows_for_columns,
)

#: If the browser wraps a long line, the largest indentation of its second and further rows, in characters.
LARGEST_INDENT = 40

_TAB = 4
#: Invisible characters for which ``str.isprintable`` is True.
_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
_ELEMENTS = {" ": "div", "-": "del", "+": "ins"}


def escape_invisible(value: Any) -> Any:
    """Escape characters that are invisible or change the order of other characters, for example as ``⟨U+202E⟩``.

    Tabs and newlines stay unchanged. All other characters of the result are printable, so the result can always be
    encoded as UTF-8.
    """
    if not isinstance(value, str) or isinstance(value, Markup) or (value.isascii() and value.isprintable()):
        return value
    return "".join(map(_visible, value))


def source_line_html(line: str) -> Markup:
    """Render a single line of code without colours."""
    return Markup(_mark_hidden(line.strip()))


def line_numbers_of_section(section: ChangeSection) -> str:
    """Return the line numbers of a section as text, such as ``line 7``, or in a notebook ``cell 2, line 7``."""
    numbers = [row.before for row in section.rows if row.before is not None and row.sign == "-"]
    numbers = numbers or [row.after for row in section.rows if row.after is not None and row.sign == "+"]
    first, last = (numbers[0], numbers[-1]) if numbers else (0, 0)
    lines = f"line {first}" if first == last else f"lines {first}\N{EN DASH}{last}"
    return lines if section.cell is None else f"cell {section.cell}, {lines}"


def section_html(section: ChangeSection) -> Markup:
    """Render the lines of a section as HTML."""
    where = f"{line_numbers_of_section(section)}{f', in {section.within}' if section.within else ''}"
    width = len(str(max(row.before or row.after or 0 for row in section.rows)))
    # ``commonprefix`` is correct here, because the strings consist of blanks.
    margin = len(commonprefix([_indent(row.text) for row in section.rows if row.text.strip()]))  # noqa: RUF071
    parts = [f'<div class="at">{html.escape(escape_invisible(where))}</div>']
    for changed, rows in group_changed_rows(section.rows):
        strong = _differing_parts(rows) if changed else {}
        lines = "".join(_row_html(row, width, margin, strong.get(id(row), (0, 0))) for row in rows)
        parts.append(f'<div class="g">{lines}</div>' if changed else lines)
    return Markup("".join(parts))


def _differing_parts(rows: Sequence[ChangeRow]) -> dict[int, tuple[int, int]]:
    """Find the part of each row that differs from the paired row. The page highlights this part.

    Returns:
        A dictionary that maps ``id(row)`` to the start and the end of the part. Rows without such a part are missing.
    """
    found: dict[int, tuple[int, int]] = {}
    for old, new in pair_rows_for_columns(rows):
        places = differing_words(old.text, new.text) if old is not None and new is not None else None
        if places is not None:
            found[id(old)], found[id(new)] = places
    return found


def _row_html(row: ChangeRow, width: int, margin: int, strong: tuple[int, int]) -> str:
    """Render one line. The style sheet adds the line numbers, so that users do not copy line numbers with the code.

    Line numbers have ``width`` digits. The page hides the indentation that all lines of a section have, which has
    ``margin`` characters. Copied code still has this indentation.
    """
    name = _ELEMENTS[row.sign]
    old, new = (f"{number or '':>{width}}" for number in (row.before, row.after))
    margin = min(margin, len(_indent(row.text)))
    text = f"<u>{row.text[:margin]}</u>" if margin else ""
    text += _words_html(row, margin, strong)
    indent = min(len(_indent(row.text)[margin:].expandtabs(_TAB)), LARGEST_INDENT)
    # If the browser wraps a long line, the second and further rows have the same indentation as the first row.
    hangs = f' class="w{indent}"' if indent else ""
    return f'<{name}{hangs} data-o="{old}" data-n="{new}">{text}\n</{name}>'


def _words_html(row: ChangeRow, margin: int, strong: tuple[int, int]) -> str:
    """Render the text of a line after its first ``margin`` characters, with colours.

    The characters from ``strong[0]`` to ``strong[1]`` are highlighted, and invisible characters are marked.
    """
    shown = []
    at = 0
    for kind, word in row.words or (("", row.text),):
        start, end = (min(max(place - at, 0), len(word)) for place in strong)
        first = min(max(margin - at, 0), len(word))
        at += len(word)
        cuts = first, max(start, first), max(end, first)
        pointed = word[cuts[1] : cuts[2]]
        content = _mark_hidden(word[cuts[0] : cuts[1]])
        content += f'<b class="w">{_mark_hidden(pointed)}</b>' if pointed else ""
        content += _mark_hidden(word[cuts[2] :])
        shown.append(f'<i class="{kind}">{content}</i>' if kind and content else content)
    return "".join(shown)


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" \t"))]


def _mark_hidden(text: str) -> str:
    if text.isascii() and text.isprintable():
        return html.escape(text)
    return "".join(
        html.escape(one)
        if _visible(one) == one
        else f'<b class="odd" title="{unicodedata.name(one, "an invisible character")}">{_visible(one)}</b>'
        for one in text
    )


def _visible(one: str) -> str:
    if (one.isprintable() and one not in _BLANK_LETTERS) or one in "\t\n":
        return one
    return f"\u27e8U+{ord(one):04X}\u27e9"
