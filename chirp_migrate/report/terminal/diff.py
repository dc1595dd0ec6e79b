"""Lines of source in a terminal: one under the other as in a unified diff, or before and after side by side.

Nothing of a line is left out: what does not fit goes on below it, without a number.
"""

from __future__ import annotations

from typing import Literal

from chirp_migrate.console.screen import Screen, diff_style
from chirp_migrate.report.hunks import Row, Section, side_by_side

__all__ = ["SIDE_BY_SIDE", "show_section"]

#: From how many columns on before and after stand side by side.
SIDE_BY_SIDE = 160

_Cells = list[tuple[str, str]]


def show_section(section: Section, screen: Screen) -> None:
    """The lines of one section of a hunk."""
    numbers = [number for row in section.rows for number in (row.before, row.after) if number is not None]
    digits = len(str(max(numbers, default=0)))
    if screen.width < SIDE_BY_SIDE:
        rows = [[(_number(row.before), ""), *_half(row, "after")] for row in section.rows]
        screen.diff(rows, (digits, digits, 1, None))
        return
    beside = [
        [*_half(before, "before"), ("|", "dim"), *_half(after, "after")] for before, after in side_by_side(section.rows)
    ]
    screen.diff(beside, (digits, 1, None, 1, digits, 1, None))


def _half(row: Row | None, side: Literal["before", "after"]) -> _Cells:
    """Number, sign and text of a line, or room for one."""
    if row is None:
        return [("", ""), ("", ""), ("", "")]
    style = diff_style(row.sign)
    return [(_number(row.before if side == "before" else row.after), style), (row.sign, style), (row.text, style)]


def _number(number: int | None) -> str:
    return "" if number is None else str(number)
