"""Messages between a child process and its parent, as JSON of types that both import: nothing is unpickled."""

from __future__ import annotations

from typing import Any

import msgspec

from chirp_migrate.console.progress import ProgressStep

__all__ = ["ChildResult", "FailureMessage", "Message", "PartialResult", "ProgressLine", "ReadyMessage"]


class ReadyMessage(msgspec.Struct, tag="ready", frozen=True):
    """The child waits for its next turn.

    Attributes:
        cpu_s: CPU seconds that it has used, including those of its ended child processes.
        at: time stamp (``time.time()``).
    """

    cpu_s: float
    at: float


class ProgressLine(msgspec.Struct, tag="said", frozen=True):
    """A line of progress that stays on the screen."""

    text: str


class PartialResult(msgspec.Struct, tag="found", frozen=True):
    """A partial result of the child, sent early.

    Attributes:
        name: name of the part.
        value: a dataclass, which arrives as plain values.
    """

    name: str
    value: Any


class FailureMessage(msgspec.Struct, tag="failed", frozen=True):
    """The child failed.

    Attributes:
        sentence: the reason, for the user.
        usage: whether the cause is the task, and not the user's code.
    """

    sentence: str
    usage: bool = False


class ChildResult(msgspec.Struct, tag="answer", frozen=True):
    """The result of the child: a dataclass, which arrives as plain values."""

    value: Any


Message = ReadyMessage | ProgressLine | ProgressStep | PartialResult | FailureMessage | ChildResult
"""The messages of a child. A parent sends the request, and then any object for each turn."""
