"""What every test runs under."""

from __future__ import annotations

import gc
import os
import signal

# All that is made while tests are collected stays: looking for garbage in it took a quarter of that time.
gc.disable()

# A shell starts what is in the background with Ctrl-C ignored, which processes that tests start would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run in several processes, and most start more: on one thread each, they do not wait for each other's threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish() -> None:
    """What was imported stays: collections of garbage need not look at it, nor processes that are forked copy it."""
    gc.collect()
    gc.freeze()
    gc.enable()
