"""``chirp-migrate plan PATH``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from chirp_migrate.cli import summary
from chirp_migrate.cli.options import (
    Command,
    json_option,
    output_options,
    path_argument,
    planning_options,
    scaffold_options,
)
from chirp_migrate.cli.planning import Request, planned
from chirp_migrate.console import json_file as json_output
from chirp_migrate.console.screen import open_screen
from chirp_migrate.engine.discover import journal_root
from chirp_migrate.exit_codes import ExitCode, epilog
from chirp_migrate.review.plan_file import plan_document


@click.command(
    cls=Command,
    epilog=epilog(
        {
            ExitCode.OK: "planned, or nothing to do",
            ExitCode.WORK_REMAINS: "planned, but some files could not be handled (listed)",
            ExitCode.USAGE: "PATH cannot be migrated, or an option or setting is wrong",
        },
        "chirp-migrate plan project/ -o plan.json",
        "chirp-migrate review project/ --plan plan.json",
        "chirp-migrate apply project/ --plan plan.json",
    ),
)
@path_argument
@json_option("the plan", "-o", "--output", "--json")
@planning_options
@scaffold_options
@output_options()
def plan(
    path: Path,
    json_file: Path | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    unsafe: bool | None,
    notebooks: bool | None,
    tests: bool | None,
    exclude: tuple[str, ...],
    jobs: int | None,
    scaffold: bool | None,
    vendor: bool,
    verbose: bool,
    quiet: bool,
    color: str,
) -> None:
    """Plan the migration of the project at PATH, and write nothing to it.

    The plan says for every file which hunks it would get, by which rule and why, and the hash of the source it was
    made from. `review` walks through it, `apply --plan` applies exactly what it says.
    """
    json_output.check_writable(json_file, "--output")
    request = Request(path, select, ignore, unsafe, notebooks, jobs, scaffold, vendor, tests, exclude)
    migration = planned(request)
    json_output.write(json_file, plan_document(migration))
    screen = open_screen(color, err=json_file == json_output.STANDARD_OUTPUT)
    summary.show_planned(migration.seen_from(journal_root(path)), screen, verbose=verbose, quiet=quiet)
    sys.exit(ExitCode.WORK_REMAINS if migration.plan.skipped else ExitCode.OK)
