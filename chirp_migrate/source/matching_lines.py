"""Compare two texts line by line, and find the smallest number of removed and added lines."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterator, Sequence

Opcode = tuple[str, int, int, int, int]
"""An operation of :mod:`difflib`: name, start and end in the lines of the old text, start and end in the new text."""

_Link = tuple[int, int, "_Link | None"]
#: Limit for the exact comparison: the number of pairs of equal lines, such as blank lines. With more pairs, the exact
#: comparison would take seconds.
_MOST_PAIRS = 3_000_000


class _Matcher(difflib.SequenceMatcher[str]):
    """A ``SequenceMatcher`` that finds a longest common subsequence of lines (Hunt & Szymanski 1977)."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, old, new, autojunk=False)
        self.matching_blocks = [*_equal_blocks(old, new), difflib.Match(len(old), len(new), 0)]


def shortest_diff_opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """Return opcodes that turn ``old`` into ``new`` with the fewest removed and added lines."""
    return list(_matcher(old, new).get_opcodes())


def group_opcodes_as_hunks(old: Sequence[str], new: Sequence[str], context: int) -> Iterator[list[Opcode]]:
    """Return the differences as hunks, with up to ``context`` equal lines above and below each difference."""
    return iter(_matcher(old, new).get_grouped_opcodes(context))


def _matcher(old: Sequence[str], new: Sequence[str]) -> difflib.SequenceMatcher[str]:
    places = _positions_of_lines(new)
    if sum(len(places.get(line, ())) for line in old) > _MOST_PAIRS:
        return difflib.SequenceMatcher(None, old, new, autojunk=True)  # ignores very frequent lines
    return _Matcher(old, new)


def _positions_of_lines(lines: Sequence[str]) -> dict[str, list[int]]:
    """Return, for each line that occurs in ``lines``, all its positions from last to first."""
    found: dict[str, list[int]] = {}
    for place in range(len(lines) - 1, -1, -1):
        found.setdefault(lines[place], []).append(place)
    return found


def _equal_blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[difflib.Match]:
    """Yield the blocks of consecutive equal lines that form a longest common subsequence of both texts."""
    shorter = min(len(old), len(new))
    head = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    tail = next((n for n in range(shorter - head) if old[-1 - n] != new[-1 - n]), shorter - head)
    pairs = [(i, i) for i in range(head)]
    pairs += [
        (head + i, head + j) for i, j in _common_subsequence(old[head : len(old) - tail], new[head : len(new) - tail])
    ]
    pairs += [(len(old) - tail + n, len(new) - tail + n) for n in range(tail)]
    start = 0
    for end in range(1, len(pairs) + 1):
        if (
            end == len(pairs)
            or (pairs[end][0] - pairs[start][0], pairs[end][1] - pairs[start][1]) != (end - start,) * 2
        ):
            yield difflib.Match(*pairs[start], end - start)
            start = end


def _common_subsequence(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return a longest common subsequence as pairs of positions in ``old`` and in ``new``."""
    places = _positions_of_lines(new)
    ends: list[int] = []  # smallest position in `new` at which a common subsequence of each length can end
    links: list[_Link] = []
    for i, line in enumerate(old):
        for j in places.get(line, ()):
            length = bisect_left(ends, j)
            link = (i, j, links[length - 1] if length else None)
            ends[length : length + 1] = [j]
            links[length : length + 1] = [link]
    pairs: list[tuple[int, int]] = []
    last: _Link | None = links[-1] if links else None
    while last is not None:
        i, j, last = last
        pairs.append((i, j))
    return pairs[::-1]
