"""``chirp-migrate rollback PATH``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import click

from chirp_migrate.cli.options import (
    CommandWithOptionGroups,
    WholeNumber,
    option,
    output_options,
    path_argument,
)
from chirp_migrate.console.output import Output
from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import format_time, shorten_list
from chirp_migrate.engine.discover import journal_root
from chirp_migrate.errors import UsageProblem
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.transaction.journal import JournalRun, applied_runs, read_runs
from chirp_migrate.transaction.journal_schema import RunState
from chirp_migrate.transaction.recovery import recover
from chirp_migrate.transaction.rollback import RollbackResult, later_runs_on_same_files, nothing_applied_error
from chirp_migrate.transaction.rollback import rollback as roll_back

#: Largest number of files that ``--list`` prints for each run. The JSON document contains all files.
_FILES_SHOWN = 4

_UNFINISHED = {
    RunState.PENDING: "not finished (still being applied, or interrupted)",
    RunState.ROLLING_BACK: "not finished (still being rolled back, or interrupted)",
}


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {
            ExitCode.OK: "everything is as before the run",
            ExitCode.USAGE: "nothing was applied at PATH, or no such run",
            ExitCode.REFUSED: "refused, nothing changed: files were edited since the run (with --merge: in the same "
            "lines), a later run changed the same files, or another run is active",
            ExitCode.UNDONE: "failed midway, and all changes were undone",
        },
        "chirp-migrate rollback project/",
        "chirp-migrate rollback --list project/",
        "chirp-migrate rollback --run 2 project/",
        "chirp-migrate rollback --merge project/",
    ),
)
@path_argument
@option("--list", "show_list", is_flag=True, help="List the applied runs and change nothing.")
@option("--run", "number", type=WholeNumber(1), metavar="N", help="Undo run N.  [default: the last run]")
@option(
    "--merge", is_flag=True, help="Keep edits made since the run, such as a formatter's, with git's three-way merge."
)
@option("--force", is_flag=True, help="Also restore files that were edited since the run. The edits are lost.")
@output_options(
    "the restored and removed files, or the list of runs,",
    "Print only the last line, which names the undone run.",
    "With --list, print all files of each run.",
)
def rollback(
    path: Path,
    show_list: bool,
    number: int | None,
    merge: bool,
    force: bool,
    output: Output,
) -> None:
    """Undo the last run of `apply` at PATH: restore every byte and mode bit, and remove added files.

    With --run N, the command undoes run N instead. If an `apply` or `rollback` was interrupted, the command only undoes
    the interrupted `apply`, or finishes the interrupted `rollback`. To also undo another run, pass its number to --run.
    """
    if show_list and number is not None:
        raise UsageProblem("--list undoes no run: pass only one of --list and --run.")
    if merge and force:
        raise UsageProblem("--merge keeps later edits and --force loses them: pass only one of them.")
    named = number is not None
    root = journal_root(path)
    screen = output.screen()
    if show_list:
        runs = read_runs(root)
        output.write({"schema": 1, "runs": [_run_as_json(run, runs) for run in runs]})
        if not runs:
            raise nothing_applied_error(root)
        for run in runs:
            _show_run(run, runs, screen)
        return
    with output.progress("locking the journal") as step:
        interrupted = recover(root, force=force, on_step=step)
        if interrupted is not None:
            # Recovery has undone or finished the interrupted run. Undo a further run only if --run names the further
            # run. If --run names the interrupted run, nothing is left to undo.
            number = number if number in {run.number for run in applied_runs(root)} else None
        result = None
        if interrupted is None or number is not None:
            result = roll_back(root, run=number, force=force, merge=merge, on_step=step)
    found = {"restored": (), "removed": (), "merged": (), "run": None} if result is None else asdict(result)
    output.write({"schema": 1, "interrupted": interrupted, **found})
    lines = [interrupted] if interrupted is not None else []
    if result is not None and not output.quiet:
        lines += [f"restored  {name}" for name in result.restored]
        lines += [f"removed   {name}" for name in result.removed]
        lines += [f"merged    {name} (later edits kept)" for name in result.merged]
    if result is not None:
        lines.append(_describe_result(path, root, result, named=named))
    for line in lines:
        screen.line(line)


def _describe_result(path: Path, root: Path, result: RollbackResult, *, named: bool) -> str:
    if not named:
        kept = ", except for the later edits" if result.merged else ""
        return f"{path} is as it was before run {result.run}{kept}."
    still_applied = ", ".join(run.name for run in applied_runs(root))
    return f"Undone: run {result.run}. " + (
        f"Still applied: {still_applied}." if still_applied else "No applied run is left."
    )


def _run_as_json(run: JournalRun, runs: Iterable[JournalRun]) -> dict[str, object]:
    return {
        "run": run.number,
        "created": run.created,
        "tool": run.record.tool,
        "state": run.state.value,
        "files": [{"path": file.path, "created": file.before is None} for file in run.files],
        "undo_first": [int(name) for name in later_runs_on_same_files(run, runs)],
    }


def _show_run(run: JournalRun, runs: Iterable[JournalRun], screen: Screen) -> None:
    added = sum(file.before is None for file in run.files)
    counts = f"{len(run.files) - added} rewritten, {added} added"
    state = f"  {_UNFINISHED[run.state]}" if run.state in _UNFINISHED else ""
    of = f"{format_time(run.created)}, chirp-migrate {run.record.tool}"
    screen.text(f"Run {run.name} of {of}: {counts}{state}", hang=6)
    screen.text(shorten_list((file.path for file in run.files), None if screen.verbose else _FILES_SHOWN), 6)
    if later := later_runs_on_same_files(run, runs):
        screen.text(f"changed again by run {', '.join(later)}: undo that run first", 6)
