"""Choose the moments at which commands are killed.

Some moments are random times during the whole run. All other moments are during the writing of files. A fixed delay
would miss the writing, because a busy machine writes later and more slowly. So the check chooses a random file that the
command creates, replaces or removes, and kills the command as soon as this file changes.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from .checks import JOURNAL, TreeVersions

__all__ = ["Moment", "after", "during_apply", "during_recovery", "during_rollback"]

#: A function that returns True as soon as the moment has come. The check calls this function repeatedly during the
#: command.
Moment = Callable[[], bool]


def after(delay_s: float) -> Moment:
    """Return the moment that is ``delay_s`` seconds from now."""
    end = time.monotonic() + delay_s
    return lambda: time.monotonic() >= end


def during_apply(root: Path, applied: Path, versions: TreeVersions, rng: random.Random) -> Moment:
    """Return a random moment at which ``apply`` writes to the tree at ``root``.

    At this moment, ``apply`` writes the journal, writes a temporary file next to its target, or moves a temporary file
    to its target.

    Args:
        root: the tree before the migration.
        applied: a copy of the tree after ``apply`` with the same options. This copy contains all files that ``apply``
            will write.
        versions: the tree before and after the migration.
        rng: the random generator that chooses the file.
    """
    kept = [root / JOURNAL / "new-0001" / path.name for path in (applied / JOURNAL / "0001").iterdir()]
    places = [root / path for path in (*versions.rewritten, *versions.added)]
    return _is_changed(rng.choice(rng.choice([sorted(kept), _temporaries(root, applied), places])))


def during_rollback(root: Path, versions: TreeVersions, rng: random.Random) -> Moment:
    """Return a random moment at which ``rollback`` of run 1 writes to the tree at ``root``.

    At this moment, ``rollback`` writes a temporary file, replaces or removes a file of the project, or removes the
    journal.
    """
    kept = sorted((root / JOURNAL / "0001").iterdir())
    places = [root / path for path in (*versions.rewritten, *versions.added)]
    return _is_changed(rng.choice(rng.choice([_temporaries(root, root, restored=True), places, kept])))


def during_recovery(root: Path, versions: TreeVersions, rng: random.Random) -> Moment:
    """Return a random moment during the recovery of an interrupted run in the tree at ``root``.

    At this moment, the recovery replaces or removes a file of the project, a temporary file, or a file of the journal.
    """
    places = [root / path for path in (*versions.rewritten, *versions.added) if (root / path).exists()]
    staged = sorted(root.rglob(".chirp-migrate-*.tmp"))
    kept = sorted(path for path in (root / JOURNAL).rglob("*") if path.is_file() and path.name != "lock")
    return _is_changed(rng.choice(rng.choice([some for some in (places, staged, kept) if some])))


def _temporaries(root: Path, applied: Path, *, restored: bool = False) -> list[Path]:
    """Return the paths of the temporary files of run 1.

    Args:
        root: the tree in which the temporary files will be.
        applied: a tree with the journal of run 1.
        restored: True to return only the temporary files of a rollback. A rollback needs none for added files.
    """
    journal = json.loads((applied / JOURNAL / "0001" / "journal.json").read_bytes())
    return [
        (root / file["path"]).with_name(f".chirp-migrate-0001-{number}.tmp")
        for number, file in enumerate(journal["files"])
        if not restored or file["sha256_before"] is not None
    ]


def _is_changed(path: Path) -> Moment:
    """Return the moment at which the file ``path`` is created, removed or replaced."""
    before = _identity(path)
    return lambda: _identity(path) != before


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns
