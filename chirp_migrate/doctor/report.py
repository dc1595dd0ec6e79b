"""Print the result of ``doctor``. Problem, evidence and fix are on separate lines."""

from __future__ import annotations

from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import as_sentence, pluralize
from chirp_migrate.doctor.doctor_report import DoctorReport, Problem, WatchedEntryPoint


def show_doctor_report(report: DoctorReport, screen: Screen) -> None:
    """Print the report: problems, notes, failed entry points (training functions or scripts) and a summary.

    If ``screen.quiet`` is True, the function prints only the problems. If ``screen.verbose`` is True, the function also
    prints how many loaders and batches of each entry point were recorded.
    """
    several = len(report.entry_points) > 1
    for problem in report.problems:
        _show_problem(problem, screen, several)
    if screen.quiet:
        return
    screen.line()
    for note in report.notes:
        screen.text(as_sentence(note), hang=2)
    for one in report.entry_points:
        if one.error or screen.verbose:
            screen.text(_describe_entry_point(one), hang=2)
    screen.text(problem_summary(report), style="bold", hang=2)


def _show_problem(problem: Problem, screen: Screen, several: bool) -> None:
    """Print a problem. With ``-v`` and ``several`` entry points, also print the entry points with this problem."""
    place = f"{problem.path}:{problem.line}: " if problem.path else ""
    screen.line()
    screen.text(f"{place}{problem.message} [{problem.check}]", style="bold", hang=2)
    screen.text(problem.evidence, 2, first="Seen: ")
    screen.text(problem.fix, 2, first="Fix:  ")
    if several and screen.verbose:
        screen.text(", ".join(problem.entry_points), 2, "dim", first="In:   ")


def _describe_entry_point(one: WatchedEntryPoint) -> str:
    if one.error:
        return f"{one.label} failed after {one.seconds:.1f} s: {one.error}"
    seen = f"{pluralize(one.loaders, 'loader')}, {pluralize(one.batches, 'batch')}"
    return f"{one.label}: {seen} in {one.seconds:.1f} s"


def problem_summary(report: DoctorReport) -> str:
    """Return a sentence with the number of problems, and the numbers of entry points that ran and that failed."""
    failed = sum(bool(one.error) for one in report.entry_points)
    ran = pluralize(len(report.entry_points), "entry point")
    found = pluralize(len(report.problems), "problem") if report.problems else "no problems"
    return f"Doctor: {found} in {ran}{f' ({failed} failed)' if failed else ''}."
