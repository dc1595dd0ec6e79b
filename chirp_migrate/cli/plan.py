"""``chirp-migrate plan PATH``."""

from __future__ import annotations

import sys

import click

from chirp_migrate.cli.options import CommandWithOptionGroups, output_options
from chirp_migrate.cli.planning import PlanRequest, make_plan, planning_options
from chirp_migrate.console.output import Output
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.report.terminal import applied
from chirp_migrate.review.plan_file import plan_document


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {
            ExitCode.OK: "planned, or nothing to do",
            ExitCode.WORK_REMAINS: "planned, but some files could not be handled (see the output)",
            ExitCode.USAGE: "PATH cannot be migrated, or an option or setting is wrong",
        },
        "chirp-migrate plan project/ -o plan.json",
        "chirp-migrate review project/ --plan plan.json",
        "chirp-migrate apply project/ --plan plan.json",
    ),
)
@planning_options
@output_options("the plan", json_option_names=("-o", "--output", "--json"))
def plan(request: PlanRequest, output: Output) -> None:
    """Show what `apply` would change in the project at PATH, without changing any file of PATH.

    The plan lists the hunks of every file with their rules and reasons, and the hash of each source file. `review`
    shows the hunks of a saved plan one by one, so that you can accept or refuse each hunk. `apply --plan` applies
    exactly the saved plan.
    """
    made = make_plan(request, output)
    output.write(plan_document(made))
    shown = made.seen_from(request.journal)
    applied.show_planned_changes(shown, output.screen(prose=False))
    sys.exit(ExitCode.WORK_REMAINS if made.skipped else ExitCode.OK)
