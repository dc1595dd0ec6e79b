"""The type of callbacks that report the progress of long operations.

The module imports little, because many other modules import this module.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class ProgressStep(msgspec.Struct, frozen=True, tag="step"):
    """The current step of a long operation.

    Attributes:
        text: description of the step.
        done: number of finished parts.
        total: number of all parts; 0 for an unknown number.
        left_s: estimated seconds until the end of the operation. If ``most_s`` is larger, ``left_s`` is a lower bound.
            None keeps the last estimate, which continues to count down.
        most_s: upper bound of the seconds until the end. None keeps the last bound, which continues to count down.
    """

    text: str
    done: int = 0
    total: int = 0
    left_s: float | None = None
    most_s: float | None = None


Progress = Callable[[str | ProgressStep], None]
"""A callback for progress. A text is printed as a line. A step is shown on a terminal until the next step."""


def ignore_progress(_what: str | ProgressStep) -> None:
    """Ignore progress: the default for callbacks of type ``Progress``."""
