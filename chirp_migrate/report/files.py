"""Collect the data of one file for a report: the hunks, the changed lines, and the reasons for the changes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from functools import cache

from chirp_migrate.plans.plan import FilePlan, Finding, FindingStatus, Hunk
from chirp_migrate.report.contents import FileDetails, FindingDetails, HunkDetails
from chirp_migrate.report.file_lines import FOLLOWS, FileLines
from chirp_migrate.rules import all_rules
from chirp_migrate.source.diff import count_changes

_ODD_IN_LINKS = re.compile(r"[^A-Za-z0-9_./-]+")


def file_details(
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
        details_by_hunk.setdefault(_hunk_of_finding(one, known), []).append(
            finding_details(one, lines.source_line(one))
        )

    def hunk_details(hunk: Hunk, kind: str) -> HunkDetails:
        is_rewrite = kind == "rewrite"
        return HunkDetails(
            id=_link_name(file.path, run, str(hunk.number) if is_rewrite else kind),
            number=hunk.number,
            kind=kind,
            findings=tuple(details_by_hunk.get(hunk.number, ())),
            imports=tuple(f"from {module} import {clause}" for module, clause in sorted(hunk.imports)),
            sections=tuple(lines.sections(hunk.number)),
        )

    hunks = [hunk_details(hunk, "rewrite") for hunk in file.hunks]
    rest = hunk_details(Hunk(FOLLOWS, ()), "follows" if hunks else "unknown" if file.note == "rewrite" else "file")
    if rest.sections or not hunks:
        hunks.append(rest)
    added, removed = count_changes(file)
    action = "create" if file.before is None else "rewrite"
    reported = (
        details for details in details_by_hunk.get(None, ()) if details.finding.status is not FindingStatus.FINE
    )
    details = FileDetails(
        file.path, action, file.note, added, removed, tuple(hunks), edited_since, _link_name(file.path, run)
    )
    return details, tuple(reported)


def finding_details(finding: Finding, source: str = "") -> FindingDetails:
    """Return a finding with the reason of its rule, and with the line of code ``source``."""
    return FindingDetails(finding, _rule_reasons().get(finding.rule, ""), source)


@cache
def _rule_reasons() -> dict[str, str]:
    return {rule.code: rule.reason for rule in all_rules()}


def _hunk_of_finding(finding: Finding, known: Collection[int]) -> int | None:
    """Return the number of the hunk that rewrites a finding; None for a finding that is not rewritten."""
    if finding.status is not FindingStatus.REWRITE:
        return None
    return finding.hunk if finding.hunk in known else FOLLOWS


def _link_name(path: str, run: int, part: str = "") -> str:
    """Return a link name, the same in every report. For a ``path`` with special characters, the name has a hash."""
    plain = _ODD_IN_LINKS.sub("-", path)
    if plain != path:
        plain += f"-{hashlib.sha256(path.encode('utf-8', errors='surrogateescape')).hexdigest()[:8]}"
    return ":".join(one for one in (plain, f"run{run}" if run != 1 else "", part) if one)
