"""A change as a reader sees it: runs of numbered lines, kept, removed and added, with some context."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["CONTEXT", "Pair", "Row", "Section", "differing", "side_by_side"]

#: Lines shown around a change.
CONTEXT = 3

#: Share of the shorter one of two lines that has to be the same, so that it helps to point at the rest.
_ALIKE = 0.3


@dataclass(frozen=True)
class Row:
    """One line.

    Attributes:
        sign: `` `` (the same before and after), ``-`` or ``+``.
        before: its number before, from 1; None for an added one. In a notebook counted in the cell.
        after: its number after; None for a removed one, and where it is not known.
        text: without its newline.
        words: the text in parts with their kinds (see :mod:`.python_words`); for colours.
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
        rows: in the order of a unified diff.
        cell: in a notebook, the cell that the numbers are counted in, from 1 over all cells.
        within: the function or class that the first line is in, such as ``TrainingEngine.run``; may be empty.
    """

    rows: tuple[Row, ...]
    cell: int | None = None
    within: str = ""


#: A line before and a line after that stand beside each other; None on the side that has none.
Pair = tuple[Row | None, Row | None]


def side_by_side(rows: Sequence[Row]) -> Iterator[Pair]:
    """The rows in two columns: kept lines beside themselves, removed ones beside the added ones that replace them."""
    removed: list[Row] = []
    added: list[Row] = []

    def changed() -> Iterator[Pair]:
        for number in range(max(len(removed), len(added))):
            yield (
                removed[number] if number < len(removed) else None,
                added[number] if number < len(added) else None,
            )
        removed.clear()
        added.clear()

    for row in rows:
        if row.sign == "-":
            if added:
                yield from changed()
            removed.append(row)
        elif row.sign == "+":
            added.append(row)
        else:
            yield from changed()
            yield row, row
    yield from changed()


def differing(old: str, new: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Where two lines differ, from the first to the last word that does: start and end in each.

    None where they have little in common, or only the blanks that they are indented by.
    """
    start = _same(old, new)
    start -= _within_word(old, start) if _in_word(old, start) or _in_word(new, start) else 0
    rest = min(len(old), len(new)) - start
    end = min(_same(old[start:][::-1], new[start:][::-1]), rest)
    while end and (_in_word(old, len(old) - end) or _in_word(new, len(new) - end)):
        end -= 1
    same = len(old[:start].strip()) + len(old[len(old) - end :].strip())
    if not same or same < _ALIKE * min(len(old.strip()), len(new.strip())):
        return None
    return (start, len(old) - end), (start, len(new) - end)


def _same(one: str, other: str) -> int:
    """How many characters both begin with."""
    unlike = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(unlike, min(len(one), len(other)))


def _in_word(text: str, at: int) -> bool:
    """Whether ``at`` is between two characters of one word."""
    return 0 < at < len(text) and _is_word(text[at - 1]) and _is_word(text[at])


def _within_word(text: str, at: int) -> int:
    """How many characters of a word stand in front of ``at``."""
    return len(text[:at]) - len(re.sub(r"\w+\Z", "", text[:at]))


def _is_word(one: str) -> bool:
    return one.isalnum() or one == "_"
