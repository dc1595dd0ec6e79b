"""The type of callbacks that report the progress of long operations.

The module imports little, because many modules import it.
"""

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
        left_s: estimated seconds left, or the lower bound of this estimate if ``most_s`` is larger. None: the last
            estimate continues to count down.
        most_s: upper bound of the seconds left. None: the last bound continues to count down.
    """

    text: str
    done: int = 0
    total: int = 0
    left_s: float | None = None
    most_s: float | None = None


Progress = Callable[[str | ProgressStep], None]
"""A callback for progress. A text is printed as a line; a step is shown on a terminal, until the next step."""


def no_progress(_what: str | ProgressStep) -> None:
    """Ignore progress: the default for callbacks of type ``Progress``."""
