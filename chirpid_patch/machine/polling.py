"""Repeated calls of a function on a background thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: The thread sleeps at least this many times as long as a reading takes: 5 % of one core at most.
_SLEEP_PER_READING = 19


@contextmanager
def call_repeatedly(reading: Callable[[], object], interval_s: float, name: str) -> Iterator[None]:
    """Call ``reading`` on a daemon thread called ``name`` while the block runs, ``interval_s`` seconds apart.

    If a call is slow, the interval is longer, so that calls take at most about 5 % of a core. No call is running after
    the block.

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
            reading()
            pause = max(interval_s, _SLEEP_PER_READING * (time.perf_counter() - begun))

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
