"""Store the results of ``verify`` and ``doctor`` in the journal of ``apply``, where ``report`` finds the results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from chirp_migrate.console.json_document import to_json_bytes
from chirp_migrate.doctor.doctor_report import DoctorReport
from chirp_migrate.engine.discover import journal_root
from chirp_migrate.errors import JournalDamaged
from chirp_migrate.plans.plan import sha256
from chirp_migrate.source.files import read_file
from chirp_migrate.transaction.journal import DOCTOR, VERDICT, applied_runs, store_document
from chirp_migrate.verify.verify_report import VerifyReport


def hashes_of_written_files(root: Path) -> dict[str, str | None]:
    """Return a dictionary: path of a file that ``apply`` wrote → SHA-256 of its present bytes.

    The value is None if the file cannot be read.

    Raises:
        JournalDamaged: a journal cannot be read, or is damaged.
    """
    root = journal_root(root)
    paths = {file.path for run in applied_runs(root) for file in run.files}
    return {path: _digest(root / path) for path in sorted(paths)}


def store_result(root: Path, report: VerifyReport | DoctorReport) -> str | None:
    """Store the result of ``verify`` or ``doctor`` in the journal, in place of an earlier result of the same command.

    If no run of ``apply`` is applied, the project has no journal, and nothing is stored.

    Args:
        root: path of the project, with symbolic links resolved.
        report: the result.

    Returns:
        A sentence on why the result could not be stored; None if the result was stored, or if the project has no
        journal.
    """
    is_verdict = isinstance(report, VerifyReport)
    try:
        runs = applied_runs(journal_root(root))
        if runs:
            content = to_json_bytes(report, indent=None if is_verdict else 2)
            store_document(runs[-1], VERDICT if is_verdict else DOCTOR, content)
    except (OSError, JournalDamaged) as error:
        what = "The verdict" if is_verdict else "The result"
        why = getattr(error, "strerror", None) or str(error)
        return (
            f"{what} could not be stored for `chirp-migrate report` ({why}): use --json FILE to write the result to "
            "another file."
        )
    return None


def files_changed_since(root: Path, sha256_by_path: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the paths of the files whose SHA-256 differs from the value in ``sha256_by_path``."""
    return tuple(path for path, digest in sha256_by_path.items() if _digest(root / path) != digest)


def _digest(path: Path) -> str | None:
    try:
        return sha256(read_file(path))
    except OSError:
        return None
