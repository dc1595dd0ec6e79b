"""Progress on standard error, for people who wait: only on a terminal, and only when it takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from chirp_migrate.engine import Progress

#: Seconds before progress shows.
_PATIENCE = 1.0


@contextmanager
def planning_progress() -> Iterator[Progress | None]:
    """Give a callback that shows ``done/total path`` on one line, which is wiped at the end."""
    if not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    shown = False

    def show(done: int, total: int, path: str) -> None:
        nonlocal shown
        if time.monotonic() - started >= _PATIENCE:
            shown = True
            sys.stderr.write(f"\r\x1b[Kreading {done}/{total} {path}"[:100])
            sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
