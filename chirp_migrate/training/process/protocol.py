"""Messages that a child process sends to its parent, as JSON, so that the parent unpickles nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from chirp_migrate.console.progress import ProgressStep


class ReadyMessage(msgspec.Struct, tag="ready", frozen=True):
    """Message: the child waits for its next turn.

    Attributes:
        cpu_s: CPU seconds that the child and its ended child processes have used.
        at: time of the message, on the clock of ``time.time``.
    """

    cpu_s: float
    at: float


class ProgressLine(msgspec.Struct, tag="said", frozen=True):
    """Message: a line of progress that stays on the screen."""

    text: str


class PartialResult(msgspec.Struct, tag="found", frozen=True):
    """Message: a part of the result that the child sends before its end.

    Attributes:
        name: name of the part.
        value: a dataclass, which the parent receives as a dictionary.
    """

    name: str
    value: Any


class FailureMessage(msgspec.Struct, tag="failed", frozen=True):
    """Message: the child failed.

    Attributes:
        sentence: the reason in one sentence, for the user.
        usage: whether an option of the user is wrong; False if the user's code raised an error.
    """

    sentence: str
    usage: bool = False


class ChildResult(msgspec.Struct, tag="answer", frozen=True):
    """Message: the result of the child, a dataclass, which the parent receives as a dictionary."""

    value: Any


Message = ReadyMessage | ProgressLine | ProgressStep | PartialResult | FailureMessage | ChildResult
"""Any message of a child. In the other direction, the parent sends the task, and then some bytes to start each turn."""
