"""In a child process: the process that started it, and waits for its answer."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol, TypeVar

from chirp_migrate.console.json_document import as_bytes, read_as, read_json
from chirp_migrate.console.progress import Step
from chirp_migrate.training.errors import NotUsable, Raised
from chirp_migrate.training.process.background_load import own_s
from chirp_migrate.training.process.imports import enter_tree
from chirp_migrate.training.process.protocol import Answer, Failed, Message, Ready, Said

__all__ = ["Parent", "serve"]


class _Request(Protocol):
    @property
    def tree(self) -> str:
        """Folder that the child works in and imports from."""


_R = TypeVar("_R", bound=_Request)


class Parent:
    """The parent's end of the pipe.

    It has no name, so nobody else can open it; what the user's code starts by itself does not inherit it.
    """

    def __init__(self, end: int) -> None:
        """Take over an end of a pipe that this process inherited: a descriptor, or a handle of Windows."""
        getattr(os, "set_handle_inheritable", os.set_inheritable)(end, False)
        self._connection = getattr(connection, "PipeConnection", connection.Connection)(end)

    def request(self, kind: type[_R]) -> _R:
        """Return the request of the parent."""
        return read_as(read_json(self._read_bytes()), kind)

    def wait_for_turn(self) -> None:
        """Report that the next step is prepared, and wait for the turn.

        Two children so start and import beside each other and then train in turns, while what trains has the machine
        to itself: the threads of two trainings on the same cores would wait for each other most of the time. A
        machine's speed drifts within seconds, so what is compared is timed right after each other.

        Raises:
            SystemExit: the parent is gone, so the result has no receiver.
        """
        self.send(Ready(own_s(), time.time()))
        self._read_bytes()

    def show(self, what: str | Step) -> None:
        """Progress: see :data:`~chirp_migrate.console.progress.Progress`."""
        self.send(what if isinstance(what, Step) else Said(what))

    def send(self, message: Message) -> None:
        """Send a message; raise SystemExit if the parent is gone."""
        try:
            self._connection.send_bytes(as_bytes(message, indent=None))
        except OSError:
            raise SystemExit(_GONE) from None

    def _read_bytes(self) -> bytes:
        try:
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            raise SystemExit(_GONE) from None


_GONE = "the process that started this one has ended"


def serve(kind: type[_R], act: Callable[[_R, Parent], Any]) -> int:
    """Run a child: execute the request in its tree, and send the answer.

    Args:
        kind: type of the request.
        act: gives the answer (a dataclass); raises :class:`NotUsable` or :class:`Raised`.

    Returns:
        The exit code of the process: 0, or 1 where it came to nothing.
    """
    parent = Parent(int(sys.argv[1]))
    request = parent.request(kind)
    enter_tree(Path(request.tree))
    try:
        parent.send(Answer(act(request, parent)))
    except NotUsable as problem:
        parent.send(Failed(str(problem), usage=True))
        return 1
    except Raised as raised:
        if not isinstance(raised.__cause__, NotUsable):
            traceback.print_exception(raised.__cause__)
        parent.send(Failed(str(raised)))
        return 1
    return 0
