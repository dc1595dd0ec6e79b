"""What a run of ``apply`` changed, or a plan would: the account, the rules with their reasons, and every hunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import count, plain
from chirp_migrate.plans.plan import Finding, Safety, Status
from chirp_migrate.report.story import FileStory, FindingStory, HunkStory, RunStory
from chirp_migrate.report.terminal.diff import show_section
from chirp_migrate.report.terminal.verdict import when
from chirp_migrate.review.account import Ledger

__all__ = ["show_run"]

#: Why a file is written, as people are told.
_NOTES = {
    "rewrite": "rewritten by rules",
    "ignore": "comments that leave findings alone",
    "scaffold": "added: what the migrated project is measured and tested with",
    "dependency": "the dependency on the runtime",
    "vendor": "added: the runtime itself",
}
#: What a change is called that is not a hunk with a number.
_KINDS = {
    "follows": "what follows from its hunks: imports that they need, and what they left unused",
    "file": "the file as a whole",
    "unknown": "which rules did this is not recorded",
}
_DONE = {
    Status.REWRITE: "rewritten",
    Status.OPT_IN: "proposed",
    Status.REPORT: "reported",
    Status.SUPPRESSED: "suppressed",
    Status.REFUSED: "refused",
    Status.FINE: "fine",
}


def show_run(run: RunStory, screen: Screen) -> None:
    """Everything about one run."""
    screen.title(_title(run))
    by = f" by {run.tool}" if run.tool else ""
    made = "Made" if run.number is None else f"Applied {when(run.created)}"
    created = sum(file.action == "create" for file in run.files)
    rewritten = len(run.files) - created
    would = "would be " if run.number is None else ""
    screen.text(
        f"{made}{by}: {count(rewritten, 'file')} {would}rewritten, {created} added; "
        f"+{sum(file.added for file in run.files)} -{sum(file.removed for file in run.files)} lines."
    )
    for note in run.notes:
        screen.text(note)
    _account(run.ledger, screen, planned=run.number is None)
    _rules(run, screen)
    for file in run.files:
        if file.action != "create":
            _file(file, screen)
    _added([file for file in run.files if file.action == "create"], screen, planned=run.number is None)
    _reported(run.reported, screen)
    for title, skipped in (("Not handled", run.skipped), ("Not looked at, on purpose", run.left_out)):
        if skipped:
            screen.heading(title)
        for one in skipped:
            screen.item(f"{one.path}:", one.reason)


def _title(run: RunStory) -> str:
    return "The plan" if run.number is None else f"Run {run.number} of apply"


def _account(ledger: Ledger | None, screen: Screen, *, planned: bool) -> None:
    """What became of every loader that was found."""
    if ledger is None:
        screen.text("The account of this run was not kept: an earlier version of chirp-migrate made it.")
        return
    if ledger.counting:
        screen.heading("What became of the loaders")
        names = {
            Status.REWRITE: "to migrate" if planned else "migrated",
            Status.FINE: "already fine",
            Status.SUPPRESSED: "suppressed",
            Status.OPT_IN: "proposed, not applied",
            Status.REFUSED: "refused in a review",
            Status.REPORT: "listed, not migrated",
        }
        rows = [["found", str(ledger.found)]]
        rows += [[f"  {name}", str(ledger.sites[status])] for status, name in names.items() if ledger.sites.get(status)]
        screen.table(["", "loaders"], rows)
        if set(ledger.reasons) - {"other"}:
            reasons = ", ".join(f"{number} {why}" for why, number in ledger.reasons.items())
            screen.text(f"The listed ones: {reasons}.", 2)
    if ledger.unread:
        were = "is" if ledger.unread == 1 else "are"
        screen.text(f"{count(ledger.unread, 'file')} could not be handled and {were} not counted.", 2)


def _rules(run: RunStory, screen: Screen) -> None:
    """The rules that had something to say: what they did, and why."""
    stories = [*(one for file in run.files for hunk in file.hunks for one in hunk.findings), *run.reported]
    if stories:
        screen.heading("Rules, and why they exist")
    for code, of_rule in groupby(sorted(stories, key=lambda one: one.finding.rule), key=lambda one: one.finding.rule):
        members = list(of_rule)
        first = members[0].finding
        counts = Counter(one.finding.status for one in members)
        done = ", ".join(f"{counts[status]} {word}" for status, word in _DONE.items() if counts[status])
        screen.item(code, f"{first.name}, {first.safety.value}: {done}", style="cyan")
        screen.text(next((one.reason for one in members if one.reason), ""), 4 + len(plain(code)), "dim")


def _file(file: FileStory, screen: Screen) -> None:
    screen.line()
    screen.line("-" * screen.width, "dim")
    screen.text(file.path, style="bold")
    since = "; edited since, shown as the run left it" if file.edited_since else ""
    screen.text(f"{_NOTES.get(file.note, file.note)}: +{file.added} -{file.removed} lines{since}", 2)
    hunks = sum(hunk.kind == "rewrite" for hunk in file.hunks)
    for hunk in file.hunks:
        name = _KINDS.get(hunk.kind, f"hunk {hunk.number} of {hunks}")
        _hunk(hunk, f"{file.path}, {name}", screen)


def _hunk(hunk: HunkStory, name: str, screen: Screen) -> None:
    marks = [hunk.decision or "", "edited in a review" if hunk.edited else ""]
    screen.heading(", ".join([name, *filter(None, marks)]))
    for one in hunk.findings:
        _finding(one.finding, screen)
    for line in hunk.imports:
        screen.text(f"needs: {line}", 2, "dim")
    for number, section in enumerate(hunk.sections):
        if number:
            screen.line("...", "dim")
        places = [f"cell {section.cell}" if section.cell is not None else "", section.within and f"in {section.within}"]
        if any(places):
            screen.text(", ".join(filter(None, places)), 2, "dim")
        show_section(section, screen)


def _finding(finding: Finding, screen: Screen, places: str | None = None) -> None:
    """Rule, place and message of what was found."""
    safety = "" if finding.safety is Safety.SAFE else f" ({finding.safety.value})"
    place = places or (f"line {finding.line}" if finding.cell is None else finding.place)
    screen.item(finding.rule, f"{finding.name}, {place}{safety}: {finding.message}", style="cyan")


def _added(files: list[FileStory], screen: Screen, *, planned: bool) -> None:
    """Files that are added are not shown line by line: they are new, and can be read where they are."""
    if not files:
        return
    screen.heading("Files to add" if planned else "Added files")
    for note, of_note in groupby(sorted(files, key=lambda one: (one.note, one.path)), key=lambda one: one.note):
        # An earlier version's journal does not say why it added a file.
        screen.text("added" if note == "rewrite" else _NOTES.get(note, note), 2)
        for file in of_note:
            since = ", edited since" if file.edited_since else ""
            screen.item("+", f"{file.path} ({count(file.added, 'line')}{since})", indent=4)


def _reported(stories: Iterable[FindingStory], screen: Screen) -> None:
    """What was seen and not rewritten, by what it is and by file; the same message of several lines once."""
    titles = {
        "Proposed, not applied: these change what training learns (--unsafe applies them)": Status.OPT_IN,
        "Refused in a review": Status.REFUSED,
        "Reported, left alone": Status.REPORT,
        "Suppressed by a comment or a setting": Status.SUPPRESSED,
    }
    for title, status in titles.items():
        of_status = [one for one in stories if one.finding.status is status]
        if of_status:
            screen.heading(title)
        for path, of_file in groupby(of_status, key=lambda one: one.finding.path):
            screen.text(path, 2, "bold")
            kinds: dict[tuple[str, str], list[FindingStory]] = {}
            for one in of_file:
                kinds.setdefault((one.finding.rule, one.finding.message), []).append(one)
            for first, *more in kinds.values():
                where = ", ".join(one.finding.place for one in (first, *more))
                noun = "" if first.finding.cell is not None else "lines " if more else "line "
                _finding(first.finding, screen, f"{noun}{where}")
                if first.source:
                    screen.text(f"> {first.source.strip()}", 10, "dim")
