"""Form the hunks of a file from its rewrites, and join the rewrites that users can only accept together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from chirp_migrate.plans.plan import Edit, Hunk, Import
from chirp_migrate.source.piece_table import FOLLOWS, Owners, line_range_of_edit


def form_hunks(
    edits: Sequence[tuple[Edit, Owners]],
    joined: Iterable[tuple[int, int]],
    line_starts: Sequence[int],
    imports: Sequence[frozenset[Import]],
    loader_calls: Sequence[frozenset[str]],
) -> tuple[tuple[Hunk, ...], list[int | None]]:
    """Return the hunks, and for each rewrite the number of its hunk.

    The number is None for a rewrite that later rewrites undid.

    Args:
        edits: the result of :meth:`~chirp_migrate.source.piece_table.PieceTable.edits`.
        joined: pairs of rewrites that belong to the same hunk. Rewrites that change the same line are joined, too.
        line_starts: offset of the first code point of every line of the original text.
        imports: for each rewrite, the imports that the rewrite needs.
        loader_calls: for each rewrite, the calls that build loaders (see ``Hunk.together``).
    """
    groups = group_connected_items(len(imports), [*joined, *rewrites_sharing_lines(edits, line_starts)])
    by_group: dict[int, list[Edit]] = {}
    last: tuple[set[int], int] = (set(), -1)
    for edit, owners in edits:
        within = {groups[owner] for owner in owners}
        for group in within:
            own = by_group.setdefault(group, [])
            if last == ({group}, edit.start) and within == {group} and own[-1].start == edit.start == edit.end:
                # Join adjacent insertions. Two equal insertions would look like a single edit that two hunks share.
                own[-1] = Edit(edit.start, edit.end, own[-1].replacement + edit.replacement)
            else:
                own.append(edit)
        last = within, edit.end
    hunks: list[Hunk] = []
    numbers: dict[int, int] = {}
    for number, (group, own) in enumerate(by_group.items(), start=1):
        numbers[group] = number
        members = [one for one, its_group in enumerate(groups) if its_group == group]
        needed = frozenset[Import]().union(*(imports[one] for one in members))
        together = frozenset[str]().union(*(loader_calls[one] for one in members))
        hunks.append(Hunk(number, tuple(own), needed, together))
    return tuple(hunks), [numbers.get(group) for group in groups]


def group_connected_items(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Group the items 0 to ``count - 1`` such that the two items of each pair are in the same group.

    The result is a list with one number for each item: the smallest item of its group.
    """
    group = list(range(count))

    def find(one: int) -> int:
        while group[one] != one:
            group[one] = group[group[one]]
            one = group[one]
        return one

    for one, other in pairs:
        first, second = sorted((find(one), find(other)))
        group[second] = first
    return [find(one) for one in range(count)]


def rewrites_sharing_lines(
    edits: Iterable[tuple[Edit, Owners]], line_starts: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of rewrites that change the same line of the original text.

    Args:
        edits: the result of :meth:`PieceTable.edits`.
        line_starts: offset of the first code point of every line.
    """
    last, owners = -1, FOLLOWS
    for edit, present in edits:
        first, end = line_range_of_edit(edit, line_starts)
        if first <= last:
            yield from ((owner, other) for owner in owners for other in present)
            last, owners = max(last, end - 1), owners | present
        elif end > first:
            last, owners = end - 1, present
