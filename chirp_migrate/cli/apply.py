"""``chirp-migrate apply PATH``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from chirp_migrate.cli.applying import (
    accepted_part_of_plan,
    apply_plan,
    explain_interruption,
    show_result,
    version_pin_problem,
)
from chirp_migrate.cli.check_with import check_with_command
from chirp_migrate.cli.options import (
    CommandWithOptionGroups,
    ignore_pins_option,
    non_empty_text,
    option,
    output_options,
    plan_file_option,
)
from chirp_migrate.cli.planning import PlanRequest, make_plan, planning_options, read_plan_file
from chirp_migrate.console.output import Output
from chirp_migrate.console.screen import diff_style, render_to_text
from chirp_migrate.errors import UsageProblem, WriteRefused
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.plans.plan import Plan
from chirp_migrate.report.terminal import applied
from chirp_migrate.review.plan_file import run_document
from chirp_migrate.review.read_only import without_read_only_files
from chirp_migrate.source.diff import unified_diff
from chirp_migrate.transaction.journal import has_unfinished_run
from chirp_migrate.transaction.recovery import recover


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {
            ExitCode.OK: "done, or nothing to do",
            ExitCode.WORK_REMAINS: "done, but some files could not be handled (see the output)",
            ExitCode.USAGE: "PATH cannot be migrated, or an option, setting or plan is wrong",
            ExitCode.REFUSED: "refused, nothing changed: uncommitted changes, version pins that chirpid_patch does not "
            "support, a file that changed since planning, or another run that is active",
            ExitCode.UNDONE: "failed midway, and all changes were undone",
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
    """Rewrite the project at PATH to use worker-safe datasets and the loader factory of chirpid_patch.

    The command reads and rewrites source code, and never imports or runs the project's code. If you pass --check-with,
    the command also runs your own check, such as the tests of the project. `chirp-migrate rollback PATH` restores every
    byte. Options override the settings [tool.chirp-migrate] in the project's pyproject.toml. A comment
    `# chirp: ignore[CODE]` keeps the rule CODE from rewriting a line.
    """
    if show_diff and output.json_is_printed:
        raise UsageProblem("`--diff` and `--json -` both print to standard output: use `--json FILE`.")
    if show_diff and command is not None:
        raise UsageProblem("--diff writes nothing that --check-with could check: use only one of them.")
    with explain_interruption(request):
        if show_diff:
            sys.exit(_preview(request, plan_file, output, ignore_pins=ignore_pins))
        with output.progress("reading the journal") as step:
            recovered = recover(request.journal, on_step=step)
        if recovered is not None:
            click.echo(recovered, err=True)
        plan, edited = _plan_to_apply(request, plan_file, output)
        result = apply_plan(
            request, plan, output, edited_files=edited, allow_dirty=allow_dirty, ignore_pins=ignore_pins
        )
        if command is not None and result.run:
            check_with_command(command, plan.root, request.journal, result.run, output)
        output.write(run_document(plan.seen_from(request.journal)))
        show_result(request, plan, result, output.screen(prose=False))
    sys.exit(ExitCode.WORK_REMAINS if plan.skipped else ExitCode.OK)


def _preview(request: PlanRequest, plan_file: Path | None, output: Output, *, ignore_pins: bool) -> ExitCode:
    """Print a diff of the changes, and write nothing.

    Raises:
        WriteRefused: an earlier run of ``apply`` or ``rollback`` was interrupted. The preview writes nothing, so it
            cannot restore the files of that run.
    """
    if has_unfinished_run(request.journal):
        raise WriteRefused(
            f"an earlier run was interrupted here: run `chirp-migrate rollback {request.quoted_path}` first."
        )
    plan, _ = _plan_to_apply(request, plan_file, output)
    _show_diff(plan.seen_from(request.journal), output)
    if not ignore_pins and (problem := version_pin_problem(plan, request.journal)):
        output.print_line(f"`apply` will refuse this plan: {problem}")
    return ExitCode.WORK_REMAINS if plan.skipped else ExitCode.OK


def _plan_to_apply(request: PlanRequest, plan_file: Path | None, output: Output) -> tuple[Plan, frozenset[str]]:
    """Return the plan to apply, and the paths of the files with hunks that the user edited.

    If ``plan_file`` is None, the function makes a new plan, without files that this user may not write. Otherwise, the
    function reads the plan from the file, and removes all hunks that the user refused.
    """
    if plan_file is None:
        return without_read_only_files(make_plan(request, output)), frozenset()
    return accepted_part_of_plan(read_plan_file(plan_file, request), request, plan_file)


def _show_diff(plan: Plan, output: Output) -> None:
    output.write(run_document(plan))
    # Print remarks as comment lines after the diff, because `patch` and `git apply` ignore comment lines.
    screen = output.screen(prose=False)
    remarks = render_to_text(
        lambda shown: applied.show_unrewritten_findings(plan, shown), width=screen.width - 2, verbose=output.verbose
    )
    for line in (*unified_diff(plan), *(f"# {line}".rstrip() + "\n" for line in remarks.splitlines())):
        body, newline, no_newline = line.partition("\n")
        painted = screen.styled(body, diff_style(line)) + newline + no_newline
        sys.stdout.buffer.write(painted.encode("utf-8", errors="surrogateescape"))
    sys.stdout.flush()
    error_screen = output.screen(err=True)
    error_screen.text(applied.change_totals_line(plan))
    applied.show_notes(plan, error_screen)
    applied.show_loader_counts(
        plan, error_screen, planned=True, list_reference=" (listed after the diff)" if plan.files else ""
    )
