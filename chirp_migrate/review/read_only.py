"""Remove the files that this user may not write from a plan, with all hunks that depend on these files."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from chirp_migrate.additions.dependency import any_file_needs_runtime
from chirp_migrate.errors import WriteRefused
from chirp_migrate.plans.plan import NOT_WRITTEN, Finding, FindingStatus, GainKind, Plan, Safety
from chirp_migrate.review.selection import (
    NOTES_OF_RUNTIME_FILES,
    HunkChoice,
    HunkId,
    apply_choices,
    ids_decided_together,
)
from chirp_migrate.rules import all_rules
from chirp_migrate.transaction.commit import unwritable_files


def without_read_only_files(plan: Plan) -> Plan:
    """Return ``plan`` without the files that this user may not write; ``skipped`` of the result lists these files.

    Hunks of other files that must be accepted together with hunks of these files are removed, too, and so are rewrites
    of loaders that gain only if an object in one of these files becomes picklable. Findings whose rewrite is removed
    become reports. If one file of the scaffold is removed, the whole scaffold is removed.

    Raises:
        WriteRefused: this user may not write a file that adds the runtime to the project, such as
            ``requirements.txt``, and another file of the plan needs the runtime.
    """
    files = unwritable_files(plan)
    if not files:
        return plan
    paths, notes = {one.path for one in files}, {file.path: file.note for file in plan.files}
    if any(notes[path] == "scaffold" for path in paths):
        paths |= {path for path, note in notes.items() if note == "scaffold"}
    useless, together = _loaders_without_gain(plan, paths), ids_decided_together(plan)
    removed = {other for one in together if one[0] in paths or one in useless for other in together[one]}
    selected = apply_choices(plan, {one: HunkChoice(accepted=False) for one in removed})
    needed = [one for one in files if notes[one.path] in NOTES_OF_RUNTIME_FILES]
    if needed and any_file_needs_runtime(selected.files):
        raise WriteRefused(
            f"nothing was written, because the migrated code needs `chirpid_patch`, which {needed[0].path} adds to the "
            f"project: {needed[0].reason}."
        )
    findings = tuple(_reported(one) if one.status is FindingStatus.REFUSED else one for one in selected.findings)
    return replace(selected, findings=findings, skipped=(*selected.skipped, *files))


def _loaders_without_gain(plan: Plan, paths: Collection[str]) -> set[HunkId]:
    """Return the hunks of loaders whose only gain is a picklable object in one of the files ``paths``."""
    if plan.options.all_loaders:
        return set()
    codes = {rule.code for rule in all_rules() if rule.counts_sites}
    return {
        (one.path, one.hunk)
        for one in plan.findings
        if one.rule in codes and one.status is FindingStatus.REWRITE and one.hunk is not None
        if one.gain is not None and one.gain.kind is GainKind.PICKLABLE and one.gain.path in paths
    }


def _reported(finding: Finding) -> Finding:
    return replace(
        finding,
        status=FindingStatus.REPORT,
        safety=Safety.ADVICE,
        hunk=None,
        why=NOT_WRITTEN,
        message=f"not rewritten: a file that the rewrite changes is read-only; if it can be written: {finding.message}",
    )
