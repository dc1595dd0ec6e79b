"""What a child process and its parent tell each other, as JSON by types that both know: nothing is unpickled."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, TypeVar

import msgspec

__all__ = ["Answer", "Failed", "Message", "Ready", "Said", "pack", "pack_request", "unpack"]

_T = TypeVar("_T")


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The child waits for its next turn.

    Attributes:
        cpu_s: CPU seconds it has used; those of processes that it started count from their end on.
        at: time stamp (``time.time()``).
    """

    cpu_s: float
    at: float


class Said(msgspec.Struct, tag="said", frozen=True):
    """A line of progress."""

    text: str


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The child came to nothing.

    Attributes:
        sentence: why, for the user.
        usage: whether that lies in what was asked for, and not in the user's code.
    """

    sentence: str
    usage: bool = False


class Answer(msgspec.Struct, tag="answer", frozen=True):
    """What the child was asked for, as plain values."""

    value: Any


Message = Ready | Said | Failed | Answer
"""What a child sends; a parent sends the request, and then something, whatever it is, for each turn."""


def pack(message: Message) -> bytes:
    """A message as bytes. The standard library writes them: it knows infinities, and text that is no Unicode."""
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    return json.dumps({"type": message.__struct_config__.tag, **fields}).encode()


def pack_request(request: Any) -> bytes:
    """A request (a dataclass) as bytes."""
    return json.dumps(asdict(request)).encode()


def unpack(data: bytes, kind: type[_T]) -> _T:
    """Read a message or a request.

    Raises:
        ValueError: it is none of that type.
    """
    try:
        return msgspec.convert(json.loads(data), kind)
    except RecursionError as error:
        raise ValueError(str(error)) from None
