"""The contents of a report, as data without presentation; the page and the terminal render the same data.

It is read from what ``apply`` and ``verify`` kept (the journal), or from a saved plan. The user's code is never
imported or run. Texts are those of the sources: the code that renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from chirp_migrate.doctor.document import DoctorReport
from chirp_migrate.plans.plan import Finding, Skipped
from chirp_migrate.report.hunks import Section
from chirp_migrate.report.wording import sections
from chirp_migrate.review.loader_account import Ledger
from chirp_migrate.verify.document import VerifyReport

__all__ = ["FileStory", "FindingStory", "HunkStory", "RunStory", "Story", "reported_by_file"]


@dataclass(frozen=True)
class FindingStory:
    """A finding with the details that a reader needs.

    Attributes:
        finding: rule, name, place, message, safety and status.
        reason: why the rule exists, one paragraph; empty for a rule that this version does not know.
        source: the line it is about, without its newline; empty where that is not known for certain.
    """

    finding: Finding
    reason: str
    source: str = ""


@dataclass(frozen=True)
class HunkStory:
    """One change: a hunk, or edits that follow from hunks.

    Attributes:
        id: names it in links: the same whenever the same change is reported again. Letters, digits and ``_./:-`` only.
        number: that of the plan, from 1 in each file; 0 where there is no such number.
        kind: ``rewrite`` (by rules), ``follows`` (imports that rewrites need, and what they left unused), ``file`` (a
            file that is added or changed as a whole) or ``unknown`` (the journal does not say which rules did it).
        findings: what it rewrites, by place; only of a ``rewrite``.
        imports: lines such as ``from chirpid_patch import SpecAugment`` that it needs.
        decision: in a plan, ``accepted`` or ``refused``; None where nothing was decided.
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
    """One file that a run wrote, or a plan would.

    Attributes:
        path: posix path relative to the backend.
        action: ``rewrite`` or ``create``.
        note: why: ``rewrite``, ``scaffold``, ``dependency`` or ``vendor``.
        added: lines added to the file, as git counts them: of a notebook, lines of its JSON.
        removed: lines removed from it.
        hunks: in the order of the file, what follows from them last.
        edited_since: whether it is no longer what the run made of it.
        id: names it in links, as that of its hunks.
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
        number: of the run; None for a plan.
        created: when it was begun, ISO 8601 in UTC; empty for a plan, which does not say.
        tool: what made it, such as ``chirp-migrate 0.1.0``.
        files: rewritten ones first, each kind by path.
        reported: what was seen and not rewritten: status ``opt-in``, ``refused``, ``report`` or ``suppressed``.
        skipped: files that could not be handled or written, with the reason.
        left_out: what was not looked at on purpose.
        ledger: the account; None if the plan that the journal keeps with the run is missing.
        notes: what else the user should know.
    """

    number: int | None
    created: str
    tool: str
    files: tuple[FileStory, ...]
    reported: tuple[FindingStory, ...]
    skipped: tuple[Skipped, ...]
    left_out: tuple[Skipped, ...]
    ledger: Ledger | None
    notes: tuple[str, ...]

    @property
    def findings(self) -> tuple[FindingStory, ...]:
        """Everything that was found: what is rewritten, then what is not."""
        return (*(finding for file in self.files for hunk in file.hunks for finding in hunk.findings), *self.reported)


@dataclass(frozen=True)
class Story:
    """The report on one backend.

    Attributes:
        name: of the backend's folder.
        runs: those that stand, oldest first; or one plan.
        verdict: what the last ``verify`` found; None when there was none.
        notices: sentences on what the reader has to know before believing the rest, such as later edits.
        doctor: what the last ``doctor`` found; None when there was none.
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
        """Return whether nothing of it is applied yet."""
        return any(run.number is None for run in self.runs)


def reported_by_file(
    reported: Iterable[FindingStory],
) -> Iterator[tuple[str, list[tuple[str, list[list[FindingStory]]]]]]:
    """Yield the findings that were not rewritten: title → file → findings, equal messages together."""
    for title, stories in sections(reported, lambda story: story.finding):
        files = groupby(stories, key=lambda story: story.finding.path)
        yield title, [(path, _group_equal(of_file)) for path, of_file in files]


def _group_equal(stories: Iterable[FindingStory]) -> list[list[FindingStory]]:
    """Findings that say the same, together; in the order of the first of each."""
    kinds: dict[tuple[str, str], list[FindingStory]] = {}
    for story in stories:
        kinds.setdefault((story.finding.rule, story.finding.message_with_gain), []).append(story)
    return list(kinds.values())
