"""Apply the decisions of a review to a plan: remove refused hunks, and use the user's own edits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from chirp_migrate.additions.dependency import any_file_needs_runtime
from chirp_migrate.edits.apply_hunks import text_with_hunks
from chirp_migrate.engine.hunks import group_connected_items
from chirp_migrate.engine.project_files import decode_source
from chirp_migrate.errors import WriteRefused
from chirp_migrate.plans.plan import Edit, FilePlan, FindingStatus, Hunk, Plan
from chirp_migrate.source.text import UnreadableSource
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.module import Module, UnparsableModule

#: The identifier of a hunk in a plan: (path of the file, number of the hunk in this file).
HunkId = tuple[str, int]

#: Stands for the number of the hunk if the user decides on a whole file, such as an added file.
WHOLE_FILE = 0

#: Values of ``FilePlan.note`` for files that add the runtime to the project. If no other written file imports the
#: runtime, these files are useless.
NOTES_OF_RUNTIME_FILES = frozenset({"dependency", "vendor"})


@dataclass(frozen=True)
class HunkChoice:
    """The decision of the user on a hunk.

    Attributes:
        accepted: whether the user accepted the hunk; False if the user refused the hunk.
        edits: the edits with which the user replaced the planned edits; None if the user changed nothing.
    """

    accepted: bool
    edits: tuple[Edit, ...] | None = None


Choices = Mapping[HunkId, HunkChoice]


def decidable_hunk_ids(plan: Plan) -> list[HunkId]:
    """Return the identifiers of all hunks and whole files on which the user decides, in the order of the plan."""
    return [
        (file.path, number) for file in plan.files for number in ([hunk.number for hunk in file.hunks] or [WHOLE_FILE])
    ]


def ids_decided_together(plan: Plan) -> dict[HunkId, list[HunkId]]:
    """Return a dictionary: identifier of a hunk or whole file → all identifiers that must get the same decision.

    Two hunks must get the same decision if their sets ``together`` contain the same loader call. If A must get the same
    decision as B, and B the same as C, then A and C also get the same decision.
    """
    ids = decidable_hunk_ids(plan)
    calls = {(file.path, hunk.number): hunk.together for file in plan.files for hunk in file.hunks}
    first: dict[str, int] = {}
    pairs = [(first.setdefault(call, at), at) for at, one in enumerate(ids) for call in calls.get(one, ())]
    members: dict[int, list[HunkId]] = {}
    groups = group_connected_items(len(ids), pairs)
    for one, group in zip(ids, groups, strict=True):
        members.setdefault(group, []).append(one)
    return {one: members[group] for one, group in zip(ids, groups, strict=True)}


def apply_choices(plan: Plan, choices: Choices) -> Plan:
    """Return ``plan`` without refused hunks, and with the user's own edits. Hunks without a decision stay in the plan.

    If no remaining file imports ``chirpid_patch``, the returned plan does not add ``chirpid_patch`` as a dependency or
    as a copy.

    Raises:
        WriteRefused: the accepted hunks of a file depend on refused hunks, or the user's edits are not valid Python.
    """
    style = ImportStyle(plan.root, plan.is_vendored)
    files = [chosen for file in plan.files if (chosen := _select_hunks(file, choices, style)) is not None]
    if any_file_needs_runtime(plan.files) and not any_file_needs_runtime(files):
        files = [file for file in files if file.note not in NOTES_OF_RUNTIME_FILES]
    findings = tuple(
        replace(one, status=FindingStatus.REFUSED)
        if one.status is FindingStatus.REWRITE and one.hunk is not None and _is_refused(choices, (one.path, one.hunk))
        else one
        for one in plan.findings
    )
    return replace(plan, files=tuple(files), findings=findings)


def _select_hunks(file: FilePlan, choices: Choices, style: ImportStyle) -> FilePlan | None:
    if not file.hunks:
        return None if _is_refused(choices, (file.path, WHOLE_FILE)) else file
    kept = tuple(
        _choose_edits(file, hunk, choices) for hunk in file.hunks if not _is_refused(choices, (file.path, hunk.number))
    )
    if kept == file.hunks:
        return file
    if not kept or file.before is None:
        return None
    source = decode_source(file.path, file.before)
    try:
        after = source.encode(text_with_hunks(Module(file.path, source.text), kept, file.public, style))
    except (UnparsableModule, SyntaxError) as error:
        raise WriteRefused(
            f"{file.path}: with the accepted hunks, the file is not valid Python ({error}); nothing was changed."
        ) from None
    except UnreadableSource as error:
        raise WriteRefused(
            f"{file.path}: the accepted hunks depend on refused hunks ({error}); nothing was changed."
        ) from None
    return replace(file, after=after, hunks=kept) if after != file.before else None


def _choose_edits(file: FilePlan, hunk: Hunk, choices: Choices) -> Hunk:
    choice = choices.get((file.path, hunk.number))
    return hunk if choice is None or choice.edits is None else replace(hunk, edits=choice.edits)


def _is_refused(choices: Choices, one: HunkId) -> bool:
    choice = choices.get(one)
    return choice is not None and not choice.accepted
