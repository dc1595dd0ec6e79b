"""Read the data of a report: the applied runs, and the results of ``verify`` and ``doctor``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TypeVar

from chirp_migrate.console.json_document import read_document
from chirp_migrate.doctor.doctor_report import DoctorReport
from chirp_migrate.engine.discover import journal_root
from chirp_migrate.errors import JournalDamaged, UsageProblem, WriteRefused
from chirp_migrate.plans.plan import FilePlan, Plan
from chirp_migrate.plans.plan_document import PlanDocument
from chirp_migrate.report.contents import ReportContents, RunDetails
from chirp_migrate.report.stored_results import files_changed_since
from chirp_migrate.review.plan_file import ContentLookup, read_applied_plan
from chirp_migrate.transaction.journal import APPLIED_PLAN, DOCTOR, VERDICT, JournalRun, read_runs
from chirp_migrate.transaction.journal_schema import JournalFile, RunState
from chirp_migrate.verify.verify_report import VerifyReport

_Document = TypeVar("_Document", VerifyReport, DoctorReport)


def read_report_contents(path: Path) -> ReportContents:
    """Read all data of a report on the applied runs of the project that contains ``path``.

    Raises:
        UsageProblem: no run is applied.
        WriteRefused: a run was interrupted.
        JournalDamaged: a journal cannot be read, or is damaged.
    """
    root = journal_root(path)
    runs = read_runs(root)
    if any(run.state is not RunState.APPLIED for run in runs):
        raise WriteRefused(
            "a run of apply was interrupted in this project: undo the run with `chirp-migrate rollback "
            f"{quote(str(path))}`, then run the report again."
        )
    if not runs:
        raise UsageProblem(
            f"nothing was applied in {path}, so there is nothing to report: run `chirp-migrate apply "
            f"{quote(str(path))}` first."
        )
    verdict, unverified = _last_document(runs, VERDICT, VerifyReport)
    doctor, unwatched = _last_document(runs, DOCTOR, DoctorReport)
    details = tuple(_details_of_run(run, runs) for run in runs)
    notices = [*_notices_on_runs(details)]
    if verdict is not None:
        if changed := files_changed_since(root, verdict.files):
            notices.append(f"These files have changed since the verification, so verify again: {', '.join(changed)}.")
        if unverified:
            notices.append(f"Run {unverified[0].number} was applied after the last verification: verify again.")
    if doctor is not None and unwatched:
        notices.append(f"Run {unwatched[0].number} was applied after doctor last ran: start doctor again.")
    return ReportContents(root.name, details, verdict, tuple(notices), doctor)


def _details_of_run(run: JournalRun, runs: Sequence[JournalRun]) -> RunDetails:
    tool, edited = f"chirp-migrate {run.record.tool}", _edited_files(run, runs)
    data = run.document(APPLIED_PLAN)
    if data is None:
        plan = Plan(run.root, tuple(_file_without_hunks(run, file) for file in run.files), (), ())
        return RunDetails(run.number, run.created, tool, plan, has_plan=False, edited=edited)
    try:
        document = read_document(data, PlanDocument)
        planned = [file.path for file in document.files]
        plan = read_applied_plan(document, run.root, _written_contents(run, planned))
    except ValueError as error:  # for example, edits overlap
        raise JournalDamaged(
            f"the plan stored with run {run.number} is damaged ({error}): remove {run.folder / APPLIED_PLAN} to report "
            "the run without rules and reasons."
        ) from None
    return RunDetails(run.number, run.created, tool, plan, edited=edited)


def _file_without_hunks(run: JournalRun, file: JournalFile) -> FilePlan:
    """Return a plan without hunks for ``file``, because the journal lacks the plan of this run of ``apply``."""
    before = None if file.before is None else run.content(file.before.sha256)
    return FilePlan(file.path, before, run.content(file.sha256_after), "scaffold" if before is None else "rewrite")


def _written_contents(run: JournalRun, planned: Collection[str]) -> ContentLookup:
    """Return a function that maps a file of the plan to its bytes before and after the run of ``apply``.

    The journal and the plan may have different paths for a file, because symbolic links are resolved only in the paths
    of the journal. The function finds such a file by the hashes of its bytes.
    """
    paths = {file.path for file in run.files}
    linked = {(file.sha256_before, file.sha256_after) for file in run.files if file.path not in planned}

    def bytes_of(path: str, before: str | None, after: str) -> tuple[bytes | None, bytes] | None:
        if path not in paths and (before, after) not in linked:
            return None
        return None if before is None else run.content(before), run.content(after)

    return bytes_of


def _edited_files(run: JournalRun, runs: Sequence[JournalRun]) -> frozenset[str]:
    """Return the files that the user has edited since a run of ``apply``.

    Files that a later run wrote are omitted, because that run changed their bytes.
    """
    later = {file.path for one in runs if one.number > run.number for file in one.files}
    mine = {file.path: file.sha256_after for file in run.files if file.path not in later}
    return frozenset(files_changed_since(run.root, mine))


def _last_document(
    runs: Sequence[JournalRun], name: str, document_type: type[_Document]
) -> tuple[_Document | None, Sequence[JournalRun]]:
    """Return the last result of ``verify`` or ``doctor``, and the runs of ``apply`` that followed this result.

    Args:
        runs: the applied runs, the oldest first.
        name: name of the document in the journal.
        document_type: class of the result.

    Returns:
        Two values. The first value is the result; None if no result is stored. The second value is the later runs of
        ``apply``.
    """
    command = Path(name).stem
    for at, run in reversed([*enumerate(runs, start=1)]):
        data = run.document(name)
        if data is None:
            continue
        try:
            return read_document(data, document_type), runs[at:]
        except ValueError as error:
            raise JournalDamaged(
                f"the result of {command} stored with run {run.number} cannot be read ({error}): run "
                f"{command} again, or "
                f"remove {run.folder / name}."
            ) from None
    return None, runs


def _notices_on_runs(details: Iterable[RunDetails]) -> Iterator[str]:
    """Yield a sentence for each run without a plan in the journal, and for each run whose files the user has edited."""
    for run in details:
        if not run.has_plan:
            yield (
                f"The journal lacks the plan of run {run.number}, so the changes of this run are shown without rules "
                "and reasons."
            )
        if run.edited:
            edited = ", ".join(sorted(run.edited))
            yield f"These files were edited after the migration, and are shown without the edits: {edited}."
