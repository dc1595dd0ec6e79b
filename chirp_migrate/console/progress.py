"""Progress callbacks of long operations. The module imports little, because many modules import it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

__all__ = ["Progress", "Step", "no_progress"]


class Step(msgspec.Struct, frozen=True, tag="step"):
    """The current step of a long operation.

    Attributes:
        text: what.
        done: how many parts are done.
        total: of how many; 0 where that is not known.
        left_s: seconds left, at least where ``most_s`` is more, as estimated from what was measured.
        most_s: seconds left, at most. Where one of them is None, what was said of it before goes on running.
    """

    text: str
    done: int = 0
    total: int = 0
    left_s: float | None = None
    most_s: float | None = None


Progress = Callable[[str | Step], None]
"""A text is a line that stays, in a log too; a step shows on a terminal while it lasts."""


def no_progress(_what: str | Step) -> None:
    """Ignore progress."""
