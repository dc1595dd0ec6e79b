"""``chirp-migrate apply PATH``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from chirp_migrate.cli import json_file as json_output
from chirp_migrate.cli import summary
from chirp_migrate.cli.paint import Paint
from chirp_migrate.cli.progress import planning_progress
from chirp_migrate.cli.rules import complete_rules, separated
from chirp_migrate.commit import commit, recover
from chirp_migrate.diff import unified_diff
from chirp_migrate.discover import root_of
from chirp_migrate.errors import Refused, UsageProblem
from chirp_migrate.gitguard import guard
from chirp_migrate.journal import read_runs
from chirp_migrate.migration import plan_migration
from chirp_migrate.plan import Skipped
from chirp_migrate.record import State
from chirp_migrate.settings import read_settings

#: Something was left undone that the user should look at.
INCOMPLETE = 1


@click.command(
    epilog=(
        "Exit codes: 0 done, or nothing to do; 1 done, but some files left out (listed); 2 PATH cannot be migrated, "
        "or an option or setting is wrong; "
        "3 refused, nothing changed (uncommitted changes, a file changed meanwhile, another run); 4 failed midway and "
        "undone. Examples: chirp-migrate apply --diff backend/ | less    "
        "chirp-migrate apply backend/    chirp-migrate apply --unsafe --vendor backend/    "
        "chirp-migrate apply --select CHP001,lambda-in-loader backend/    "
        "chirp-migrate apply --ignore CHP01 --no-notebooks backend/"
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
@click.option(
    "--select",
    multiple=True,
    metavar="CODES",
    callback=separated,
    shell_complete=complete_rules,
    help="Run only these rules: codes, beginnings of codes or names, with commas (see `rules`).",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODES",
    callback=separated,
    shell_complete=complete_rules,
    help="Do not run these rules.",
)
@click.option(
    "--unsafe/--no-unsafe",
    default=None,
    help="Also apply rules that change what training learns (listed as opt-in).",
)
@click.option("--notebooks/--no-notebooks", default=None, help="Look at notebooks, too (the default), or leave them.")
@click.option("--allow-dirty", is_flag=True, help="Proceed over uncommitted changes in a git work tree.")
@click.option(
    "--no-scaffold",
    is_flag=True,
    help="Do not add the factory and monitor modules, the notebook and the tests.",
)
@click.option("--vendor", is_flag=True, help="Copy chirpid_patch into the backend instead of adding a dependency.")
@click.option("-j", "--jobs", type=click.IntRange(1), help="Processes that plan (default: as many as pay).")
@click.option("-v", "--verbose", is_flag=True, help="List every finding, and what comments or settings suppress.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def apply(
    path: Path,
    show_diff: bool,
    json_file: Path | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    unsafe: bool | None,
    notebooks: bool | None,
    allow_dirty: bool,
    no_scaffold: bool,
    vendor: bool,
    jobs: int | None,
    verbose: bool,
    color: str,
) -> None:
    """Rewrite the backend at PATH to worker-safe datasets and the loader factory.

    Reads and rewrites source; the backend's code is never imported or run. Every change can be undone to the byte
    with `chirp-migrate rollback PATH`. Settings are read from [tool.chirp-migrate] in the backend's pyproject.toml;
    options here go before them. A comment `# chirp: ignore[CODE]` leaves a line alone.
    """
    json_output.check_writable(json_file)
    if show_diff and json_file == json_output.STANDARD_OUTPUT:
        raise UsageProblem("--diff and --json - both print to standard output: give --json a file.")
    paint = Paint.for_stream(sys.stdout, color)
    settings = read_settings(path).overridden(select=select, ignore=ignore, unsafe=unsafe, notebooks=notebooks)
    if path.exists():
        _recover(path, may_write=not show_diff)
    with planning_progress() as progress:
        migration = plan_migration(
            path, settings=settings, scaffold=not no_scaffold, vendor=vendor, jobs=jobs, progress=progress
        )
    plan = migration.plan
    if show_diff:
        json_output.write(json_file, summary.as_json(migration, ()))
        # Behind the diff, as comments that `patch` and `git apply` pass over.
        remarks = (
            f"# {line}".rstrip() + "\n" for line in summary.remarks(migration, (), Paint(False), verbose=verbose)
        )
        for line in (*unified_diff(plan), *remarks):
            sys.stdout.buffer.write(paint.diff_line(line).encode("utf-8", errors="surrogateescape"))
        sys.stdout.flush()
        click.echo("\n".join([summary.totals(plan), *summary.account(migration, (), planned=True)]), err=True)
        sys.exit(INCOMPLETE if plan.skipped else 0)
    touched = [file.path for file in plan.files if file.before is not None]
    if not allow_dirty:
        guard(plan.root, touched)
    left: tuple[Skipped, ...] = ()
    if plan.files:
        result = commit(plan)
        left = result.skipped
    json_output.write(json_file, summary.as_json(migration, left))
    report = summary.applied(migration, left, path, paint, verbose=verbose)
    click.echo(report, nl=False, err=json_file == json_output.STANDARD_OUTPUT, color=paint.on)
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
