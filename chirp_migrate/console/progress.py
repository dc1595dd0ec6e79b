"""Define the type of the callbacks to which long operations report their progress.

Many modules import this module, so its own imports are few and fast.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class ProgressStep(msgspec.Struct, frozen=True, tag="step"):
    """The current step of a long operation.

    Attributes:
        text: what the operation does in this step, as text for users.
        done: number of finished parts of the operation.
        total: number of all parts of the operation; 0 if the number is unknown.
        left_s: estimated seconds until the end of the operation. If ``most_s`` is larger by more than a second,
            ``left_s`` is a lower bound, and the display shows both values, such as ``about 0:12 to 0:25 left``. If
            ``left_s`` is None, the display continues to count down from the previous estimate.
        most_s: upper bound of the seconds until the end of the operation. If ``most_s`` is None, the display continues
            to count down from the previous bound.
    """

    text: str
    done: int = 0
    total: int = 0
    left_s: float | None = None
    most_s: float | None = None


Progress = Callable[[str | ProgressStep], None]
"""A callback that shows progress. It prints each string as a line, and shows each step until the next step."""


def ignore_progress(_what: str | ProgressStep) -> None:
    """Do nothing. Functions use this callback as the default for parameters of type ``Progress``."""
