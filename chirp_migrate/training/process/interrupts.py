"""Convert SIGTERM to KeyboardInterrupt while child processes run, so that SIGTERM cleans up like Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_as_keyboard_interrupt() -> Iterator[None]:
    """Return a context in which SIGTERM raises KeyboardInterrupt, like Ctrl-C.

    After the first SIGTERM or Ctrl-C, both signals are ignored, so that a second signal does not interrupt the
    clean-up. In other threads than the main thread, the context changes nothing, because Python can set signal handlers
    only in the main thread.
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
