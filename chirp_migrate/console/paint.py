"""How text looks on a terminal: colours where they are wanted, and lines of 80 columns."""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass
from typing import TextIO

__all__ = ["WIDTH", "Paint", "count", "figure", "visible", "wrapped"]

WIDTH = 80


@dataclass(frozen=True)
class Paint:
    """Terminal colours, or none."""

    on: bool

    @classmethod
    def for_stream(cls, stream: TextIO, choice: str) -> Paint:
        """Colours on a terminal unless NO_COLOR is set; ``always`` and ``never`` decide it."""
        automatic = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        return cls(choice == "always" or (choice == "auto" and automatic))

    def __call__(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text

    def diff_line(self, line: str) -> str:
        """One line of a diff in its colour."""
        body, end = (line[:-1], "\n") if line.endswith("\n") else (line, "")
        if line.startswith(("+++", "---")):
            return self(body, "1") + end
        codes = {"+": "32", "-": "31", "@": "36", "#": "2"}
        return self(body, codes[line[0]]) + end if line and line[0] in codes else line


def visible(text: str) -> str:
    """``text`` with what a terminal would act on, or not show, spelled out; tabs stay."""
    return "".join(
        one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode("ascii") for one in text
    )


def wrapped(text: str, indent: str, first: str | None = None) -> list[str]:
    """Lines of at most 80 columns; ``first`` stands in front of the first one instead of ``indent``."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def figure(value: float | None) -> str:
    """A measured value in three digits, "-" where nothing was measured."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def count(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
