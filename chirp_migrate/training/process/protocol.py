"""Define the messages from a child process to its parent process, as JSON, so that the parent unpickles no data."""

from __future__ import annotations

from typing import Any

import msgspec

from chirp_migrate.console.progress import ProgressStep


class ReadyMessage(msgspec.Struct, tag="ready", frozen=True):
    """Message: the child is ready for its next turn, such as the next epoch, and waits until the parent starts it.

    Attributes:
        cpu_s: seconds of CPU time that the child and its own ended child processes have used.
        at: time at which the child sent the message, in seconds of ``time.time``.
    """

    cpu_s: float
    at: float


class ProgressLine(msgspec.Struct, tag="said", frozen=True):
    """Message: a line that the parent prints. The line stays on the screen, unlike a :class:`.ProgressStep`."""

    text: str


class PartialResult(msgspec.Struct, tag="found", frozen=True):
    """Message: a part of the result, which the child sends before it has finished its task.

    Attributes:
        name: name by which the parent recognises the part, such as the label (short unique name) of an entry point.
        value: content of the part. The child sends a dataclass or other plain data, and the parent receives a dataclass
            as a dictionary.
    """

    name: str
    value: Any


class FailureMessage(msgspec.Struct, tag="failed", frozen=True):
    """Message: the child failed.

    Attributes:
        sentence: the reason in one sentence, for the user.
        usage: whether the task is not possible, for example because an option is wrong; False if the user's code raised
            an error.
    """

    sentence: str
    usage: bool = False


class ChildResult(msgspec.Struct, tag="answer", frozen=True):
    """Message: the result of the child. The child sends a dataclass, and the parent receives a dictionary."""

    value: Any


Message = ReadyMessage | ProgressLine | ProgressStep | PartialResult | FailureMessage | ChildResult
"""Any message from a child to its parent. To the child, the parent sends the task, and then some bytes at each turn."""
