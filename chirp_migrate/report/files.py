"""Collect the data that a report shows of one file: its hunks, with their lines and the reasons for them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from functools import cache

from chirp_migrate.plans.plan import FilePlan, Finding, Hunk, Status
from chirp_migrate.report.file_lines import FOLLOWS, FileLines
from chirp_migrate.report.story import FileStory, FindingStory, HunkStory
from chirp_migrate.review.selection import WHOLE_FILE, Choices
from chirp_migrate.rules import all_rules
from chirp_migrate.source.diff import count_changes

__all__ = ["finding_story", "story_of_file"]

_ODD_IN_LINKS = re.compile(r"[^A-Za-z0-9_./-]+")


def story_of_file(
    file: FilePlan, findings: Iterable[Finding], *, run: int | None, choices: Choices, edited_since: bool
) -> tuple[FileStory, tuple[FindingStory, ...]]:
    """Return the data of one file for a report, and the findings in the file that were not rewritten.

    Args:
        file: the file with its changes.
        findings: the findings in this file.
        run: number of the run of ``apply``; None for a plan.
        choices: the decisions of a review of a plan.
        edited_since: whether the user has edited the file since the run.
    """
    lines = FileLines(file)
    known = {hunk.number for hunk in file.hunks}
    stories: dict[int | None, list[FindingStory]] = {}
    for one in findings:
        stories.setdefault(_hunk_of_finding(one, known), []).append(finding_story(one, lines.source_line(one)))

    def hunk_story(hunk: Hunk, kind: str) -> HunkStory:
        is_rewrite = kind == "rewrite"
        choice = choices.get((file.path, hunk.number if is_rewrite else WHOLE_FILE))
        return HunkStory(
            id=_link_name(file.path, run, str(hunk.number) if is_rewrite else kind),
            number=hunk.number,
            kind=kind,
            findings=tuple(stories.get(hunk.number, ())),
            imports=tuple(f"from {module} import {clause}" for module, clause in sorted(hunk.imports)),
            decision=None if choice is None else "accepted" if choice.accepted else "refused",
            edited=choice is not None and choice.edits is not None,
            sections=tuple(lines.sections(hunk.number)),
        )

    hunks = [hunk_story(hunk, "rewrite") for hunk in file.hunks]
    rest = hunk_story(Hunk(FOLLOWS, ()), "follows" if hunks else "unknown" if file.note == "rewrite" else "file")
    if rest.sections or not hunks:
        hunks.append(rest)
    added, removed = count_changes(file)
    action = "create" if file.before is None else "rewrite"
    reported = (story for story in stories.get(None, ()) if story.finding.status is not Status.FINE)
    story = FileStory(
        file.path, action, file.note, added, removed, tuple(hunks), edited_since, _link_name(file.path, run)
    )
    return story, tuple(reported)


def finding_story(finding: Finding, source: str = "") -> FindingStory:
    """Return a finding with the reason of its rule, and with the line of code ``source``."""
    return FindingStory(finding, _rule_reasons().get(finding.rule, ""), source)


@cache
def _rule_reasons() -> dict[str, str]:
    return {rule.code: rule.reason for rule in all_rules()}


def _hunk_of_finding(finding: Finding, known: Collection[int]) -> int | None:
    """Return the number of the hunk that rewrites a finding; None for a finding that is not rewritten."""
    if finding.hunk in known and finding.status in (Status.REWRITE, Status.REFUSED):
        return finding.hunk
    return FOLLOWS if finding.status is Status.REWRITE else None


def _link_name(path: str, run: int | None, part: str = "") -> str:
    """Return a name for links that is equal in every report; if ``path`` has special characters, with a hash of it."""
    plain = _ODD_IN_LINKS.sub("-", path)
    if plain != path:
        plain += f"-{hashlib.sha256(path.encode('utf-8', errors='surrogateescape')).hexdigest()[:8]}"
    return ":".join(one for one in (plain, f"run{run}" if run not in (None, 1) else "", part) if one)
