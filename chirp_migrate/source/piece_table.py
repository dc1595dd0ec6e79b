"""Record where each piece of a text comes from while several passes rewrite the text.

A :class:`PieceTable` stores the text as a sequence of pieces. Each piece is kept, deleted or inserted. Each deleted or
inserted piece has the numbers of the rewrites that deleted or inserted the piece. With these numbers, callers can find
the changes of one rewrite in the original text, and can undo this rewrite alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.text import edit_sort_key

#: Numbers of the rewrites to which an edit belongs.
Owners = frozenset[int]

#: Owners of an edit that follows from all rewrites together, such as an added import or removed dead code.
FOLLOWS: Owners = frozenset()


@dataclass(frozen=True)
class _Piece:
    """A piece of a rewritten text.

    There are two forms. If ``text`` is None, the piece is a kept or deleted part of the original text,
    ``original[start:end]``. In all other cases, the piece is an inserted ``text`` before ``original[start]``.
    """

    start: int
    end: int
    text: str | None
    owners: Owners
    kept: bool

    @property
    def width(self) -> int:
        """Return the number of code points that the piece has in the current text."""
        if self.text is not None:
            return len(self.text)
        return self.end - self.start if self.kept else 0

    def split(self, width: int) -> tuple[_Piece, _Piece]:
        if self.text is not None:
            return replace(self, text=self.text[:width]), replace(self, text=self.text[width:])
        middle = self.start + width
        return replace(self, end=middle), replace(self, start=middle)


class PieceTable:
    """A text that is rewritten in several passes.

    Attributes:
        joined: pairs of rewrites that can only be applied together. The first rewrite of a pair deleted or inserted
            text. The second rewrite changed this text, or inserted other text into this text.
    """

    def __init__(self, original: str) -> None:
        self._original = original
        self._pieces = [_Piece(0, len(original), None, FOLLOWS, True)]
        self.joined: set[tuple[int, int]] = set()

    @property
    def text(self) -> str:
        """Return the current text."""
        return "".join(
            piece.text if piece.text is not None else self._original[piece.start : piece.end] if piece.kept else ""
            for piece in self._pieces
        )

    def splice(self, edits: Iterable[tuple[Edit, Owners]]) -> None:
        """Apply edits to the current text, in the order of :func:`~chirp_migrate.source.text.apply_edits`."""
        done: list[_Piece] = []
        left = self._pieces[::-1]
        position = 0

        def advance(offset: int) -> Iterator[_Piece]:
            nonlocal position
            while position < offset:
                piece = left.pop()
                if position + piece.width > offset:
                    piece, rest = piece.split(offset - position)
                    left.append(rest)
                position += piece.width
                yield piece

        for edit, owners in sorted(edits, key=lambda one: edit_sort_key(one[0])):
            done += advance(edit.start)
            if done and left and done[-1].text is not None and left[-1].text is not None:
                # The edit is between two inserted pieces, or inside an inserted piece.
                self._join(done[-1].owners & left[-1].owners, owners)
            at = left[-1].start if left else len(self._original)
            for piece in advance(edit.end):
                if piece.text is None:
                    if not piece.kept:
                        self._join(piece.owners, owners)
                    done.append(replace(piece, kept=False, owners=piece.owners or owners))
                    at = piece.end
                else:
                    self._join(piece.owners, owners)
            if edit.replacement:
                done.append(_Piece(at, at, edit.replacement, owners, True))
        self._pieces = [*done, *left[::-1]]

    def origin(self, offset: int) -> int:
        """Return the offset in the original text that corresponds to an offset in the current text.

        For inserted text, the result is the place of the insertion, or the start of the original text that the inserted
        text replaced.
        """
        position = 0
        begun: int | None = None
        for piece in self._pieces:
            if position + piece.width > offset:
                if piece.text is None:
                    return piece.start + offset - position
                return piece.start if begun is None else begun
            if piece.width and piece.text is None:
                begun = None
            elif not piece.width and begun is None:
                begun = piece.start
            position += piece.width
        return len(self._original)

    def edits(self) -> Iterator[tuple[Edit, Owners]]:
        """Yield the edits, each with the numbers of the rewrites that made the edit.

        The edits refer to the original text, and have the order of this text. Edits that no single rewrite made are
        omitted, such as added imports (:data:`FOLLOWS`).
        """
        run: Edit | None = None
        owners = FOLLOWS
        for piece in self._pieces:
            if not piece.owners:
                continue
            if run is not None and piece.owners == owners and piece.start == run.end:
                run = Edit(run.start, piece.end, run.replacement + (piece.text or ""))
                continue
            if run is not None:
                yield run, owners
            run, owners = Edit(piece.start, piece.end, piece.text or ""), piece.owners
        if run is not None:
            yield run, owners

    def _join(self, earlier: Owners, later: Owners) -> None:
        self.joined |= {(one, other) for one in earlier for other in later if one != other}


def line_range_of_edit(edit: Edit, line_starts: Sequence[int]) -> tuple[int, int]:
    """Return the first line that an edit changes, and the line after the last changed line, both counted from 0.

    The two numbers are equal if the edit only inserts whole lines between two lines.
    """
    first = bisect_right(line_starts, edit.start) - 1
    end = bisect_left(line_starts, edit.end)
    if edit.start == edit.end and line_starts[first] == edit.start and edit.replacement.endswith(("\n", "\r")):
        return first, first
    return first, max(end, first + 1)
