"""``chirp-migrate apply PATH``."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import click

from chirp_migrate.additions.dependency import any_file_needs_runtime
from chirp_migrate.additions.requirement_pins import version_conflicts
from chirp_migrate.cli.options import (
    CommandWithOptionGroups,
    ignore_pins_option,
    non_empty_text,
    option,
    output_options,
    plan_file_option,
)
from chirp_migrate.cli.planning import PlanRequest, make_plan, planning_options, read_plan_file
from chirp_migrate.console.json_document import to_json_bytes
from chirp_migrate.console.output import Output
from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.console.screen import diff_style, render_to_text
from chirp_migrate.engine.idempotence import check_nothing_to_rewrite
from chirp_migrate.engine.settings import read_command_table
from chirp_migrate.errors import (
    CheckFailed,
    ChirpMigrateError,
    InterruptedByUser,
    JournalDamaged,
    UsageProblem,
    WriteRefused,
)
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.plans.plan import Plan
from chirp_migrate.report.terminal import applied
from chirp_migrate.review.plan_file import PlanFile, plan_document, run_document
from chirp_migrate.review.selection import apply_choices, decidable_hunk_ids
from chirp_migrate.source.diff import unified_diff
from chirp_migrate.source.git import refuse_uncommitted_changes
from chirp_migrate.transaction.commit import CommitResult, commit_plan
from chirp_migrate.transaction.journal import APPLIED_PLAN, applied_runs, has_unfinished_run
from chirp_migrate.transaction.recovery import recover
from chirp_migrate.transaction.rollback import rollback

_TAIL_LINES = 20
_TAIL_BYTES = 16_384


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {
            ExitCode.OK: "done, or nothing to do",
            ExitCode.WORK_REMAINS: "done, but some files could not be handled (listed)",
            ExitCode.USAGE: "PATH cannot be migrated, or an option, setting or plan is wrong",
            ExitCode.REFUSED: "refused, nothing changed (uncommitted changes, pins that contradict the runtime, a file "
            "changed meanwhile, another run)",
            ExitCode.UNDONE: "failed midway and undone",
            ExitCode.CHECK_FAILED: "the command of --check-with failed, and everything was rolled back",
        },
        "chirp-migrate apply --diff project/ | less",
        "chirp-migrate apply project/",
        "chirp-migrate apply --plan plan.json project/",
        'chirp-migrate apply --check-with "pytest -q" project/',
        "chirp-migrate apply --select CHP001,lambda-in-loader --no-notebooks project/",
    ),
)
@planning_options
@plan_file_option("Apply exactly this plan (see `plan` and `review`).")
@option("--diff", "show_diff", is_flag=True, help="Print a unified diff; write nothing.")
@option(
    "--check-with", "command", type=non_empty_text("a command"), metavar="CMD", group="Safety",
    help="Run CMD in the project's folder afterwards; roll everything back if CMD fails.",
)  # fmt: skip
@option("--allow-dirty", is_flag=True, group="Safety", help="Allow uncommitted changes in the work tree.")
@ignore_pins_option
@output_options("the findings")
def apply(
    request: PlanRequest,
    plan_file: Path | None,
    show_diff: bool,
    command: str | None,
    allow_dirty: bool,
    ignore_pins: bool,
    output: Output,
) -> None:
    """Rewrite the project at PATH to worker-safe datasets and the loader factory.

    Reads and rewrites source; the project's code is never imported or run (only --check-with runs a command).
    `chirp-migrate rollback PATH` restores every byte. Options override the settings [tool.chirp-migrate] in the
    project's pyproject.toml. A comment `# chirp: ignore[CODE]` protects a line.
    """
    if show_diff and output.json_is_printed:
        raise UsageProblem("`--diff` and `--json -` both print to standard output: use `--json FILE`.")
    if show_diff and command is not None:
        raise UsageProblem("--diff writes nothing that --check-with could check: use only one of them.")
    path = request.path
    with explain_interruption(request):
        _recover_from_interruption(request, output, may_write=not show_diff)
        if plan_file is None:
            plan, edited = make_plan(request, output), frozenset[str]()
        else:
            plan, edited = accepted_part_of_plan(read_plan_file(plan_file, request), path, plan_file)
        if show_diff:
            _show_diff(plan.seen_from(request.journal), output)
            if not ignore_pins and (problem := _pin_problem(plan, request.journal)):
                output.print_line(f"apply will refuse this: {problem}")
            sys.exit(ExitCode.WORK_REMAINS if plan.skipped else ExitCode.OK)
        if not ignore_pins:
            check_version_pins(plan, request.journal)
        result = apply_plan(request, plan, output, edited=edited, allow_dirty=allow_dirty)
        if command is not None and result.run:
            _run_user_check(command, plan.root, request.journal, result, output)
        plan = plan.seen_from(request.journal)
        output.write(run_document(plan, result.skipped))
        applied.show_applied_changes(plan, result, path, output.screen(prose=False), next_commands(request))
    sys.exit(ExitCode.WORK_REMAINS if plan.skipped or result.skipped else ExitCode.OK)


def next_commands(request: PlanRequest) -> list[str]:
    """Return lines for the user with the commands to run after ``apply``."""
    from chirp_migrate.training.errors import NoTrainingFound  # imported here, because only this function needs it
    from chirp_migrate.training.workload.entry_points import DEFAULT_WORKLOAD, find_entry_points

    folder = request.path if request.path.is_dir() else request.path.parent
    place = quote(str(folder))
    shown = f"chirp-migrate report {place}"
    if (request.journal / ".git").exists():
        shown = "git diff" if place == "." else f"git -C {place} diff"
    verify = f"chirp-migrate verify {place}"
    try:
        said = read_command_table(folder, "verify")[1]
        if "workload" not in said and not (folder / DEFAULT_WORKLOAD).is_file():
            find_entry_points(folder.resolve(), said.get("model"))
    except NoTrainingFound:
        start = f"chirp-migrate init-workload {place}"
        return [f"Next: read it ({shown}), then: {start}", f"Then fill in chirp_verify.py, and run: {verify}"]
    except ChirpMigrateError:
        pass  # ``verify`` reports errors in its own settings
    return [f"Next: read it ({shown}), then: {verify}"]


@contextmanager
def explain_interruption(request: PlanRequest) -> Iterator[None]:
    """After Ctrl-C in a ``with`` block, raise an error that describes the state of the project."""
    root, place = request.journal, quote(str(request.path))
    before = _applied_runs(root)
    try:
        yield
    except KeyboardInterrupt:
        runs = sorted(_applied_runs(root) - before)
        if runs:
            said = f"run {', '.join(runs)} is applied; `chirp-migrate rollback {place}` undoes it."
        elif has_unfinished_run(root):
            said = f"the run was not undone; `chirp-migrate rollback {place}` undoes it."
        else:
            said = "nothing was written, or all changes were undone: all files are as before."
        raise InterruptedByUser(f"interrupted: {said}") from None


def _applied_runs(root: Path) -> frozenset[str]:
    """Return the names of the applied runs; an empty set if the journal cannot be read, for example during a run."""
    try:
        return frozenset(run.name for run in applied_runs(root))
    except JournalDamaged:
        return frozenset()


def apply_plan(
    request: PlanRequest, plan: Plan, output: Output, *, edited: frozenset[str], allow_dirty: bool
) -> CommitResult:
    """Check a plan for the last time, write its files, and record the run in the journal of the project.

    Returns:
        The result, with paths relative to the folder of the journal (see :func:`journal_root`).

    Raises:
        WriteRefused: there are uncommitted changes, or a rule would rewrite the new files again.
        CommitFailed: a file cannot be written.
    """
    recorded = plan.seen_from(request.journal)
    with output.progress("checking for uncommitted changes") as progress:
        if not allow_dirty:
            refuse_uncommitted_changes(recorded.root, [file.path for file in recorded.files if file.before is not None])
        settings = request.with_options(plan.options).settings
        check_nothing_to_rewrite(
            request.path, plan, settings, edited_files=edited, jobs=request.jobs, progress=progress
        )
        if not plan.files:
            return CommitResult((), (), "")
        progress(ProgressStep("locking the journal"))
        return commit_plan(recorded, on_step=progress, documents={APPLIED_PLAN: to_json_bytes(plan_document(recorded))})


def check_version_pins(plan: Plan, journal: Path) -> None:
    """Check that the project and the runtime can be installed together. Plans that need no runtime are not checked.

    Raises:
        WriteRefused: the project pins versions that the runtime does not support.
    """
    if problem := _pin_problem(plan, journal):
        raise WriteRefused(
            f"{problem} Nothing was changed. Change the pins, or apply the migration with --ignore-pins."
        )


def _pin_problem(plan: Plan, journal: Path) -> str:
    """Return a message with the version pins that contradict the runtime; "" without such pins."""
    pins = version_conflicts(plan.root, journal) if any_file_needs_runtime(plan.files) else []
    return (
        f"{'; '.join(pins)}: the project could not be installed together with the runtime of the migrated files."
        * bool(pins)
    )


def accepted_part_of_plan(reviewed: PlanFile, path: Path, plan_file: Path) -> tuple[Plan, frozenset[str]]:
    """Return the accepted part of a reviewed plan, and the paths of the files with edited hunks.

    Raises:
        WriteRefused: the review of the plan is not finished, or accepted hunks depend on refused hunks.
    """
    open_ones = [one for one in decidable_hunk_ids(reviewed.plan) if one not in reviewed.choices]
    if reviewed.reviewed and open_ones:
        raise WriteRefused(
            f"{len(open_ones)} hunks of {plan_file} are not decided yet, the first in {open_ones[0][0]}: continue with "
            f"`chirp-migrate review {quote(str(path))} --plan {quote(str(plan_file))}`; nothing was changed."
        )
    edited = frozenset(name for (name, _), choice in reviewed.choices.items() if choice.edits is not None)
    return apply_choices(reviewed.plan, reviewed.choices), edited


def _show_diff(plan: Plan, output: Output) -> None:
    output.write(run_document(plan, ()))
    # Print the remarks after the diff as comments, because `patch` and `git apply` ignore comments.
    screen = output.screen(prose=False)
    remarks = render_to_text(
        lambda shown: applied.show_unrewritten_findings(plan, (), shown), width=screen.width - 2, verbose=output.verbose
    )
    for line in (*unified_diff(plan), *(f"# {line}".rstrip() + "\n" for line in remarks.splitlines())):
        body, newline, no_newline = line.partition("\n")
        painted = screen.styled(body, diff_style(line)) + newline + no_newline
        sys.stdout.buffer.write(painted.encode("utf-8", errors="surrogateescape"))
    sys.stdout.flush()
    error_screen = output.screen(err=True)
    error_screen.text(applied.totals_line(plan))
    applied.show_notes(plan, error_screen)
    applied.show_loader_counts(
        plan, (), error_screen, planned=True, listed=" (listed after the diff)" if plan.files else ""
    )


def _run_user_check(command: str, folder: Path, project: Path, result: CommitResult, output: Output) -> None:
    """Run the user's command in ``folder``. If the command fails, undo the run, whose journal is in ``project``."""
    try:
        with output.progress(f"running: {command}"):
            status, last_lines = _run_command(command, folder)
        if status:
            if last_lines:
                click.echo(f"The last lines of `{command}`:\n{last_lines}", err=True)
            how = f"exit code {status}" if status > 0 else f"signal {-status}"
            raise CheckFailed(f"`{command}` ended with {how}: everything was rolled back, all files are as before.")
    except BaseException as failure:
        try:
            with output.progress("rolling back") as step:
                rollback(project, run=int(result.run), on_step=step)
        except ChirpMigrateError as error:
            why = f"`{command}` failed, and the rewrite cannot be rolled back now: {error}"
            raise CheckFailed(why) from failure
        raise


def _run_command(command: str, folder: Path) -> tuple[int, str]:
    """Run ``command`` with the shell in ``folder``, and return its exit status and the last lines that it printed.

    A negative status is the number of the signal that ended the command. If the wait is interrupted, the processes of
    the command are killed.
    """
    from chirp_migrate.training.process.descendants import MARKER, kill_processes  # most runs need no psutil

    mark = secrets.token_hex()
    with tempfile.TemporaryFile() as printed:
        child = subprocess.Popen(
            command,
            shell=True,
            cwd=folder,
            env={**os.environ, MARKER: mark},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = child.wait()
        except BaseException:
            kill_processes(mark, child.pid, include_living=True)
            child.wait()
            raise
        printed.seek(max(0, printed.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = printed.read().decode("utf-8", errors="replace").splitlines()
    return status, "\n".join(lines[-_TAIL_LINES:])


def _recover_from_interruption(request: PlanRequest, output: Output, *, may_write: bool) -> None:
    if not may_write:
        if has_unfinished_run(request.journal):
            place = quote(str(request.path))
            raise WriteRefused(f"an earlier run was interrupted here: run `chirp-migrate rollback {place}` first.")
        return
    with output.progress("reading the journal") as step:
        found = recover(request.journal, on_step=step)
    if found is not None:
        click.echo(found, err=True)
