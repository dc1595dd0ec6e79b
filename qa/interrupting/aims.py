"""The instants at which a command is killed.

A share of them is drawn from the whole time of a run. The others are points of its writing, where a fixed delay would
miss: on a busy machine the writing is late and takes longer. There, one of the files that the command makes, replaces
or removes is drawn, and the command is killed when that file is seen to change.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from .checks import JOURNAL, Sides

__all__ = ["Aim", "after", "of_apply", "of_recovery", "of_rollback"]

#: Asked again and again once the command runs: whether the instant has come.
Aim = Callable[[], bool]


def after(delay_s: float) -> Aim:
    """The instant ``delay_s`` seconds from now."""
    instant = time.monotonic() + delay_s
    return lambda: time.monotonic() >= instant


def of_apply(root: Path, applied: Path, sides: Sides, draw: random.Random) -> Aim:
    """A point of the writing of an ``apply`` on the tree at ``root``: of its journal, of the files prepared beside
    their places, or of their moves into place.

    Args:
        root: the tree before.
        applied: a tree on which the same was applied, which tells what will be written.
        sides: that tree, before and after.
        draw: where the choice comes from.
    """
    kept = [root / JOURNAL / "new-0001" / path.name for path in (applied / JOURNAL / "0001").iterdir()]
    places = [root / path for path in (*sides.rewritten, *sides.added)]
    return _changed(draw.choice(draw.choice([sorted(kept), _temporaries(root, applied), places])))


def of_rollback(root: Path, sides: Sides, draw: random.Random) -> Aim:
    """A point of the writing of a ``rollback`` of run 1 of the tree at ``root``: of the files prepared, of their moves
    into place and removals, or of the removal of the journal."""
    kept = sorted((root / JOURNAL / "0001").iterdir())
    places = [root / path for path in (*sides.rewritten, *sides.added)]
    return _changed(draw.choice(draw.choice([_temporaries(root, root, restored=True), places, kept])))


def of_recovery(root: Path, sides: Sides, draw: random.Random) -> Aim:
    """A point of what brings an interrupted run to an end: one of the files that are in the wrong state goes."""
    places = [root / path for path in (*sides.rewritten, *sides.added) if (root / path).exists()]
    staged = sorted(root.rglob(".chirp-migrate-*.tmp"))
    kept = sorted(path for path in (root / JOURNAL).rglob("*") if path.is_file() and path.name != "lock")
    return _changed(draw.choice(draw.choice([some for some in (places, staged, kept) if some])))


def _temporaries(root: Path, applied: Path, *, restored: bool = False) -> list[Path]:
    """Where the files of run 1 are prepared; with ``restored`` only those that a rollback has to prepare."""
    journal = json.loads((applied / JOURNAL / "0001" / "journal.json").read_bytes())
    return [
        (root / file["path"]).with_name(f".chirp-migrate-0001-{number}.tmp")
        for number, file in enumerate(journal["files"])
        if not restored or file["sha256_before"] is not None
    ]


def _changed(path: Path) -> Aim:
    """When ``path`` comes to be, goes, or is another file."""
    before = _identity(path)
    return lambda: _identity(path) != before


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns
