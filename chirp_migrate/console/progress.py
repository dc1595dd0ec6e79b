"""Progress callbacks of long operations. The module imports little, because many modules import it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

__all__ = ["Progress", "ProgressStep", "no_progress"]


class ProgressStep(msgspec.Struct, frozen=True, tag="step"):
    """The current step of a long operation.

    Attributes:
        text: description of the step.
        done: number of finished parts.
        total: number of all parts; 0 if it is not known.
        left_s: estimated seconds left; the lower bound if ``most_s`` is larger.
        most_s: upper bound of the seconds left. If one of both is None, its earlier value continues to count down.
    """

    text: str
    done: int = 0
    total: int = 0
    left_s: float | None = None
    most_s: float | None = None


Progress = Callable[[str | ProgressStep], None]
"""A text is a line that stays, in a log too; a step shows on a terminal while it lasts."""


def no_progress(_what: str | ProgressStep) -> None:
    """Ignore progress."""
