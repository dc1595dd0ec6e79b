"""What ``apply`` says it did, for people and for machines."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from chirp_migrate.console.paint import Paint, count, visible, wrapped
from chirp_migrate.engine.migration import Migration
from chirp_migrate.plans.plan import FilePlan, Finding, Plan, Safety, Skipped, Status
from chirp_migrate.review.account import Ledger
from chirp_migrate.rules import all_rules
from chirp_migrate.source.diff import count_changes
from chirp_migrate.transaction.commit import CommitResult

#: Why a file is written, as people are told.
NOTES = {"scaffold": "added", "vendor": "vendored", "dependency": "dependency", "rewrite": "rewritten"}
#: Reasons for not looking at something that a user may not expect.
_TELLING = re.compile("vendored|larger than|cannot be listed|leaves the folder|leads nowhere|not a regular")
_NOTHING = "Nothing to do: already migrated, or nothing here that any rule knows."
#: Behind it, where nothing was found at all.
_NOTHING_FOUND = (
    "No file was changed, and none was added: no dependency either.",
    "What is looked for: chirp-migrate rules",
)
#: How statuses are called where they are counted.
_DONE = {
    Status.REWRITE: "rewritten",
    Status.OPT_IN: "proposed",
    Status.REPORT: "listed",
    Status.SUPPRESSED: "suppressed",
    Status.REFUSED: "refused",
    Status.FINE: "fine",
}


def totals(plan: Plan) -> str:
    """One line: how many files change, by how many lines."""
    if not plan.files:
        return _NOTHING
    added, removed = map(sum, zip(*(count_changes(file) for file in plan.files), strict=True))
    created = sum(file.before is None for file in plan.files)
    rewritten = len(plan.files) - created
    return f"{count(rewritten, 'file')} to rewrite, {created} to add: +{added} -{removed} lines. Nothing was written."


def planned(migration: Migration, paint: Paint, *, verbose: bool = False, quiet: bool = False) -> str:
    """The report on a plan that is not applied."""
    plan = migration.plan
    if quiet:
        return _attention(migration, ())
    lines = _by_file(plan.files, plan.findings, paint, verbose=verbose)
    lines += remarks(migration, (), paint, verbose=verbose)
    lines += ["", totals(plan), *notes(migration), *account(migration, (), planned=True)]
    return "\n".join(lines).lstrip("\n") + "\n"


def applied(
    migration: Migration,
    result: CommitResult,
    path: Path,
    paint: Paint,
    *,
    verbose: bool = False,
    quiet: bool = False,
) -> str:
    """The report after an apply."""
    left = result.skipped
    if quiet:
        return _attention(migration, left)
    plan, done = migration.plan, result.applied
    lines = _by_file(done, plan.findings, paint, verbose=verbose)
    lines += remarks(migration, left, paint, verbose=verbose)
    if done:
        rewritten = sum(file.before is not None for file in done)
        lines += ["", f"{count(rewritten, 'file')} rewritten, {len(done) - rewritten} added."]
    else:
        lines += ["", _NOTHING]
    is_empty = not (done or left or plan.findings or plan.skipped)
    lines += _NOTHING_FOUND if is_empty else ()
    lines += notes(migration)
    if result.found is not None:
        lines += wrapped(result.found, "")
    for name in result.linked:
        lines += wrapped(f"{visible(name)} had other names (hard links): those keep the old bytes.", "  ", first="")
    lines += () if is_empty else account(migration, left)
    if done:
        lines.append(f"Every change with its reason: chirp-migrate report {shlex.quote(str(path))}")
        lines.append(f"Next: review it (git diff), then: chirp-migrate verify {shlex.quote(str(path))}")
        lines.append(f"To undo it to the byte: chirp-migrate rollback {shlex.quote(str(path))}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _by_file(files: Iterable[FilePlan], findings: Sequence[Finding], paint: Paint, *, verbose: bool) -> list[str]:
    """For each file its name, how much of it changes, and the rewrites."""
    lines: list[str] = []
    for file in files:
        added, removed = count_changes(file)
        lines.append(f"{paint(visible(file.path), '1')}  {NOTES.get(file.note, file.note)}, +{added} -{removed}")
        rewrites = [f for f in findings if f.path == file.path and f.status is Status.REWRITE]
        lines += _findings(rewrites, paint, verbose=verbose)
    return lines


def _attention(migration: Migration, left: Sequence[Skipped]) -> str:
    """What a quiet run says: files that could not be handled, and what the user has to do."""
    lines = [visible(f"{one.path}: {one.reason}") for one in (*migration.plan.skipped, *left)]
    return "".join(f"{line}\n" for line in [*lines, *notes(migration)])


def remarks(migration: Migration, left: Sequence[Skipped], paint: Paint, *, verbose: bool = False) -> list[str]:
    """Lines on everything that was seen and not rewritten, with the reasons; places that are alike are folded."""
    plan = migration.plan
    advice = {rule.code for rule in all_rules() if rule.safety is Safety.ADVICE}
    bugs = {rule.code for rule in all_rules() if rule.finds_bugs}
    hidden = frozenset() if verbose else _curious()
    reports = _reported(plan, verbose=verbose)
    sections = [
        (
            "Proposed, not applied: these change training (--unsafe applies them)",
            [f for f in plan.findings if f.status is Status.OPT_IN and f.rule not in hidden],
        ),
        ("Refused in the review", [f for f in plan.findings if f.status is Status.REFUSED]),
        ("Likely bugs, for you to look at", [f for f in reports if f.rule in bugs]),
        ("Left alone", [f for f in reports if f.rule not in advice | bugs]),
        ("Advice", [f for f in reports if f.rule in advice - bugs]),
    ]
    if verbose:
        sections.append(("Suppressed", [f for f in plan.findings if f.status is Status.SUPPRESSED]))
    lines: list[str] = []
    for title, findings in sections:
        lines += ["", f"{title}:"] if findings else []
        for name, group in groupby(findings, key=lambda f: f.path):
            lines += [visible(name), *_findings(list(group), paint, verbose=verbose)]
    skipped = [*plan.skipped, *left]
    if skipped:
        lines += ["", "Not handled:"]
        lines += [line for one in skipped for line in wrapped(visible(f"{one.path}: {one.reason}"), "  ")]
    # Caches and the like are no news; what somebody could miss is.
    passed_over = [one for one in plan.left_out if verbose or _TELLING.search(one.reason)]
    if passed_over:
        lines += ["", "Not looked at:"]
        lines += [line for one in passed_over for line in wrapped(visible(f"{one.path}: {one.reason}"), "  ")]
    return lines


def _reported(plan: Plan, *, verbose: bool = False) -> list[Finding]:
    """What was seen and not rewritten; some of it only for those who ask for everything."""
    opted_in = {f.rule for f in plan.findings if f.status is Status.REWRITE}
    opt_in = {rule.code for rule in all_rules() if rule.safety is Safety.BEHAVIOUR} - opted_in
    hidden = frozenset() if verbose else opt_in | _curious()
    return [f for f in plan.findings if f.status is Status.REPORT and f.rule not in hidden]


def _curious() -> frozenset[str]:
    return frozenset(rule.code for rule in all_rules() if rule.for_the_curious)


def _left_alone(plan: Plan) -> list[str]:
    """Where a safe rule declined, by rule, and the first place to look at."""
    safe = {rule.code for rule in all_rules() if rule.safety is Safety.SAFE}
    found = [one for one in _reported(plan) if one.rule in safe]
    if not found:
        return []
    counts = ", ".join(f"{number} by {rule}" for rule, number in sorted(Counter(one.rule for one in found).items()))
    first = found[0]
    place = f"{first.path}:{first.place}"
    return wrapped(visible(f"Left alone: {counts}. First look at {place}: {first.message}."), "  ", first="")


def loaders_in_tests(plan: Plan) -> str:
    """One line on the tests that were left alone, or "" if there is no loader in them."""
    tests = [one for one in plan.left_out if one.loaders]
    loaders = count(sum(one.loaders for one in tests), "loader")
    return f"Tests left alone: {loaders} in {count(len(tests), 'file')} (--tests includes them)." if tests else ""


def notes(migration: Migration) -> list[str]:
    """Lines of what else the user should know."""
    return [line for note in migration.notes for line in wrapped(visible(note), "")]


def account(
    migration: Migration, left: Sequence[Skipped], *, planned: bool = False, listed: str | None = None
) -> list[str]:
    """Lines of the ledger: what became of every loader, and what the other rules found; ``listed`` says where."""
    ledger = _ledger(migration, left)
    lines: list[str] = []
    if ledger.counting:
        one = ledger.sites
        parts = [
            f"{one.get(Status.REWRITE, 0)} {'to migrate' if planned else 'migrated'}",
            f"{one.get(Status.FINE, 0)} already fine",
            f"{one.get(Status.SUPPRESSED, 0)} suppressed",
            *([f"{one[Status.OPT_IN]} proposed"] if one.get(Status.OPT_IN) else []),
            *([f"{one[Status.REFUSED]} refused"] if one.get(Status.REFUSED) else []),
            f"{one.get(Status.REPORT, 0)} listed {'above' if listed is None else listed}",
        ]
        lines += wrapped(f"Loaders: {ledger.found} found = {' + '.join(parts)}.", "  ", first="")
        if set(ledger.reasons) - {"other"}:
            reasons = ", ".join(f"{number} {why}" for why, number in ledger.reasons.items())
            lines += wrapped(f"Listed loaders: {reasons}.", "  ", first="")
    in_tests = loaders_in_tests(migration.plan)
    lines += [in_tests] if in_tests else []
    lines += _left_alone(migration.plan)
    counting = {rule.code for rule in all_rules() if rule.counts_sites}
    others = [
        f"{code} " + ", ".join(f"{counts[status]} {word}" for status, word in _DONE.items() if counts.get(status))
        for code, counts in ledger.rules.items()
        if code not in counting
    ]
    if others:
        lines += wrapped(f"{'Other rules' if ledger.counting else 'Rules'}: {'; '.join(others)}.", "  ", first="")
        lines += wrapped("Why a rule does what it does: chirp-migrate explain CODE.", "  ", first="")
    if ledger.unread:
        were = "is" if ledger.unread == 1 else "are"
        lines.append(f"{count(ledger.unread, 'file')} could not be handled and {were} not counted.")
    return lines


def _findings(findings: Sequence[Finding], paint: Paint, *, verbose: bool) -> list[str]:
    """What each rule says of a file, with the first place and the lines of the others; all of it if ``verbose``."""
    kinds: dict[tuple[object, ...], list[Finding]] = {}
    for number, finding in enumerate(findings):
        kinds.setdefault((number,) if verbose else (finding.rule,), []).append(finding)
    lines = []
    for first, *more in kinds.values():
        head = f"{first.place:>5}  {first.rule}  "
        indent = " " * len(head)
        text = wrapped(visible(first.message), indent, first=head)
        lines += [text[0].replace(first.rule, paint(first.rule, "36"), 1), *text[1:]]
        if more:
            places = ("; " if first.cell else ", ").join(one.place for one in more)
            noun = "at" if first.cell else "line" if len(more) == 1 else "lines"
            lines += wrapped(f"and {len(more)} more like this: {noun} {places}", indent)
    return lines


def _ledger(migration: Migration, left: Sequence[Skipped]) -> Ledger:
    return Ledger.of(migration.plan.findings, migration.plan.skipped, left, migration.options.codes)
