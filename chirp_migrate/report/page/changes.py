"""Collect the changes that the page shows: the runs of ``apply`` with their files, hunks and changed lines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from chirp_migrate.plans.plan import FilePlan, Finding, FindingStatus, Hunk
from chirp_migrate.report.change_rows import ChangeSection
from chirp_migrate.report.contents import ReportContents, RunDetails
from chirp_migrate.report.file_lines import FOLLOWS, FileLines
from chirp_migrate.report.wording import group_unrewritten_findings
from chirp_migrate.review.loader_account import LoaderLedger
from chirp_migrate.source.diff import count_changes

_ODD_IN_LINKS = re.compile(r"[^A-Za-z0-9_./-]+")


@dataclass(frozen=True)
class FindingDetails:
    """A finding, with the line of code.

    Attributes:
        finding: the finding.
        source: line of code at the finding, without the newline; an empty string for an unknown line.
    """

    finding: Finding
    source: str = ""


@dataclass(frozen=True)
class HunkDetails:
    """One change of a file.

    The change is a hunk, or all changed lines of the file that belong to no hunk, such as imports. A hunk is the
    smallest change that can be accepted alone.

    Attributes:
        id: name of the change in links, which is the same in every report on the run. The name consists of letters,
            digits and ``_./:-``.
        number: number of the hunk in its file, from 1; 0 for a change that is not a hunk.
        kind: kind of the change. ``rewrite`` is a hunk. ``follows`` stands for imports that hunks need, and for removed
            dead code. ``file`` is the change of a file without hunks, such as an added file or ``pyproject.toml``.
            ``unknown`` is a rewrite whose hunks are not known, because the journal lacks the plan of the run.
        findings: the findings that the hunk rewrites, in the order of their lines.
        imports: import statements that the hunk needs, such as ``from chirpid_patch import SpecAugment``.
        sections: the changed lines with unchanged lines around them, in the order of the file.
    """

    id: str
    number: int
    kind: str
    findings: tuple[FindingDetails, ...]
    imports: tuple[str, ...]
    sections: tuple[ChangeSection, ...]


@dataclass(frozen=True)
class FileDetails:
    """A file that a run of ``apply`` wrote.

    Attributes:
        path: path of the file relative to the project, with ``/`` between folders.
        action: what the run did with the file, which is ``rewrite`` or ``create``.
        note: reason for the change, which is ``rewrite``, ``scaffold``, ``dependency``, ``vendor`` or ``ignore``
            (comments that suppress findings).
        added: number of added lines, as in ``git diff``. For a notebook, the lines of its JSON text count.
        removed: number of removed lines.
        hunks: the changes in the order of the file; changes that are not hunks are last.
        edited_since: whether the user has edited the file since the run.
        id: name of the file in links to its place on the page.
    """

    path: str
    action: str
    note: str
    added: int
    removed: int
    hunks: tuple[HunkDetails, ...]
    edited_since: bool = False
    id: str = ""


@dataclass(frozen=True)
class RunChanges:
    """The changes of one run of ``apply``.

    Attributes:
        run: the run.
        files: rewritten code files, then other changed files, then added files; each group is sorted by path.
        reported: findings that were not rewritten, with status ``opt-in``, ``refused``, ``report``, ``suppressed`` or
            ``unchanged``.
        ledger: counts of loaders and findings; None if the journal lacks the plan of the run.
    """

    run: RunDetails
    files: tuple[FileDetails, ...]
    reported: tuple[FindingDetails, ...]
    ledger: LoaderLedger | None

    @property
    def findings(self) -> tuple[FindingDetails, ...]:
        """Return all findings: first the rewritten findings, then all other findings."""
        return (*(finding for file in self.files for hunk in file.hunks for finding in hunk.findings), *self.reported)


@dataclass(frozen=True)
class PageContents:
    """A report, and the changes of its runs."""

    report: ReportContents
    runs: tuple[RunChanges, ...]

    @classmethod
    def of(cls, report: ReportContents) -> PageContents:
        """Collect the contents of the page that shows ``report``."""
        return cls(report, tuple(map(_run_changes, report.runs)))

    @property
    def files(self) -> tuple[FileDetails, ...]:
        """Return the changed files of all runs."""
        return tuple(file for run in self.runs for file in run.files)

    @property
    def findings(self) -> tuple[FindingDetails, ...]:
        """Return the findings of all runs."""
        return tuple(finding for run in self.runs for finding in run.findings)


def _run_changes(run: RunDetails) -> RunChanges:
    findings: dict[str, list[Finding]] = {}
    for one in run.plan.findings:
        findings.setdefault(one.path, []).append(one)
    files: list[FileDetails] = []
    reported: dict[str, tuple[FindingDetails, ...]] = {}
    for file in run.plan.files:
        details, reported[file.path] = _file_details(
            file, findings.get(file.path, ()), run=run.number, edited_since=file.path in run.edited
        )
        files.append(details)
    for path in findings.keys() - reported.keys():
        reported[path] = tuple(FindingDetails(one) for one in findings[path] if one.status is not FindingStatus.FINE)
    return RunChanges(
        run,
        tuple(sorted(files, key=lambda one: (one.action == "create", one.note != "rewrite", one.path))),
        tuple(one for path in sorted(reported) for one in reported[path]),
        LoaderLedger.of(run.plan) if run.has_plan else None,
    )


def _file_details(
    file: FilePlan, findings: Iterable[Finding], *, run: int, edited_since: bool
) -> tuple[FileDetails, tuple[FindingDetails, ...]]:
    """Return the data of one file for a report, and the findings in the file that were not rewritten.

    Args:
        file: the file with its changes.
        findings: the findings in this file.
        run: number of the run of ``apply``.
        edited_since: whether the user has edited the file since the run.
    """
    lines = FileLines(file)
    known = {hunk.number for hunk in file.hunks}
    details_by_hunk: dict[int | None, list[FindingDetails]] = {}
    for one in findings:
        details = FindingDetails(one, lines.source_line(one))
        details_by_hunk.setdefault(_hunk_of_finding(one, known), []).append(details)

    def hunk_details(hunk: Hunk, kind: str) -> HunkDetails:
        is_rewrite = kind == "rewrite"
        return HunkDetails(
            id=_link_name(file.path, run, str(hunk.number) if is_rewrite else kind),
            number=hunk.number,
            kind=kind,
            findings=tuple(details_by_hunk.get(hunk.number, ())),
            imports=tuple(hunk.import_lines),
            sections=tuple(lines.sections(hunk.number)),
        )

    hunks = [hunk_details(hunk, "rewrite") for hunk in file.hunks]
    rest = hunk_details(Hunk(FOLLOWS, ()), "follows" if hunks else "unknown" if file.note == "rewrite" else "file")
    if rest.sections or not hunks:
        hunks.append(rest)
    added, removed = count_changes(file)
    action = "create" if file.before is None else "rewrite"
    reported = tuple(one for one in details_by_hunk.get(None, ()) if one.finding.status is not FindingStatus.FINE)
    link = _link_name(file.path, run)
    return FileDetails(file.path, action, file.note, added, removed, tuple(hunks), edited_since, link), reported


def _hunk_of_finding(finding: Finding, known: Collection[int]) -> int | None:
    """Return the number of the hunk that rewrites a finding; None for a finding that is not rewritten.

    ``known`` has the numbers of the hunks in the file. If the hunk of the finding is not in ``known``, the result is
    ``FOLLOWS``, the number of all changes that belong to no hunk.
    """
    if finding.status is not FindingStatus.REWRITE:
        return None
    return finding.hunk if finding.hunk in known else FOLLOWS


def _link_name(path: str, run: int, part: str = "") -> str:
    """Return the name of a file, or of a part of a file, for links. Every report on the run uses the same name.

    If ``path`` contains special characters, the name contains a hash.
    """
    plain = _ODD_IN_LINKS.sub("-", path)
    if plain != path:
        plain += f"-{hashlib.sha256(path.encode('utf-8', errors='surrogateescape')).hexdigest()[:8]}"
    return ":".join(one for one in (plain, f"run{run}" if run != 1 else "", part) if one)


def group_findings_by_file(
    findings: Iterable[FindingDetails],
) -> Iterator[tuple[str, list[tuple[str, list[list[FindingDetails]]]]]]:
    """Yield (title, files) for each kind of findings that were not rewritten.

    The title is the heading of the kind. Each item of ``files`` is (path, groups): each group has all findings of a
    rule in this file that have the same message.
    """
    for title, found in group_unrewritten_findings(findings, lambda one: one.finding):
        files = groupby(found, key=lambda one: one.finding.path)
        yield title, [(path, _group_by_message(of_file)) for path, of_file in files]


def _group_by_message(found: Iterable[FindingDetails]) -> list[list[FindingDetails]]:
    """Group findings by rule and message, in the order of the first finding of each group."""
    kinds: dict[tuple[str, str], list[FindingDetails]] = {}
    for one in found:
        kinds.setdefault((one.finding.rule, one.finding.message_with_gain), []).append(one)
    return list(kinds.values())
