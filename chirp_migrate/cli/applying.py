"""The steps that ``apply`` and ``review`` have in common: check a plan, write its files, and show the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from chirp_migrate.additions.dependency import any_file_needs_runtime
from chirp_migrate.additions.requirement_pins import version_conflicts
from chirp_migrate.cli.planning import PlanRequest
from chirp_migrate.console.json_document import to_json_bytes
from chirp_migrate.console.output import Output
from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.console.screen import Screen
from chirp_migrate.engine.idempotence import check_nothing_to_rewrite
from chirp_migrate.engine.settings import read_command_table
from chirp_migrate.errors import ChirpMigrateError, InterruptedByUser, JournalDamaged, WriteRefused
from chirp_migrate.plans.plan import Plan
from chirp_migrate.report.terminal import applied
from chirp_migrate.review.plan_file import PlanFile, plan_document
from chirp_migrate.review.selection import apply_choices, decidable_hunk_ids
from chirp_migrate.source.git import refuse_uncommitted_changes
from chirp_migrate.transaction.commit import CommitResult, commit_plan
from chirp_migrate.transaction.journal import APPLIED_PLAN, applied_runs, has_unfinished_run


def accepted_part_of_plan(
    reviewed_plan: PlanFile, request: PlanRequest, plan_file: Path
) -> tuple[Plan, frozenset[str]]:
    """Return the accepted part of a reviewed plan, and the paths of the files with hunks that the user edited.

    Raises:
        WriteRefused: the review of the plan is not finished, or accepted hunks depend on refused hunks.
    """
    open_ones = [one for one in decidable_hunk_ids(reviewed_plan.plan) if one not in reviewed_plan.choices]
    if reviewed_plan.reviewed and open_ones:
        raise WriteRefused(
            f"{len(open_ones)} hunks of {plan_file} are not decided yet, the first in {open_ones[0][0]}. Nothing was "
            "changed. To decide on these hunks: "
            f"`chirp-migrate review {request.quoted_path} --plan {quote(str(plan_file))}`."
        )
    edited = frozenset(name for (name, _), choice in reviewed_plan.choices.items() if choice.edits is not None)
    return apply_choices(reviewed_plan.plan, reviewed_plan.choices), edited


def apply_plan(
    request: PlanRequest,
    plan: Plan,
    output: Output,
    *,
    edited_files: frozenset[str],
    allow_dirty: bool,
    ignore_pins: bool,
) -> CommitResult:
    """Make the final checks of a plan, write its files, and record the run in the journal of the project.

    Args:
        request: the project, and the options of the command line.
        plan: the plan, without the hunks that the user refused.
        output: settings for the output of the command.
        edited_files: paths of the files with hunks that the user edited.
        allow_dirty: whether files with uncommitted changes may be written.
        ignore_pins: whether to apply the plan even if the project pins package versions that ``chirpid_patch`` does not
            support.

    Returns:
        The result, with paths relative to the folder of the journal.

    Raises:
        WriteRefused: the project pins package versions that ``chirpid_patch`` does not support, a file has uncommitted
            changes, a new file is not valid Python, or a rule would rewrite a new file again (see
            :func:`~chirp_migrate.engine.idempotence.check_nothing_to_rewrite`).
        CommitFailed: a file cannot be written.
    """
    if not ignore_pins and (problem := version_pin_problem(plan, request.journal)):
        raise WriteRefused(
            f"{problem} Nothing was changed. Change the pins, or apply the migration with --ignore-pins."
        )
    recorded = plan.seen_from(request.journal)
    with output.progress("checking for uncommitted changes") as progress:
        if not allow_dirty:
            refuse_uncommitted_changes(recorded.root, [file.path for file in recorded.files if file.before is not None])
        settings = request.with_options(plan.options).settings
        check_nothing_to_rewrite(
            request.path, plan, settings, edited_files=edited_files, jobs=request.jobs, progress=progress
        )
        if not plan.files:
            return CommitResult((), "")
        progress(ProgressStep("locking the journal"))
        return commit_plan(recorded, on_step=progress, documents={APPLIED_PLAN: to_json_bytes(plan_document(recorded))})


def version_pin_problem(plan: Plan, journal: Path) -> str:
    """Return a message that names the project's version pins that ``chirpid_patch`` does not support.

    The message is "" if ``chirpid_patch`` supports all pins, or if no file of the plan imports ``chirpid_patch``.
    """
    pins = version_conflicts(plan.root, journal) if any_file_needs_runtime(plan.files) else []
    what = "the project cannot be installed together with chirpid-patch, which the migrated files import."
    return f"{'; '.join(pins)}: {what}" if pins else ""


@contextmanager
def explain_interruption(request: PlanRequest) -> Iterator[None]:
    """Convert Ctrl-C in a ``with`` block to an error that describes the state of the project.

    Raises:
        InterruptedByUser: the user pressed Ctrl-C. The message reports whether the run has changed files.
    """
    root, place = request.journal, request.quoted_path
    before = _applied_runs(root)
    try:
        yield
    except KeyboardInterrupt:
        runs = sorted(_applied_runs(root) - before)
        if runs:
            outcome = f"the changes of run {', '.join(runs)} are applied; `chirp-migrate rollback {place}` undoes them."
        elif has_unfinished_run(root):
            outcome = f"the run was not undone; `chirp-migrate rollback {place}` undoes it."
        else:
            outcome = "nothing was written, or all changes were undone: all files are as before."
        raise InterruptedByUser(f"interrupted: {outcome}") from None


def _applied_runs(root: Path) -> frozenset[str]:
    """Return the names of the applied runs of ``apply``; an empty set if the journal cannot be read."""
    try:
        return frozenset(run.name for run in applied_runs(root))
    except JournalDamaged:
        return frozenset()


def show_result(request: PlanRequest, plan: Plan, result: CommitResult, screen: Screen) -> None:
    """Print the files that were written, and the commands to run next."""
    applied.show_applied_changes(plan.seen_from(request.journal), result, request.path, screen, _next_commands(request))


def _next_commands(request: PlanRequest) -> list[str]:
    """Return lines for the user with the commands to run after ``apply``."""
    from chirp_migrate.training.errors import NoTrainingFound  # imported here, because only this function needs it
    from chirp_migrate.training.workload.entry_points import DEFAULT_WORKLOAD, find_entry_points

    folder = request.folder
    place = quote(str(folder))
    shown = f"chirp-migrate report {place}"
    if (request.journal / ".git").exists():
        shown = "git diff" if place == "." else f"git -C {place} diff"
    verify = f"chirp-migrate verify {place}"
    try:
        table = read_command_table(folder, "verify")[1]
        if "workload" not in table and not (folder / DEFAULT_WORKLOAD).is_file():
            find_entry_points(folder.resolve(), table.get("model"))
    except NoTrainingFound:
        start = f"chirp-migrate init-workload {place}"
        return [
            f"Next: review ({shown}), then run: {start}",
            f"Then fill in chirp_verify.py, and run: {verify}",
        ]
    except ChirpMigrateError:
        pass  # ``verify`` reports errors in its own settings
    return [f"Next: review ({shown}), then run: {verify}"]
