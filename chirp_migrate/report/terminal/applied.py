"""Print what ``apply`` changed, or what ``plan`` would change. ``report`` prints the changes in the same way."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import pluralize, shorten_list
from chirp_migrate.plans.plan import FilePlan, Finding, FindingStatus, GainKind, Plan, Safety
from chirp_migrate.report.file_lines import update_finding_lines
from chirp_migrate.report.wording import (
    ADVICE,
    NOTES,
    SUPPRESSED,
    UNCHANGED,
    finding_count_rows,
    group_unrewritten_findings,
    ledger_sentences,
    unchanged_loader_sentences,
)
from chirp_migrate.review.loader_account import LoaderLedger
from chirp_migrate.rules import all_rules
from chirp_migrate.source.diff import count_changes
from chirp_migrate.transaction.commit import CommitResult

#: Short names of gains, for table cells that list several gains.
_SHORT = {
    GainKind.BATCHED: "batched",
    GainKind.AT_RUN_TIME: "at run time",
    GainKind.PICKLABLE: "picklable",
    GainKind.PINNED: "pinned",
    GainKind.NOTHING: "nothing",
}
#: Reasons for the exclusion of files that users may not expect. ``apply`` prints the files that are excluded for one of
#: these reasons.
_TELLING = re.compile(
    "stored outputs|vendored|larger than|cannot be listed|outside the folder|missing target|not a regular"
)
#: Pattern of the end of the first clause of a message. Users can understand the first clause without the rest.
_CLAUSE_END = re.compile(r"; |\. |, (?:so|and|but|because) ")
_NOTHING = "Nothing to do: already migrated, or no rule applies here."
_NO_GAIN = "Nothing to rewrite: no loader here gains from a migration. No file was changed, and none was added."
#: Lines that ``apply`` prints if no rule finds anything.
_NOTHING_FOUND = (
    "No file was changed, and no file or dependency was added.",
    "List of the rules: chirp-migrate rules",
)


def change_totals_line(plan: Plan) -> str:
    """Return one line with the number of files and lines that a plan changes."""
    return (
        f"{_count_files(plan.files, ' to rewrite', ' to add')} Nothing was written."
        if plan.files
        else _message_without_changes(plan)
    )


def _message_without_changes(plan: Plan) -> str:
    if plan.files:
        return "Nothing was rewritten."
    if all(finding.status is FindingStatus.FINE for finding in plan.findings):
        return _NOTHING
    if has_no_loader_gain(plan):
        return _NO_GAIN
    return f"Nothing to rewrite. Found: {_count_by_status(plan.findings)}."


def has_no_loader_gain(plan: Plan) -> bool:
    """Return whether a plan changes no file, and has loaders that would gain nothing from a rewrite."""
    return not plan.files and any(finding.status is FindingStatus.UNCHANGED for finding in plan.findings)


def _count_files(files: Sequence[FilePlan], rewritten: str, created: str) -> str:
    added, removed = map(sum, zip(*(count_changes(file) for file in files), strict=True))
    new = sum(file.before is None for file in files)
    return f"{pluralize(len(files) - new, 'file')}{rewritten}, {new}{created}: +{added} -{removed} lines."


def show_planned_changes(plan: Plan, screen: Screen) -> None:
    """Print the changes of a plan that is not applied."""
    if screen.quiet:
        _show_quiet_output(plan, screen)
        return
    _show_files(plan.files, plan.findings, screen)
    show_unrewritten_findings(plan, screen)
    screen.line()
    screen.text(change_totals_line(plan))
    show_notes(plan, screen)
    show_loader_counts(plan, screen, planned=True)


def show_applied_changes(
    plan: Plan, result: CommitResult, path: Path, screen: Screen, next_commands: Sequence[str] = ()
) -> None:
    """Print the result of ``apply``.

    Args:
        plan: the plan that was applied.
        result: the files that were written.
        path: folder of the project.
        screen: the terminal.
        next_commands: lines that explain the next steps.
    """
    if screen.quiet:
        _show_quiet_output(plan, screen)
        return
    done = result.applied
    show_written_files(plan, done, screen)
    is_empty = not (done or plan.findings or plan.skipped)
    for line in _NOTHING_FOUND if is_empty else ():
        screen.text(line)
    if result.found is not None:
        screen.text(result.found)
    for name in result.linked:
        screen.text(f"Other hard links to {name} keep the old content.", hang=2)
    show_notes(plan, screen)
    if not is_empty:
        show_loader_counts(plan, screen)
    if done:
        for line in next_commands:
            screen.line(line)
        screen.line(f"To undo the run byte for byte: chirp-migrate rollback {shlex.quote(str(path))}")


def show_written_files(plan: Plan, files: Sequence[FilePlan], screen: Screen) -> None:
    """Print the files that ``apply`` wrote, and the findings that were not rewritten, with their new line numbers.

    Args:
        plan: the plan of the run.
        files: the files that were written.
        screen: the terminal.
    """
    plan = replace(plan, findings=tuple(update_finding_lines(files, plan.findings)))
    _show_files(files, plan.findings, screen)
    show_unrewritten_findings(plan, screen)
    screen.line()
    screen.text(_count_files(files, " rewritten", " added") if files else _message_without_changes(plan))


def _show_files(files: Iterable[FilePlan], findings: Sequence[Finding], screen: Screen) -> None:
    """Print the changed files, with the rules that changed each file."""
    rewrites: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.status is FindingStatus.REWRITE:
            rewrites.setdefault(finding.path, []).append(finding)
    rows: list[list[str]] = []
    created: dict[str, list[str]] = {}
    for file in files:
        note = NOTES.get(file.note, file.note)
        if screen.verbose:
            added, removed = count_changes(file)
            screen.item(file.path, f"{note}, +{added} -{removed}", indent=0, style="bold")
            _show_findings(rewrites.get(file.path, []), screen)
        elif file.before is None:
            created.setdefault(note, []).append(file.path)
        else:
            by_rule = _group_by_rule(rewrites.get(file.path, []))
            named = [[_rule_or_gain(same), _list_places(same, 2)] for same in by_rule] or [[note, ""]]
            rows += [[file.path if number == 0 else "", *one] for number, one in enumerate(named)]
    if rows:
        screen.table(("file", "rule", "at"), rows, left=(0, 1, 2), indent=0)
    for note, paths in created.items():
        screen.text(f"{note}: {', '.join(paths)}", hang=2)


def _show_quiet_output(plan: Plan, screen: Screen) -> None:
    """Print the output of ``--quiet``: notes for the user, and files that could not be processed or written."""
    for one in plan.skipped:
        screen.line(f"{one.path}: {one.reason}")
    show_notes(plan, screen)


def show_unrewritten_findings(plan: Plan, screen: Screen) -> None:
    """Print the findings that were not rewritten, by rule and file, with the reasons."""
    # These rules change training. Rules that find likely bugs are not included, because likely bugs are always shown.
    behaviour = {rule.code for rule in all_rules() if rule.safety is Safety.BEHAVIOUR and not rule.finds_bugs}
    # If a rule in `behaviour` rewrote nothing, print only the number of its findings. With -v, print the findings, too.
    unasked = behaviour - {f.rule for f in plan.findings if f.status is FindingStatus.REWRITE}
    curious = {rule.code for rule in all_rules() if rule.verbose_only}
    stopping = {rule.code for rule in all_rules() if rule.stops_workers}
    hidden: list[Finding] = []
    unchanged = list(unchanged_loader_sentences(plan.findings, None if screen.verbose else 4))
    if unchanged:
        screen.heading("Unchanged:")
    for sentence in unchanged:
        screen.text(sentence, 2)
    sites = {rule.code for rule in all_rules() if rule.counts_sites}
    for title, seen in group_unrewritten_findings(plan.findings, lambda finding: finding):
        findings = [
            f
            for f in seen
            if screen.verbose
            or (title == ADVICE and has_no_loader_gain(plan))
            or not (
                title == UNCHANGED
                or (title in (ADVICE, SUPPRESSED) and (f.rule not in stopping or title == SUPPRESSED))
                or f.rule in curious
                or (f.rule in unasked and f.status is FindingStatus.REPORT)
            )
        ]
        shown = set(findings)
        hidden += [f for f in seen if f not in shown and not (title == UNCHANGED and f.rule in sites)]
        if findings:
            screen.heading(f"{title}:")
        for name, group in groupby(findings, key=lambda f: f.path):
            if screen.verbose:
                screen.text(name)
            _show_findings(list(group), screen, is_alone=len({(one.path, one.rule) for one in findings}) == 1)
    if hidden:
        screen.text(f"Not shown: {_count_by_status(hidden)}; -v shows them.", hang=2)
    # Print only excluded files whose exclusion users may not expect. For example, users expect that caches are
    # excluded.
    passed_over = [one for one in plan.left_out if screen.verbose or _TELLING.search(one.reason)]
    for title, skipped in (("Not handled:", plan.skipped), ("Left out:", passed_over)):
        if skipped:
            screen.heading(title)
        by_reason: dict[str, list[str]] = {}
        for one in skipped:
            by_reason.setdefault(one.path if screen.verbose else one.reason, []).append(one.path)
        reasons = {one.path: one.reason for one in skipped}
        for paths in by_reason.values():
            where = paths[0] if len(paths) == 1 else _count_paths(paths)
            screen.text(f"{where}: {reasons[paths[0]]}{'' if len(paths) == 1 else '; -v lists them'}", 2)


def _count_paths(paths: Sequence[str]) -> str:
    """Return the number of paths with a noun, such as ``7 notebooks``."""
    suffixes = {Path(one).suffix for one in paths}
    return pluralize(
        len(paths), "notebook" if suffixes == {".ipynb"} else "file" if suffixes <= {".ipynb", ".py"} else "path"
    )


def _count_by_status(findings: Sequence[Finding]) -> str:
    """Return the numbers of findings as text, such as ``24 suggested (CHP024), 21 reported (CHP024)``."""
    by_status: dict[FindingStatus, Counter[str]] = {}
    for finding in findings:
        by_status.setdefault(finding.status, Counter())[finding.rule] += 1
    parts = []
    for status, word, number in finding_count_rows(
        {status: sum(rules.values()) for status, rules in by_status.items()}
    ):
        rules = by_status[status]
        named = [code if len(rules) == 1 else f"{of} {code}" for code, of in sorted(rules.items())]
        parts.append(f"{number} {word} ({', '.join(named)})")
    return ", ".join(parts)


def loaders_in_tests_line(plan: Plan) -> str:
    """Return one line with the number of loaders in excluded tests; an empty string without such loaders."""
    tests = [one for one in plan.left_out if one.loaders]
    loaders = pluralize(sum(test.loaders for test in tests), "loader")
    return (
        f"Tests not rewritten: {loaders} in {pluralize(len(tests), 'file')} (--tests includes them)." if tests else ""
    )


def show_notes(plan: Plan, screen: Screen) -> None:
    """Print the notes of a plan for the user."""
    for note in plan.notes:
        screen.text(note)


def show_loader_counts(
    plan: Plan,
    screen: Screen,
    *,
    planned: bool = False,
    list_reference: str = "",
) -> None:
    """Print the number of loaders with each outcome.

    With ``-v``, also print the number of findings for each rule that does not count loaders (see
    ``Rule.counts_sites``).

    Args:
        plan: the plan.
        screen: the terminal.
        planned: whether the plan is not applied yet, so that the words describe the future.
        list_reference: text that refers to the list of loaders that are not rewritten, such as " (listed after the
            diff)".
    """
    ledger = LoaderLedger.of(plan)
    for sentence in ledger_sentences(ledger, planned=planned, list_reference=list_reference):
        screen.text(sentence, hang=2)
    in_tests = loaders_in_tests_line(plan)
    if in_tests:
        screen.text(in_tests)
    counting = {rule.code for rule in all_rules() if rule.counts_sites}
    others = [
        f"{code} {', '.join(f'{number} {word}' for _, word, number in finding_count_rows(counts))}"
        for code, counts in ledger.rules.items()
        if code not in counting
    ]
    if others and screen.verbose:
        screen.text(f"{'Other rules' if ledger.counting else 'Rules'}: {'; '.join(others)}.", hang=2)
        screen.text("For the reason of a rule: chirp-migrate explain CODE.")


def _show_findings(findings: Sequence[Finding], screen: Screen, *, is_alone: bool = False) -> None:
    """Print the findings in a file: for each rule, the line numbers and the message of its first finding.

    A message gets at most two lines. Instead of a longer message, only its first clause is printed, or the beginning of
    a long clause.

    The message is always printed in full for three kinds of findings: likely bugs, findings that keep workers from
    starting, and findings that are alone under their heading. For the first two kinds, each different message is
    printed. With ``-v``, each finding is printed in full.
    """
    urgent = {rule.code for rule in all_rules() if rule.finds_bugs or rule.stops_workers}
    for same in [[finding] for finding in findings] if screen.verbose else _group_by_rule(findings, urgent):
        first = same[0]
        if screen.verbose:
            screen.item(f"{first.place:>5}  {first.rule}", first.message_with_gain, indent=0, style="cyan")
        else:
            where = f"{first.path}:{_list_places(same, 4)}"
            is_whole = is_alone or first.rule in urgent
            short = "" if is_whole else f"{where}: {_CLAUSE_END.split(first.message)[0]}"
            most = None if is_whole else 2
            screen.text(f"{where}: {first.message}.", 2, first=f"{first.rule}  ", most=most, short=short)


def _group_by_rule(findings: Iterable[Finding], apart: Collection[str] = ()) -> list[list[Finding]]:
    """Group findings by rule. For rules in ``apart``, each message has its own group."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        message = finding.message if finding.rule in apart else ""
        groups.setdefault((finding.rule, message), []).append(finding)
    return list(groups.values())


def _rule_or_gain(same: Sequence[Finding]) -> str:
    """Return the code and the name of the rule that has the findings ``same``.

    For findings on loaders, the result has the gains of the loaders instead of the name, such as ``CHP001 batched
    reading``.
    """
    rule, counting = same[0].rule, {one.code for one in all_rules() if one.counts_sites}
    kinds = Counter(one.gain.kind for one in same if one.gain is not None)
    if rule not in counting or not kinds:
        return f"{rule} {same[0].name}"
    if len(kinds) == 1:
        return f"{rule} {next(iter(kinds)).words}"
    return f"{rule} {', '.join(f'{number} {_SHORT[kind]}' for kind, number in kinds.items())}"


def _list_places(findings: Sequence[Finding], most: int) -> str:
    """Return the line numbers of findings, such as ``3, 9``, or ``3, 9, 7 more`` for more than ``most`` findings."""
    # Join with ", " and without "and", so that the table fits 80 columns.
    return shorten_list(dict.fromkeys(finding.place for finding in findings), most, rest_intro=", ")
