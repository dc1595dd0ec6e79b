"""Lines of source in a terminal: one under the other as in a unified diff, or before and after side by side.

Nothing of a line is left out: what does not fit goes on below it, without a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from chirp_migrate.console.paint import Paint
from chirp_migrate.report.hunks import Row, Section, side_by_side
from chirp_migrate.report.terminal.text import columns, folded, padded

__all__ = ["SIDE_BY_SIDE", "section_lines"]

#: From how many columns on before and after stand side by side.
SIDE_BY_SIDE = 160

_COLOURS = {"-": "31", "+": "32", " ": ""}
_BETWEEN = " | "
#: How much further what goes on below a line is indented.
_HANGING = 4


def section_lines(section: Section, width: int, paint: Paint) -> Iterator[str]:
    """The lines of one section of a hunk, none wider than ``width`` columns."""
    numbers = [number for row in section.rows for number in (row.before, row.after) if number is not None]
    digits = len(str(max(numbers, default=0)))
    if width >= SIDE_BY_SIDE:
        yield from _beside(section.rows, digits, width, paint)
    else:
        yield from _unified(section.rows, digits, width, paint)


def _unified(rows: Sequence[Row], digits: int, width: int, paint: Paint) -> Iterator[str]:
    """Number before, number after, sign and text of each line."""
    blank = " " * (2 * digits + 1)
    for row in rows:
        gutter = f"{_number(row.before, digits)} {_number(row.after, digits)}"
        for piece in _pieces(row.text, width - len(gutter) - 3):
            yield _painted(f"{gutter} {row.sign} {piece}".rstrip(), row.sign, paint)
            gutter = blank


def _beside(rows: Sequence[Row], digits: int, width: int, paint: Paint) -> Iterator[str]:
    room = (width - len(_BETWEEN)) // 2
    for before, after in side_by_side(rows):
        left = [] if before is None else _half(before, before.before, digits, room)
        right = [] if after is None else _half(after, after.after, digits, room)
        signs = [" " if row is None else row.sign for row in (before, after)]
        for one, other in zip_longest(left, right, fillvalue=""):
            line = _painted(padded(one, room), signs[0], paint)
            yield f"{line}{_BETWEEN}{_painted(other.rstrip(), signs[1], paint)}".rstrip()


def _half(row: Row, number: int | None, digits: int, room: int) -> list[str]:
    """One side of a line: its number there, its sign, and its text in pieces."""
    gutters = [_number(number, digits), " " * digits]
    pieces = _pieces(row.text, room - digits - 3)
    return [f"{gutters[min(place, 1)]} {row.sign} {piece}" for place, piece in enumerate(pieces)]


def _pieces(text: str, room: int) -> list[str]:
    """A line of source in pieces; what does not fit is indented, so that it does not look like the next line."""
    indent = columns(text) - columns(text.lstrip(" ")) + _HANGING
    return folded(text, room, min(indent, room // 2))


def _number(number: int | None, digits: int) -> str:
    return f"{'' if number is None else number:>{digits}}"


def _painted(text: str, sign: str, paint: Paint) -> str:
    return paint(text, _COLOURS[sign]) if _COLOURS.get(sign) and text.strip() else text
