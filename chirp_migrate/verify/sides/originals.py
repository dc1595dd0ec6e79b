"""The files of a backend as they were before it was migrated, from the journal that ``apply`` keeps."""

from __future__ import annotations

from pathlib import Path

from chirp_migrate.engine.discover import journal_root
from chirp_migrate.training.errors import NotMigrated
from chirp_migrate.transaction.journal import applied_runs

__all__ = ["original_files"]


def original_files(root: Path) -> dict[str, bytes | None]:
    """Bytes before the first applied run, by posix path relative to ``root``; None for files that a run created.

    Raises:
        NotMigrated: nothing is applied there.
        JournalDamaged: a journal cannot be read or trusted.
    """
    project = journal_root(root)
    below = f"{root.resolve().relative_to(project).as_posix()}/".removeprefix("./")
    originals: dict[str, bytes | None] = {}
    for run in applied_runs(project):
        for file in run.files:
            path = file.path.removeprefix(below)
            # The first run to touch a file knows its original.
            if file.path.startswith(below) and path not in originals:
                originals[path] = None if file.before is None else run.original(file.path)
    if not originals:
        raise NotMigrated(f"nothing was applied in {root}: run `chirp-migrate apply {root}` first, then verify it.")
    return originals
