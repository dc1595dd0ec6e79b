"""A context in which a background thread calls a function repeatedly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Smallest value of (seconds of sleep after a call / seconds of the call). With 19, the thread uses at most 5 % of a
#: CPU core.
_SLEEP_PER_READING = 19


@contextmanager
def call_repeatedly(function: Callable[[], object], interval_s: float, name: str) -> Iterator[None]:
    """Call ``function`` repeatedly in a daemon thread while the ``with`` block runs.

    After a slow call, the thread sleeps longer than ``interval_s``, so that the thread uses at most about 5 % of a CPU
    core. If a call is running at the end of the block, the block waits for the end of the call.

    Args:
        function: the function to call.
        interval_s: seconds from the end of a call to the start of the next call.
        name: name of the thread.

    Raises:
        ValueError: ``interval_s`` is not above 0.
    """
    if interval_s <= 0:
        raise ValueError("interval_s must be above 0 seconds")
    over = threading.Event()

    def run() -> None:
        pause = interval_s
        while not over.wait(pause):
            begun = time.perf_counter()
            function()
            pause = max(interval_s, _SLEEP_PER_READING * (time.perf_counter() - begun))

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
