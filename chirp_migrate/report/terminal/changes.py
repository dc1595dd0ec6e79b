"""Print the changes of a run or a plan: the loaders, the rules with their reasons, and every hunk.

Lines of code are printed as a unified diff. On a wide screen, the lines before and after the change are next to each
other. A line that is too long continues on the next line, which has no number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Literal

from chirp_migrate.console.screen import Screen, diff_style
from chirp_migrate.console.text import format_time, pluralize, to_one_line
from chirp_migrate.plans.plan import Finding, Safety
from chirp_migrate.report.contents import FileDetails, FindingDetails, HunkDetails, RunDetails, group_by_file
from chirp_migrate.report.hunks import ChangeRow, ChangeSection, side_by_side
from chirp_migrate.report.wording import HUNK_KINDS, NOTES, finding_count_rows, ledger_sentences
from chirp_migrate.rules import all_rules

#: Smallest width of the screen at which the lines before and after a change are next to each other.
_SIDE_BY_SIDE = 160


def show_run(run: RunDetails, screen: Screen) -> None:
    """Print all data of one run."""
    screen.title(f"Run {run.number} of apply")
    created = sum(file.action == "create" for file in run.files)
    rewritten = len(run.files) - created
    screen.text(
        f"Applied {format_time(run.created)} by {run.tool}: {pluralize(rewritten, 'file')} rewritten, {created} added; "
        f"+{sum(file.added for file in run.files)} -{sum(file.removed for file in run.files)} lines."
    )
    for note in run.notes:
        screen.text(note)
    if run.ledger is None:
        screen.text("The journal lacks the plan of this run, so its rules and reasons are not shown.")
    for sentence in () if run.ledger is None else ledger_sentences(run.ledger):
        screen.text(sentence, hang=2)
    _show_rules(run, screen)
    for file in run.files:
        if file.action != "create":
            _show_file(file, screen)
    _show_added_files([file for file in run.files if file.action == "create"], screen)
    _show_reports(run.reported, screen)
    for title, skipped in (("Not handled", run.skipped), ("Left out on purpose", run.left_out)):
        if skipped:
            screen.heading(title)
        for one in skipped:
            screen.item(f"{one.path}:", one.reason)


def _show_rules(run: RunDetails, screen: Screen) -> None:
    """Print each rule that has findings, with the outcomes of the findings and the reason for the rule."""
    if run.findings:
        screen.heading("Rules, and why they exist")
    safeties = {rule.code: rule.safety for rule in all_rules()}
    for code, of_rule in groupby(
        sorted(run.findings, key=lambda one: one.finding.rule), key=lambda one: one.finding.rule
    ):
        members = list(of_rule)
        first = members[0].finding
        counts = Counter(member.finding.status for member in members)
        what = ", ".join(f"{number} {word}" for _, word, number in finding_count_rows(counts))
        safety = safeties.get(code, first.safety)  # the safety of a single finding may be "advice"
        screen.item(code, f"{first.name}, {safety.value}: {what}", style="cyan")
        screen.text(next((member.reason for member in members if member.reason), ""), 4 + len(to_one_line(code)), "dim")


def _show_file(file: FileDetails, screen: Screen) -> None:
    screen.line()
    screen.line("-" * screen.width, "dim")
    screen.text(file.path, style="bold")
    since = "; edited since, shown without these edits" if file.edited_since else ""
    screen.text(f"{NOTES.get(file.note, file.note)}: +{file.added} -{file.removed} lines{since}", 2)
    hunks = sum(hunk.kind == "rewrite" for hunk in file.hunks)
    for hunk in file.hunks:
        name = HUNK_KINDS.get(hunk.kind, f"hunk {hunk.number} of {hunks}")
        _show_hunk(hunk, f"{file.path}, {name}", screen)


def _show_hunk(hunk: HunkDetails, name: str, screen: Screen) -> None:
    screen.heading(name)
    for one in hunk.findings:
        _show_finding(one.finding, screen)
    for line in hunk.imports:
        screen.text(f"needs: {line}", 2, "dim")
    for number, section in enumerate(hunk.sections):
        if number:
            screen.line("...", "dim")
        places = [f"cell {section.cell}" if section.cell is not None else "", section.within and f"in {section.within}"]
        if any(places):
            screen.text(", ".join(filter(None, places)), 2, "dim")
        _show_section(section, screen)


def _show_section(section: ChangeSection, screen: Screen) -> None:
    """Print the lines of one section of a hunk."""
    numbers = [number for row in section.rows for number in (row.before, row.after) if number is not None]
    digits = len(str(max(numbers, default=0)))
    if screen.width < _SIDE_BY_SIDE:
        rows = [[(_number(row.before), ""), *_half_row(row, "after")] for row in section.rows]
        screen.diff(rows, (digits, digits, 1, None))
        return
    beside = [
        [*_half_row(before, "before"), ("|", "dim"), *_half_row(after, "after")]
        for before, after in side_by_side(section.rows)
    ]
    screen.diff(beside, (digits, 1, None, 1, digits, 1, None))


def _half_row(row: ChangeRow | None, side: Literal["before", "after"]) -> list[tuple[str, str]]:
    """Return number, sign and text of a line, each with its style. If ``row`` is None, all texts are empty."""
    if row is None:
        return [("", ""), ("", ""), ("", "")]
    style = diff_style(row.sign)
    return [(_number(row.before if side == "before" else row.after), style), (row.sign, style), (row.text, style)]


def _number(number: int | None) -> str:
    return "" if number is None else str(number)


def _show_finding(finding: Finding, screen: Screen, places: str | None = None) -> None:
    """Print rule, line and message of a finding."""
    safety = "" if finding.safety is Safety.SAFE else f" ({finding.safety.value})"
    place = places or (f"line {finding.line}" if finding.cell is None else finding.place)
    screen.item(finding.rule, f"{finding.name}, {place}{safety}: {finding.message_with_gain}", style="cyan")


def _show_added_files(files: list[FileDetails], screen: Screen) -> None:
    """Print the names of added files, without their contents."""
    if not files:
        return
    screen.heading("Added files")
    for note, of_note in groupby(sorted(files, key=lambda one: (one.note, one.path)), key=lambda one: one.note):
        # A journal without a plan has no reason for an added file.
        screen.text("added" if note == "rewrite" else NOTES.get(note, note), 2)
        for file in of_note:
            since = ", edited since" if file.edited_since else ""
            screen.item("+", f"{file.path} ({pluralize(file.added, 'line')}{since})", indent=4)


def _show_reports(stories: Iterable[FindingDetails], screen: Screen) -> None:
    """Print the findings that were not rewritten, by title and file. Findings with equal messages share an item."""
    for title, files in group_by_file(stories):
        screen.heading(title)
        for path, kinds in files:
            screen.text(path, 2, "bold")
            for first, *more in kinds:
                where = ", ".join(one.finding.place for one in (first, *more))
                noun = "" if first.finding.cell is not None else "lines " if more else "line "
                _show_finding(first.finding, screen, f"{noun}{where}")
                if first.source:
                    screen.text(f"> {first.source.strip()}", 10, "dim")
