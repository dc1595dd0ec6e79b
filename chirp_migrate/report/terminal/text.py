"""Text that keeps within columns of a terminal: how wide it shows, and how it is cut, wrapped and padded to fit.

Widths are columns, not characters: East Asian characters and emoji take two, combining marks none. Characters that a
terminal would act on or not show are spelled out first (:func:`~chirp_migrate.console.paint.visible`), so they have the
width of their spelling.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from chirp_migrate.console.paint import visible

__all__ = ["columns", "folded", "padded", "plain", "wrapped"]

_TAB = 4
#: Where a line is cut rather than anywhere, best first.
_CUT_BEHIND = (" ,", "([{", "./")
_EMOJI_STYLE = "\N{VARIATION SELECTOR-16}"


def plain(text: str) -> str:
    """``text`` on one line, with what does not show spelled out."""
    return visible(" ".join(text.split()))


def columns(text: str) -> int:
    """Columns that a terminal needs for visible text without tabs."""
    if text.isascii():
        return len(text)
    return sum(map(_columns_of, text))


def folded(line: str, room: int, hang: int = 0) -> list[str]:
    """A line of source cut into pieces of at most ``room`` columns; nothing is left out.

    It is cut behind a blank, a comma or the like where one is near enough. Tabs become spaces up to the next multiple
    of four columns; what ends the line is left out.

    Args:
        line: the line.
        room: columns for each piece, at least 2 more than ``hang``.
        hang: columns by which all pieces but the first are indented.
    """
    pieces: list[str] = []
    piece: list[str] = []
    used = 0
    for one in _characters(line.rstrip("\r\n")):
        needed = columns(one)
        while piece and used + needed > room:
            cut = _cut(piece)
            pieces.append("".join(piece[:cut]))
            piece = [*" " * hang, *piece[cut:]]
            used = sum(map(columns, piece))
            if len(piece) == hang:
                break
        piece.append(one)
        used += needed
    return [*pieces, "".join(piece)]


def _cut(piece: Sequence[str]) -> int:
    """How much of a full piece stays on its line."""
    near = range(len(piece), len(piece) * 2 // 3, -1)
    good = (at for behind in _CUT_BEHIND for at in near if piece[at - 1] in behind)
    return next(good, len(piece))


def wrapped(text: str, room: int, first: str = "", rest: str | None = None) -> list[str]:
    """A paragraph in lines of at most ``room`` columns, broken between words; words that are longer are cut.

    Args:
        text: visible text; runs of white space count as one space.
        room: columns of a line with what stands in front of it, which has to leave at least 2.
        first: stands in front of the first line.
        rest: stands in front of the others; as many spaces as ``first`` has columns if None.
    """
    rest = " " * columns(first) if rest is None else rest
    lines: list[str] = []
    line, begun = first, False
    for word in text.split():
        if begun and columns(line) + 1 + columns(word) <= room:
            line += f" {word}"
            continue
        if begun:
            lines.append(line)
            line = rest
        *full, word = folded(word, room - max(columns(line), columns(rest)))
        for piece in full:
            lines.append(line + piece)
            line = rest
        line, begun = line + word, True
    return [*lines, line.rstrip()]


def padded(text: str, room: int, *, right: bool = False) -> str:
    """``text`` with spaces up to ``room`` columns, behind it or with ``right`` in front of it."""
    spaces = " " * (room - columns(text))
    return spaces + text if right else text + spaces


def _characters(line: str) -> Iterator[str]:
    """What may be parted from each other: characters with the marks that belong to them; tabs as their spaces."""
    position, cluster = 0, ""
    for one in visible(line):
        if cluster and (one == _EMOJI_STYLE or _columns_of(one) == 0):
            cluster += one
            position += _columns_of(one)
            continue
        if cluster:
            yield cluster
        cluster = one
        if one == "\t":
            yield from " " * (_TAB - position % _TAB)
            position += _TAB - position % _TAB
            cluster = ""
        else:
            position += _columns_of(one)
    if cluster:
        yield cluster


def _columns_of(one: str) -> int:
    if one == _EMOJI_STYLE:
        return 1  # terminals that know it show the character before it in two columns
    if unicodedata.category(one) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(one) in "WF" else 1
