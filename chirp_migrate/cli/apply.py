"""``chirp-migrate apply PATH``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from chirp_migrate.cli import json_file as json_output
from chirp_migrate.cli import summary
from chirp_migrate.cli.progress import planning_progress
from chirp_migrate.commit import commit, recover
from chirp_migrate.diff import unified_diff
from chirp_migrate.discover import root_of
from chirp_migrate.errors import Refused, UsageProblem
from chirp_migrate.gitguard import guard
from chirp_migrate.journal import read_runs
from chirp_migrate.migration import plan_migration
from chirp_migrate.plan import Skipped
from chirp_migrate.record import State

#: Something was left undone that the user should look at.
INCOMPLETE = 1


@click.command(
    epilog=(
        "Exit codes: 0 done, or nothing to do; 1 done, but some files left out (listed); 2 PATH cannot be migrated; "
        "3 refused, nothing changed (uncommitted changes, a file changed meanwhile, another run); 4 failed midway and "
        "undone. Examples: chirp-migrate apply --diff backend/ | less    "
        "chirp-migrate apply backend/    chirp-migrate apply --unsafe --vendor backend/"
    )
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--diff", "show_diff", is_flag=True, help="Print a unified diff of everything and write nothing.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Write the findings as JSON ('-': standard output).",
)
@click.option("--unsafe", is_flag=True, help="Also apply rules that change what training learns (listed as opt-in).")
@click.option("--allow-dirty", is_flag=True, help="Proceed over uncommitted changes in a git work tree.")
@click.option(
    "--no-scaffold",
    is_flag=True,
    help="Do not add the factory and monitor modules, the notebook and the tests.",
)
@click.option("--vendor", is_flag=True, help="Copy chirpid_patch into the backend instead of adding a dependency.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def apply(
    path: Path,
    show_diff: bool,
    json_file: Path | None,
    unsafe: bool,
    allow_dirty: bool,
    no_scaffold: bool,
    vendor: bool,
    color: str,
) -> None:
    """Rewrite the backend at PATH to worker-safe datasets and the loader factory.

    Reads and rewrites source; the backend's code is never imported or run. Every change can be undone to the byte
    with `chirp-migrate rollback PATH`.
    """
    json_output.check_writable(json_file)
    if show_diff and json_file == json_output.STANDARD_OUTPUT:
        raise UsageProblem("--diff and --json - both print to standard output: give --json a file.")
    paint = summary.Paint.for_stream(sys.stdout, color)
    if path.exists():
        _recover(path, may_write=not show_diff)
    with planning_progress() as progress:
        migration = plan_migration(path, unsafe=unsafe, scaffold=not no_scaffold, vendor=vendor, progress=progress)
    plan = migration.plan
    if show_diff:
        json_output.write(json_file, summary.as_json(migration, ()))
        for line in unified_diff(plan):
            sys.stdout.buffer.write(paint.diff_line(line).encode("utf-8", errors="surrogateescape"))
        sys.stdout.flush()
        click.echo(summary.totals(plan), err=True)
        sys.exit(INCOMPLETE if plan.skipped else 0)
    touched = [file.path for file in plan.files if file.before is not None]
    if not allow_dirty:
        guard(plan.root, touched)
    left: tuple[Skipped, ...] = ()
    if plan.files:
        result = commit(plan)
        left = result.skipped
    json_output.write(json_file, summary.as_json(migration, left))
    click.echo(summary.applied(migration, left, path, paint), nl=False, err=json_file == json_output.STANDARD_OUTPUT)
    sys.exit(INCOMPLETE if plan.skipped or left else 0)


def _recover(path: Path, *, may_write: bool) -> None:
    root = root_of(path)
    if not may_write:
        if any(run.state is not State.APPLIED for run in read_runs(root)):
            raise Refused(f"an earlier run was interrupted here: run `chirp-migrate rollback {path}` first.")
        return
    found = recover(root)
    if found is not None:
        click.echo(found, err=True)
