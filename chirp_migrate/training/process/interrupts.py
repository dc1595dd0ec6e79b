"""Handling of Ctrl-C and SIGTERM while children run: everything is cleaned up, once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["signals_as_one_interrupt"]


@contextmanager
def signals_as_one_interrupt() -> Iterator[None]:
    """Return a context in which SIGTERM cleans up as Ctrl-C does, and a second signal does not interrupt that.

    If handlers cannot be set (in another thread), they do not change.
    """
    caught = (signal.SIGINT, signal.SIGTERM)

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        for number in caught:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.signal(number, interrupt) for number in caught}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
