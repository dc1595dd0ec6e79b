"""Print a report on a terminal, as ``verify``, ``doctor`` and ``apply`` print their results."""

from __future__ import annotations

from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import format_time
from chirp_migrate.doctor.report import show_doctor_report
from chirp_migrate.report.contents import ReportContents, RunDetails
from chirp_migrate.report.terminal.applied import show_loader_counts, show_notes, show_written_files
from chirp_migrate.report.terminal.summary import show_verify_report
from chirp_migrate.source.diff import unified_diff


def show_report(contents: ReportContents, screen: Screen) -> None:
    """Print a report.

    With ``-q``, print only the heading, the notices and the verdict. With ``-v``, also print all measurements and
    diffs.
    """
    screen.text(f"Migration of {contents.name}", style="bold")
    for notice in contents.notices:
        screen.item("!", notice, indent=0, style="bold yellow")
    screen.line()
    if contents.verdict is not None:
        show_verify_report(contents.verdict, screen)
    else:
        screen.text(
            "Verdict: none yet. `chirp-migrate verify` trains the versions before and after the migration, and shows "
            "whether training is faster and unchanged."
        )
    if screen.quiet:
        return
    if contents.doctor is not None:
        show_doctor_report(contents.doctor, screen)
    for run in contents.runs:
        _show_run(run, screen)


def _show_run(run: RunDetails, screen: Screen) -> None:
    screen.heading(f"Run {run.number} of apply, {format_time(run.created)}, by {run.tool}:")
    show_written_files(run.plan, run.plan.files, screen)
    show_notes(run.plan, screen)
    if run.has_plan:
        show_loader_counts(run.plan, screen)
    if screen.verbose:
        screen.line()
        for line in unified_diff(run.plan):
            screen.diff_line(line)
