"""Classes for the data of a report. The web page and the terminal output render the same data.

The data comes from the journal, in which ``apply``, ``verify`` and ``doctor`` store their results. The texts are not
escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from chirp_migrate.doctor.doctor_report import DoctorReport
from chirp_migrate.plans.plan import Finding, SkippedFile
from chirp_migrate.report.hunks import ChangeSection
from chirp_migrate.report.wording import group_unchanged_findings
from chirp_migrate.review.loader_account import LoaderLedger
from chirp_migrate.verify.verify_report import VerifyReport


@dataclass(frozen=True)
class FindingDetails:
    """A finding, with the reason of its rule and the line of code.

    Attributes:
        finding: the finding.
        reason: one paragraph on why the rule exists; an empty string if this version does not have the rule.
        source: line of code at the finding, without the newline; an empty string for an unknown line.
    """

    finding: Finding
    reason: str
    source: str = ""


@dataclass(frozen=True)
class HunkDetails:
    """One change of a file: a hunk (the smallest change that can be accepted alone), or changes that follow from hunks.

    Attributes:
        id: name of the change in links. Every report uses the same name. The characters are letters, digits and
            ``_./:-``.
        number: number of the hunk in its file, from 1; 0 for a change that is not a hunk.
        kind: ``rewrite`` for a hunk, ``follows`` for imports that hunks need and for removed dead code, ``file`` for an
            added file, ``unknown`` if the journal does not contain the rules.
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
    """A file that a run wrote.

    Attributes:
        path: POSIX path relative to the project.
        action: ``rewrite`` or ``create``.
        note: reason for the change: ``rewrite``, ``scaffold``, ``dependency`` or ``vendor``.
        added: number of added lines, as ``git diff`` counts lines; for a notebook, lines of its JSON.
        removed: number of removed lines.
        hunks: the changes in the order of the file; changes that are not hunks are last.
        edited_since: whether the user has edited the file since the run.
        id: name of the file in links.
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
class RunDetails:
    """One run of ``apply``.

    Attributes:
        number: number of the run.
        created: time at the start of the run, ISO 8601 in UTC.
        tool: name and version of the program that made the run, such as ``chirp-migrate 0.1.0``.
        files: rewritten files, then added files, each sorted by path.
        reported: findings that were not rewritten, with status ``opt-in``, ``refused``, ``report``, ``suppressed`` or
            ``unchanged``.
        skipped: files that could not be processed or written, with the reason.
        left_out: excluded files and folders, with the reason.
        ledger: counts of loaders and findings; None if the journal lacks the plan of the run.
        notes: further sentences for the user, for example on dependencies.
    """

    number: int
    created: str
    tool: str
    files: tuple[FileDetails, ...]
    reported: tuple[FindingDetails, ...]
    skipped: tuple[SkippedFile, ...]
    left_out: tuple[SkippedFile, ...]
    ledger: LoaderLedger | None
    notes: tuple[str, ...]

    @property
    def findings(self) -> tuple[FindingDetails, ...]:
        """Return all findings: first the rewritten findings, then all other findings."""
        return (*(finding for file in self.files for hunk in file.hunks for finding in hunk.findings), *self.reported)


@dataclass(frozen=True)
class ReportContents:
    """The data of a report on one project.

    Attributes:
        name: name of the project's folder.
        runs: the applied runs, oldest first.
        verdict: the result of the last ``verify``; None if ``verify`` did not run.
        notices: sentences on the limits of the report, for example on files that were edited after the migration.
        doctor: the result of the last ``doctor``; None if ``doctor`` did not run.
    """

    name: str
    runs: tuple[RunDetails, ...]
    verdict: VerifyReport | None
    notices: tuple[str, ...]
    doctor: DoctorReport | None = None

    @property
    def files(self) -> tuple[FileDetails, ...]:
        """Return the changed files of all runs."""
        return tuple(file for run in self.runs for file in run.files)

    @property
    def findings(self) -> tuple[FindingDetails, ...]:
        """Return the findings of all runs."""
        return tuple(finding for run in self.runs for finding in run.findings)


def group_by_file(
    findings: Iterable[FindingDetails],
) -> Iterator[tuple[str, list[tuple[str, list[list[FindingDetails]]]]]]:
    """Yield (title, files) for findings that were not rewritten; each file is (path, groups of equal messages)."""
    for title, found in group_unchanged_findings(findings, lambda one: one.finding):
        files = groupby(found, key=lambda one: one.finding.path)
        yield title, [(path, _group_by_message(of_file)) for path, of_file in files]


def _group_by_message(found: Iterable[FindingDetails]) -> list[list[FindingDetails]]:
    """Group findings by rule and message, in the order of the first finding of each group."""
    kinds: dict[tuple[str, str], list[FindingDetails]] = {}
    for one in found:
        kinds.setdefault((one.finding.rule, one.finding.message_with_gain), []).append(one)
    return list(kinds.values())
