"""The contents of a report, as data without presentation; the page and the terminal render the same data.

The data comes from the journal, in which ``apply`` and ``verify`` store their results, or from a saved plan. The user's
code is never imported or run. Texts are not escaped; the code that renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from chirp_migrate.doctor.doctor_report import DoctorReport
from chirp_migrate.plans.plan import Finding, SkippedFile
from chirp_migrate.report.hunks import Section
from chirp_migrate.report.wording import sections
from chirp_migrate.review.loader_account import Ledger
from chirp_migrate.verify.verify_report import VerifyReport

__all__ = ["FileStory", "FindingStory", "HunkStory", "RunStory", "Story", "reported_by_file"]


@dataclass(frozen=True)
class FindingStory:
    """A finding with the details that a reader needs.

    Attributes:
        finding: rule, name, place, message, safety and status.
        reason: why the rule exists, one paragraph; empty for a rule that this version does not know.
        source: the line of the finding, without its newline; empty if it is not certain.
    """

    finding: Finding
    reason: str
    source: str = ""


@dataclass(frozen=True)
class HunkStory:
    """One change: a hunk, or edits that follow from hunks.

    Attributes:
        id: its name in links, which is the same in every report on the same change. It contains only letters, digits
            and ``_./:-``.
        number: its number in the plan, from 1 in each file; 0 if it has no number.
        kind: ``rewrite`` (by rules), ``follows`` (imports that rewrites need, and removed dead code), ``file`` (a file
            that is added or changed as a whole) or ``unknown`` (the journal does not contain the rules).
        findings: the findings that it rewrites, in order of place; only for ``rewrite``.
        imports: lines such as ``from chirpid_patch import SpecAugment`` that it needs.
        decision: in a plan, ``accepted`` or ``refused``; None if it is not decided.
        edited: whether the user wrote other lines in a review; ``sections`` show these.
        sections: runs of lines with context, in the order of the file.
    """

    id: str
    number: int
    kind: str
    findings: tuple[FindingStory, ...]
    imports: tuple[str, ...]
    decision: str | None
    edited: bool
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class FileStory:
    """A file that a run wrote, or a plan would write.

    Attributes:
        path: posix path relative to the backend.
        action: ``rewrite`` or ``create``.
        note: the reason: ``rewrite``, ``scaffold``, ``dependency`` or ``vendor``.
        added: number of added lines, as git counts them; for a notebook, lines of its JSON.
        removed: number of removed lines.
        hunks: the changes in the order of the file; those that follow from others are last.
        edited_since: whether the file has changed since the run.
        id: its name in links, as for its hunks.
    """

    path: str
    action: str
    note: str
    added: int
    removed: int
    hunks: tuple[HunkStory, ...]
    edited_since: bool = False
    id: str = ""


@dataclass(frozen=True)
class RunStory:
    """One run of ``apply``, or a plan that was not applied.

    Attributes:
        number: number of the run; None for a plan.
        created: time of its beginning, ISO 8601 in UTC; empty for a plan.
        tool: the program that created it, such as ``chirp-migrate 0.1.0``.
        files: the files: rewritten files first, each kind sorted by path.
        reported: the findings that were not rewritten: status ``opt-in``, ``refused``, ``report`` or ``suppressed``.
        skipped: files that could not be handled or written, with the reason.
        left_out: excluded files and folders.
        ledger: the counts of loaders and findings; None if the journal lacks the plan of the run.
        notes: further sentences for the user.
    """

    number: int | None
    created: str
    tool: str
    files: tuple[FileStory, ...]
    reported: tuple[FindingStory, ...]
    skipped: tuple[SkippedFile, ...]
    left_out: tuple[SkippedFile, ...]
    ledger: Ledger | None
    notes: tuple[str, ...]

    @property
    def findings(self) -> tuple[FindingStory, ...]:
        """Return all findings: first those that are rewritten, then all others."""
        return (*(finding for file in self.files for hunk in file.hunks for finding in hunk.findings), *self.reported)


@dataclass(frozen=True)
class Story:
    """The report on one backend.

    Attributes:
        name: name of the backend's folder.
        runs: the applied runs, oldest first; or one plan.
        verdict: the document of the last ``verify``; None if there is none.
        notices: sentences on restrictions of the report, such as later edits.
        doctor: the document of the last ``doctor``; None if there is none.
    """

    name: str
    runs: tuple[RunStory, ...]
    verdict: VerifyReport | None
    notices: tuple[str, ...]
    doctor: DoctorReport | None = None

    @property
    def files(self) -> tuple[FileStory, ...]:
        """Return the files of all runs."""
        return tuple(file for run in self.runs for file in run.files)

    @property
    def findings(self) -> tuple[FindingStory, ...]:
        """Return the findings of all runs."""
        return tuple(finding for run in self.runs for finding in run.findings)

    @property
    def is_plan(self) -> bool:
        """Return whether the report is on a plan that is not applied."""
        return any(run.number is None for run in self.runs)


def reported_by_file(
    reported: Iterable[FindingStory],
) -> Iterator[tuple[str, list[tuple[str, list[list[FindingStory]]]]]]:
    """Yield the findings that were not rewritten: title → file → findings, equal messages together."""
    for title, stories in sections(reported, lambda story: story.finding):
        files = groupby(stories, key=lambda story: story.finding.path)
        yield title, [(path, _group_equal(of_file)) for path, of_file in files]


def _group_equal(stories: Iterable[FindingStory]) -> list[list[FindingStory]]:
    """Return the findings grouped by equal messages, in the order of the first finding of each group."""
    kinds: dict[tuple[str, str], list[FindingStory]] = {}
    for story in stories:
        kinds.setdefault((story.finding.rule, story.finding.message_with_gain), []).append(story)
    return list(kinds.values())
