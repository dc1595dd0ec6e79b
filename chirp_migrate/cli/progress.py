"""Progress of planning and of writing, for people who wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chirp_migrate.console.screen import progress_bar
from chirp_migrate.engine.plan_tree import Progress

__all__ = ["planning_progress", "writing_progress"]


@contextmanager
def planning_progress(doing: str = "reading") -> Iterator[Progress | None]:
    """Give a callback that shows how many files are done, and the last one."""
    with progress_bar() as show:
        yield show and (lambda done, total, path: show(f"{doing} {path}", done, total))


@contextmanager
def writing_progress() -> Iterator[Callable[[str], None]]:
    """Give a callback that shows the last step of a commit or rollback."""
    with progress_bar() as show:
        yield (lambda step: show(f"writing: {step}", 0, None)) if show else (lambda step: None)
