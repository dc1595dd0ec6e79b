"""What ``verify`` leaves for a report: its JSON beside the last run that stands, with what exactly was verified."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from chirp_migrate.engine.discover import journal_root
from chirp_migrate.plans.plan import sha256
from chirp_migrate.source.files import read_file
from chirp_migrate.transaction.journal import VERDICT, applied_runs, keep_document
from chirp_migrate.verify.document import VerifyReport, encode

__all__ = ["changed_since", "keep_verdict", "verified_files"]


def verified_files(root: Path) -> dict[str, str | None]:
    """SHA-256 of every file that a standing run in the project of ``root`` wrote, by path, as it is now.

    None for one that cannot be read.

    Raises:
        JournalDamaged: a journal cannot be read or trusted.
    """
    root = journal_root(root)
    paths = {file.path for run in applied_runs(root) for file in run.files}
    return {path: _digest(root / path) for path in sorted(paths)}


def keep_verdict(root: Path, report: VerifyReport) -> str | None:
    """Keep a verification in the journal, in the place of an earlier one.

    Where nothing is applied there is no journal, and nothing is kept.

    Args:
        root: the verified project, with links resolved.
        report: what was found, with what :func:`verified_files` gave before the training began.

    Returns:
        One sentence where it could not be written; verifying is not in vain for that.
    """
    runs = applied_runs(journal_root(root))
    if not runs:
        return None
    try:
        keep_document(runs[-1], VERDICT, encode(report))
    except OSError as error:
        why = error.strerror or str(error)
        return f"The verdict could not be kept for `chirp-migrate report` ({why}): --json FILE writes it elsewhere."
    return None


def changed_since(root: Path, files: Mapping[str, str | None]) -> tuple[str, ...]:
    """Paths of ``files`` whose bytes have another SHA-256 now."""
    return tuple(path for path, digest in files.items() if _digest(root / path) != digest)


def _digest(path: Path) -> str | None:
    try:
        return sha256(read_file(path))
    except OSError:
        return None
