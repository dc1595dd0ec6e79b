"""Remove the files that this user may not write from a plan, with all hunks that depend on these files."""

from __future__ import annotations

from dataclasses import replace

from chirp_migrate.plans.plan import NOT_WRITTEN, Finding, FindingStatus, Plan, Safety
from chirp_migrate.review.selection import HunkChoice, apply_choices, decidable_hunk_ids
from chirp_migrate.transaction.commit import unwritable_files


def without_read_only_files(plan: Plan) -> Plan:
    """Return ``plan`` without the files that this user may not write; ``skipped`` of the result lists these files.

    Hunks of other files that must be accepted together with hunks of these files are removed, too. Findings whose
    rewrite is removed become reports.
    """
    files = unwritable_files(plan)
    if not files:
        return plan
    paths = {one.path for one in files}
    calls = {call for file in plan.files if file.path in paths for hunk in file.hunks for call in hunk.together}
    hunks = {(file.path, hunk.number): hunk.together for file in plan.files for hunk in file.hunks}
    while more := {call for together in hunks.values() if together & calls for call in together} - calls:
        calls |= more
    removed = {one for one in decidable_hunk_ids(plan) if one[0] in paths or hunks.get(one, frozenset()) & calls}
    selected = apply_choices(plan, {one: HunkChoice(accepted=False) for one in removed})
    findings = tuple(_reported(one) if one.status is FindingStatus.REFUSED else one for one in selected.findings)
    return replace(selected, findings=findings, skipped=(*selected.skipped, *files))


def _reported(finding: Finding) -> Finding:
    return replace(
        finding,
        status=FindingStatus.REPORT,
        safety=Safety.ADVICE,
        hunk=None,
        why=NOT_WRITTEN,
        message=f"not rewritten: a file that the rewrite changes is read-only; if it can be written: {finding.message}",
    )
