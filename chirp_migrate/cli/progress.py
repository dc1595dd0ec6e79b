"""Progress on standard error, for people who wait: only on a terminal, and only when it takes a while."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chirp_migrate.console.paint import visible
from chirp_migrate.engine.plan_tree import Progress

#: Seconds before progress shows.
_PATIENCE = 1.0


@contextmanager
def planning_progress(doing: str = "reading") -> Iterator[Progress | None]:
    """Give a callback that shows ``doing done/total path`` on one line, which is wiped at the end."""
    with _line() as show:
        yield show and (lambda done, total, path: show(f"{doing} {done}/{total} {path}"))


@contextmanager
def writing_progress() -> Iterator[Callable[[str], None] | None]:
    """Give a callback that shows the last step of a commit or rollback."""
    with _line() as show:
        yield show and (lambda step: show(f"writing: {step}"))


@contextmanager
def _line() -> Iterator[Callable[[str], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    shown = False

    def show(text: str) -> None:
        nonlocal shown
        if time.monotonic() - started >= _PATIENCE:
            shown = True
            # A line that the terminal breaks could not be wiped.
            sys.stderr.write(f"\r\x1b[K{visible(text)[: shutil.get_terminal_size().columns - 1]}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
