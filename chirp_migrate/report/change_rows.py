"""Prepare the lines of a change for reports. Each line is unchanged, removed or added.

The functions group neighbouring changed lines, and pair each removed line with the added line that replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile, zip_longest

#: If two lines have at least this share of the shorter line in common, reports highlight the words that differ.
_ALIKE = 0.3
_WORD = re.compile(r"\w+|\W")


@dataclass(frozen=True)
class ChangeRow:
    """A line of a change.

    Attributes:
        sign: sign of the line: a minus for a removed line, a plus for an added line, a blank for an unchanged line.
        before: number of the line in the original file, from 1; None for an added line. In a notebook, the lines of
            each cell are numbered from 1.
        after: number of the line in the changed file; None for a removed line, or for a line outside of the cells of
            the changed notebook.
        text: the text of the line, without the newline.
        words: the tokens of the text, each with the kind that determines its colour.
    """

    sign: str
    before: int | None
    after: int | None
    text: str
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ChangeSection:
    """A group of adjacent lines that one change adds, removes or replaces.

    Attributes:
        rows: the lines in the order of a unified diff.
        cell: number of the notebook cell, from 1; None in a Python file.
        within: name of the function or class around the first changed line, such as ``TrainingEngine.run``; an empty
            string outside of functions and classes.
    """

    rows: tuple[ChangeRow, ...]
    cell: int | None = None
    within: str = ""


#: Two lines that are shown next to each other: a line before the change, and the line after the change. If one of the
#: lines does not exist, its item is None.
Pair = tuple[ChangeRow | None, ChangeRow | None]


def group_changed_rows(rows: Iterable[ChangeRow]) -> Iterator[tuple[bool, list[ChangeRow]]]:
    """Group neighbouring lines. Yield ``(True, rows)`` for changed lines, and ``(False, rows)`` for unchanged lines.

    A removed line after an added line begins a new group, so that removed lines come first in every group.
    """
    for changed, found in groupby(rows, key=lambda row: row.sign != " "):
        run: list[ChangeRow] = []
        for row in found:
            if run and row.sign == "-" and run[-1].sign == "+":
                yield changed, run
                run = []
            run.append(row)
        yield changed, run


def pair_rows_for_columns(rows: Iterable[ChangeRow]) -> Iterator[Pair]:
    """Yield pairs of lines for two columns: a line before the change, and a line after the change.

    The first removed line of a group is paired with the first added line, and so on. A line without a counterpart is
    paired with None. An unchanged line is paired with itself.
    """
    for changed, run in group_changed_rows(rows):
        if changed:
            yield from zip_longest(*([row for row in run if row.sign == sign] for sign in "-+"))
        else:
            yield from ((row, row) for row in run)


def differing_words(old: str, new: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the part in which two lines differ: (start, end) in ``old``, and (start, end) in ``new``.

    The result is None if the lines have little in common. Common indentation alone does not count as text in common.
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
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
