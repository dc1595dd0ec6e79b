"""A change for readers: numbered lines that are kept, removed or added, with some context."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile, zip_longest

__all__ = ["Pair", "Row", "Section", "differing_words", "groups", "side_by_side"]

#: Least share of the shorter of two lines that must be equal to highlight the rest.
_ALIKE = 0.3
_WORD = re.compile(r"\w+|\W")


@dataclass(frozen=True)
class Row:
    """A line of a change.

    Attributes:
        sign: `` `` (the same before and after), ``-`` or ``+``.
        before: its number before, from 1; None for an added line. In a notebook, lines are counted in the cell.
        after: its number after; None for a removed line, and if it is not known.
        text: the text without its newline.
        words: the text in parts with their kinds (see :mod:`.file_lines`); for colours.
    """

    sign: str
    before: int | None
    after: int | None
    text: str
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Section:
    """Neighbouring lines of one change.

    Attributes:
        rows: the lines in the order of a unified diff.
        cell: in a notebook, the number of the cell in which lines are counted, from 1 over all cells.
        within: the function or class around the first line, such as ``TrainingEngine.run``; may be empty.
    """

    rows: tuple[Row, ...]
    cell: int | None = None
    within: str = ""


#: A line before and a line after, shown next to each other; None if one of them is missing.
Pair = tuple[Row | None, Row | None]


def groups(rows: Iterable[Row]) -> Iterator[tuple[bool, list[Row]]]:
    """Yield groups of neighbouring lines that are changed, or unchanged.

    Removed lines after added lines begin a new group.
    """
    for changed, found in groupby(rows, key=lambda row: row.sign != " "):
        run: list[Row] = []
        for row in found:
            if run and row.sign == "-" and run[-1].sign == "+":
                yield changed, run
                run = []
            run.append(row)
        yield changed, run


def side_by_side(rows: Iterable[Row]) -> Iterator[Pair]:
    """Yield the rows in two columns: kept lines in both, and removed lines next to the lines that replace them."""
    for changed, run in groups(rows):
        if changed:
            yield from zip_longest(*([row for row in run if row.sign == sign] for sign in "-+"))
        else:
            yield from ((row, row) for row in run)


def differing_words(old: str, new: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the range of words in which two lines differ: start and end in each.

    None if they have little in common, or only their indentation.
    """
    one, other = _WORD.findall(old), _WORD.findall(new)
    start = _common_prefix_length(one, other)
    end = _common_prefix_length(one[start:][::-1], other[start:][::-1])
    head, tail = "".join(one[:start]), "".join(one[len(one) - end :])
    same = len(head.strip()) + len(tail.strip())
    if not same or same < _ALIKE * min(len(old.strip()), len(new.strip())):
        return None
    return (len(head), len(old) - len(tail)), (len(head), len(new) - len(tail))


def _common_prefix_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of equal words at the beginning of both."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
