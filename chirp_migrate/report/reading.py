"""Read the data of a report: applied runs or a plan, and the results of ``verify`` and ``doctor``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TypeVar

from chirp_migrate.console.json_document import read_document
from chirp_migrate.doctor.doctor_report import DoctorReport
from chirp_migrate.engine.discover import journal_root, project_root
from chirp_migrate.errors import JournalDamaged, UsageProblem, WriteRefused
from chirp_migrate.plans.plan import FilePlan, Finding, FindingStatus, Plan, SkippedFile
from chirp_migrate.plans.plan_document import PlanDocument
from chirp_migrate.report.contents import FileDetails, FindingDetails, ReportContents, RunDetails
from chirp_migrate.report.files import file_details, finding_details
from chirp_migrate.report.stored_results import files_changed_since
from chirp_migrate.review.loader_account import LoaderLedger
from chirp_migrate.review.plan_file import ContentLookup, PlanFile, load_plan, read_applied_plan
from chirp_migrate.review.selection import Choices, apply_choices
from chirp_migrate.source.files import read_file
from chirp_migrate.transaction.journal import APPLIED_PLAN, DOCTOR, VERDICT, JournalRun, read_runs
from chirp_migrate.transaction.journal_schema import RunState
from chirp_migrate.verify.verify_report import VerifyReport

_Document = TypeVar("_Document", VerifyReport, DoctorReport)

_NOT_WRITTEN = "it was read-only when this run was applied"


def read_report_contents(
    path: Path,
    *,
    run: int | None = None,
    plan_file: Path | None = None,
    verdict_file: Path | None = None,
    doctor_file: Path | None = None,
) -> ReportContents:
    """Read all data of a report on a project.

    Args:
        path: folder of the project.
        run: number of the run of ``apply`` to report; None for all applied runs.
        plan_file: file that ``plan -o`` wrote, to report instead of the applied runs.
        verdict_file: file that ``verify --json`` wrote; None for the result that ``verify`` stored in the journal.
        doctor_file: file that ``doctor --json`` wrote; None for the result that ``doctor`` stored in the journal.

    Raises:
        UsageProblem: no run is applied, the run does not exist, or a file has the wrong format.
        WriteRefused: the project has changed since the plan was made, or a run was interrupted.
        JournalDamaged: a journal cannot be read, or is damaged.
    """
    doctor = None if doctor_file is None else _read_document(doctor_file, "doctor", DoctorReport)
    if plan_file is not None:
        return replace(_contents_of_plan(path, plan_file, verdict_file), doctor=doctor)
    return _contents_of_runs(path, run, verdict_file, doctor)


def _contents_of_runs(
    path: Path, number: int | None, verdict_file: Path | None, doctor: DoctorReport | None
) -> ReportContents:
    """Return the data of a report on the applied runs of a project."""
    root = journal_root(path)
    runs = read_runs(root)
    if any(run.state is not RunState.APPLIED for run in runs):
        raise WriteRefused(
            f"a run of apply was interrupted in this project: undo it with `chirp-migrate rollback "
            f"{quote(str(path))}`, then report again."
        )
    if not runs:
        apply, plan = f"chirp-migrate apply {quote(str(path))}", f"chirp-migrate plan {quote(str(path))} -o FILE"
        raise UsageProblem(
            f"nothing was applied in {path}, so there is nothing to report: run `{apply}` first, or report a plan with "
            f"--plan FILE (`{plan}` writes a plan)."
        )
    chosen = [run for run in runs if number is None or run.number == number]
    if not chosen:
        there = ", ".join(str(run.number) for run in runs)
        raise UsageProblem(f"there is no run {number} in {path}: the applied runs are {there}.")
    verdict, kept_with = (
        _last_document(runs, VERDICT, VerifyReport)
        if verdict_file is None
        else (_read_document(verdict_file, "verify", VerifyReport), None)
    )
    details = [_details_of_run(run, runs) for run in chosen]
    doubts = [*_find_mismatches(details, verdict, kept_with, runs)]
    if doctor is None:
        doctor, kept_with = _last_document(runs, DOCTOR, DoctorReport)
        if kept_with is not None and kept_with < runs[-1].number:
            doubts.append(f"Run {kept_with + 1} was applied after the last run of doctor: run doctor again.")
    return ReportContents(root.name, tuple(details), verdict, tuple(doubts), doctor)


def _contents_of_plan(path: Path, plan_file: Path, verdict_file: Path | None) -> ReportContents:
    """Return the data of a report on a plan for a project."""
    root = project_root(path)
    found = load_plan(plan_file, root)
    verdict = None if verdict_file is None else _read_document(verdict_file, "verify", VerifyReport)
    run = _details_of_found_plan(found)
    return ReportContents(root.name, (run,), verdict, ("This is a plan, which is not applied.",))


def _details_of_run(run: JournalRun, runs: Sequence[JournalRun]) -> RunDetails:
    edited = _edited_files(run, runs)
    data = run.document(APPLIED_PLAN)
    if data is None:
        files = tuple(_file_from_journal(run, file.path) for file in run.files)
        return replace(_run_details(Plan(run.root, files, (), ()), run=run, edited=edited), ledger=None)
    try:
        document = read_document(data, PlanDocument)
        planned = [file.path for file in document.files]
        plan = read_applied_plan(document, run.root, _written_contents(run, planned))
        written = {file.path for file in plan.files}
        left = tuple(SkippedFile(path, _NOT_WRITTEN) for path in planned if path not in written)
        return _run_details(plan, left, run=run, edited=edited)
    except ValueError as error:  # for example, edits overlap
        raise JournalDamaged(
            f"the plan stored with run {run.number} is damaged ({error}): remove {run.folder / APPLIED_PLAN} to report "
            "that run without its reasons."
        ) from None


def _details_of_found_plan(found: PlanFile) -> RunDetails:
    plan, choices = found.plan, found.choices
    # Show refused hunks, too. Show edited hunks with the edits of the user.
    shown = apply_choices(plan, {one: replace(choice, accepted=True) for one, choice in choices.items()})
    refused = {one for one, choice in choices.items() if not choice.accepted}
    findings = tuple(
        replace(one, status=FindingStatus.REFUSED)
        if one.status is FindingStatus.REWRITE and (one.path, one.hunk) in refused
        else one
        for one in plan.findings
    )
    return replace(_run_details(replace(shown, findings=findings), choices=choices), tool=found.tool)


def _run_details(
    plan: Plan,
    left: tuple[SkippedFile, ...] = (),
    *,
    run: JournalRun | None = None,
    edited: Collection[str] = (),
    choices: Choices | None = None,
) -> RunDetails:
    """Return the data of a report on one run of ``apply``, or on a plan.

    Args:
        plan: the changes of the run, or the plan.
        left: files that the run could not write, with the reason.
        run: the run; None for a plan.
        edited: paths of the files that the user has edited since the run.
        choices: the decisions of a review of the plan; None without a review.
    """
    number = None if run is None else run.number
    unwritten = {one.path for one in left}
    findings: dict[str, list[Finding]] = {}
    for one in plan.findings:
        in_vain = one.path in unwritten and one.status is FindingStatus.REWRITE
        shown = replace(one, status=FindingStatus.REPORT, why="file-not-written") if in_vain else one
        findings.setdefault(one.path, []).append(shown)
    files: list[FileDetails] = []
    reported: dict[str, tuple[FindingDetails, ...]] = {}
    for file in plan.files:
        own, since = findings.get(file.path, ()), file.path in edited
        details, reported[file.path] = file_details(file, own, run=number, choices=choices or {}, edited_since=since)
        files.append(details)
    for path in findings.keys() - reported.keys():
        reported[path] = tuple(finding_details(one) for one in findings[path] if one.status is not FindingStatus.FINE)
    return RunDetails(
        number=number,
        created="" if run is None else run.created,
        tool="" if run is None else f"chirp-migrate {run.record.tool}",
        files=tuple(sorted(files, key=lambda one: (one.action == "create", one.note != "rewrite", one.path))),
        reported=tuple(one for path in sorted(reported) for one in reported[path]),
        skipped=(*plan.skipped, *left),
        left_out=plan.left_out,
        ledger=LoaderLedger.of(plan, left),
        notes=plan.notes,
    )


def _written_contents(run: JournalRun, planned: Collection[str]) -> ContentLookup:
    """Return a function that maps a path in the plan to the bytes of the file before and after the run.

    In the journal, links in paths are resolved. So the journal and the plan may have different paths for a file.
    """
    paths = {file.path for file in run.files}
    linked = {(file.sha256_before, file.sha256_after): file.path for file in run.files if file.path not in planned}

    def bytes_of(path: str, before: str | None, after: str) -> tuple[bytes | None, bytes] | None:
        kept = path if path in paths else linked.get((before, after))
        if kept is None:
            return None
        file = _file_from_journal(run, kept)
        return file.before, file.after

    return bytes_of


def _file_from_journal(run: JournalRun, path: str) -> FilePlan:
    """Return a file of a run with the bytes from the journal. The result has no hunks."""
    file = next(one for one in run.files if one.path == path)
    before = None if file.before is None else run.content(file.before.sha256)
    return FilePlan(path, before, run.content(file.sha256_after), "rewrite")


def _edited_files(run: JournalRun, runs: Sequence[JournalRun]) -> frozenset[str]:
    """Return the files that the user has edited since a run. Files that a later run wrote are omitted."""
    later = {file.path for one in runs if one.number > run.number for file in one.files}
    mine = {file.path: file.sha256_after for file in run.files if file.path not in later}
    return frozenset(files_changed_since(run.root, mine))


def _last_document(
    runs: Sequence[JournalRun], name: str, document_type: type[_Document]
) -> tuple[_Document | None, int | None]:
    """Return the last result of ``verify`` or ``doctor``, and the number of the run in whose folder the result is."""
    command = Path(name).stem
    for run in reversed(runs):
        data = run.document(name)
        if data is None:
            continue
        try:
            return read_document(data, document_type), run.number
        except ValueError as error:
            raise JournalDamaged(
                f"the result of {command} stored with run {run.number} cannot be read ({error}): run "
                f"{command} again, or "
                f"remove {run.folder / name}."
            ) from None
    return None, None


def _read_document(file: Path, command: str, document_type: type[_Document]) -> _Document:
    try:
        return read_document(read_file(file), document_type)
    except OSError as error:
        raise UsageProblem(
            f"{file} cannot be read ({error.strerror}): pass a file that `{command} --json` wrote."
        ) from None
    except ValueError as error:
        raise UsageProblem(
            f"{file} is not a result of {command} ({error}): pass a file that `{command} --json` wrote."
        ) from None


def _find_mismatches(
    details: Sequence[RunDetails], verdict: VerifyReport | None, kept_with: int | None, runs: Sequence[JournalRun]
) -> Iterator[str]:
    """Yield warnings about outdated or missing parts of a report, such as a verdict from before the last run.

    Args:
        details: the runs to report.
        verdict: the result of ``verify``; None if ``verify`` did not run.
        kept_with: number of the run in whose folder the result of ``verify`` is; None if the result comes from a file.
        runs: all applied runs.
    """
    for run in details:
        if run.ledger is None:
            yield (
                f"The journal lacks the plan of run {run.number}, so the changes of this run are shown without rules "
                "and reasons."
            )
        edited = [file.path for file in run.files if file.edited_since]
        if edited:
            yield f"These files were edited after the migration, and are shown without the edits: {', '.join(edited)}."
    if len(details) < len(runs):
        others = ", ".join(str(run.number) for run in runs if run.number not in {one.number for one in details})
        shown = details[0].number
        yield f"Only run {shown} is shown, but the verdict is on all applied runs. Other applied runs: {others}."
    if verdict is None:
        return
    changed = files_changed_since(runs[0].root, verdict.files)
    if changed:
        yield f"These files have changed since the verification, so verify again: {', '.join(changed)}."
    newer = [run.number for run in runs if kept_with is not None and run.number > kept_with]
    if newer:
        yield f"Run {newer[0]} was applied after the last verification: verify again."
