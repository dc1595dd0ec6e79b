"""Read and write plan files.

Users can apply a plan file on another machine: if the source files are the same, ``apply`` writes the same bytes.

A plan file contains the edits, and hashes of the source files. So ``apply`` accepts a plan only for the sources from
which the plan was made. This module checks the whole plan file, because any program may have changed the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import UNSET, structs

from chirp_migrate import __version__
from chirp_migrate.console.json_document import SchemaTooNew, read_document
from chirp_migrate.edits.apply_hunks import text_with_hunks
from chirp_migrate.engine.project_files import decode_source
from chirp_migrate.errors import UsageProblem, WriteRefused
from chirp_migrate.plans.plan import Edit, FilePlan, Hunk, Plan, sha256
from chirp_migrate.plans.plan_document import (
    Decision,
    FileEntry,
    HunkEntry,
    PlanDocument,
    PlanJson,
    PlannedFileEntry,
    ReplacementEntry,
)
from chirp_migrate.review.blocks import SourceLines
from chirp_migrate.review.loader_account import LoaderLedger
from chirp_migrate.review.selection import WHOLE_FILE, Choices, HunkChoice, HunkId
from chirp_migrate.source.files import read_file
from chirp_migrate.source.text import UnreadableSource
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.module import Module, UnparsableModule
from chirp_migrate.transaction.journal_schema import check_relative_path

#: A function that returns the old and new bytes of a file. The arguments are the path, the SHA-256 of the old bytes,
#: and the SHA-256 of the new bytes. If the new bytes are None, the plan reader computes them from the edits in the
#: plan. If the function does not find bytes with these hashes, its result is None instead of a pair.
ContentLookup = Callable[[str, str | None, str], tuple[bytes | None, bytes | None] | None]


@dataclass(frozen=True)
class PlanFile:
    """The contents of a plan file.

    Attributes:
        plan: the plan as it was made. The decisions of the review are not applied to this plan.
        choices: the decisions of the review so far.
        reviewed: whether a review has begun. If True, ``apply`` refuses the plan until the user has decided on every
            hunk.
    """

    plan: Plan
    choices: Choices
    reviewed: bool


def plan_document(plan: Plan, choices: Choices | None = None) -> PlanDocument:
    """Convert a plan to the document of a plan file, which :func:`read_plan` reads.

    Args:
        plan: the plan.
        choices: the decisions of the review so far; None if no review has begun.
    """
    return PlanDocument(
        tool=f"chirp-migrate {__version__}",
        options=plan.options,
        reviewed=choices is not None,
        files=[_planned_file(file, choices or {}) for file in plan.files],
        findings=list(plan.findings),
        skipped=list(plan.skipped),
        left_out=list(plan.left_out),
        ledger=LoaderLedger.of(plan).to_counts(),
        notes=list(plan.notes),
    )


def run_document(plan: Plan, **more: Any) -> PlanJson:
    """Return the JSON document of a run of ``apply`` or ``check``, without the contents of files.

    Args:
        plan: the plan of the run.
        more: values of the fields ``strict`` and ``exit_code`` of the document, by field name. Only the command
            ``check`` passes these values.
    """
    return PlanJson(
        tool=f"chirp-migrate {__version__}",
        files=[FileEntry.of(file) for file in plan.files],
        findings=list(plan.findings),
        skipped=list(plan.skipped),
        left_out=list(plan.left_out),
        ledger=LoaderLedger.of(plan).to_counts(),
        notes=list(plan.notes),
        **more,
    )


def load_plan(file: Path, root: Path) -> PlanFile:
    """Read the plan in ``file`` for the project at ``root``.

    Raises:
        UsageProblem: the plan file cannot be read, or is not a valid plan (see :func:`read_plan`).
        WriteRefused: source files have changed since the plan was made.
    """
    try:
        data = read_file(file)
    except OSError as error:
        raise UsageProblem(f"{file} cannot be read ({error.strerror}): pass a plan file that you can read.") from None
    return read_plan(data, str(file), root)


def read_plan(plan_bytes: bytes, name: str, root: Path) -> PlanFile:
    """Read a plan for the project at ``root``, and check that its source files are unchanged.

    Args:
        plan_bytes: bytes of the plan file.
        name: name of the plan file in error messages.
        root: folder to which the paths of the plan are relative.

    Raises:
        UsageProblem: the data is not a plan, a newer version of chirp-migrate wrote the plan, or a path in the plan
            leads outside of the project.
        WriteRefused: source files have changed since the plan was made. The message lists these files.
    """
    tree = _CurrentFiles(root)
    try:
        plan_file = _PlanReader(read_document(plan_bytes, PlanDocument), root, tree).plan_file
    except SchemaTooNew as error:
        raise UsageProblem(
            f"{name} was made by {error.tool}, and this version cannot read the plan ({error}): update chirp-migrate."
        ) from None
    except ValueError as error:
        raise UsageProblem(
            f"{name} is not a plan that can be applied ({error}): make a plan with `chirp-migrate plan PATH -o FILE`."
        ) from None
    if tree.changed:
        raise WriteRefused(
            f"these files changed after {name} was made: {', '.join(tree.changed)}; nothing was written. Make a new "
            f"plan: chirp-migrate plan {quote(str(root))} -o {quote(name)}"
        )
    return plan_file


def read_applied_plan(document: PlanDocument, root: Path, stored_bytes: ContentLookup) -> Plan:
    """Return the plan of an earlier run of ``apply``.

    The journal ``.chirp-migrate/`` stores this plan, and the bytes of the changed files before and after the run.

    Args:
        document: the plan of the run, which the journal stores.
        root: folder to which the paths of the plan are relative.
        stored_bytes: function that returns the stored bytes of a file before and after the run (see
            :data:`ContentLookup`). The result omits each file for which the function returns None.

    Raises:
        ValueError: the document is not a valid plan. The message gives the reason.
    """
    return _PlanReader(document, root, stored_bytes).plan_file.plan


def keep_earlier_decisions(old: PlanDocument, new: PlanDocument) -> PlanDocument:
    """Return the plan ``new`` with the decisions that an earlier review made on equal hunks of the plan ``old``.

    A hunk of ``new`` equals a hunk of ``old`` if both have the same edits and imports, and if their source file has not
    changed.
    """
    before = {entry.path: entry for entry in old.files}
    files = [_with_decisions(file, before[file.path]) if file.path in before else file for file in new.files]
    return structs.replace(new, files=files, reviewed=True)


def _with_decisions(file: PlannedFileEntry, old: PlannedFileEntry) -> PlannedFileEntry:
    if old.sha256_before != file.sha256_before:
        return file
    if not file.hunks or not old.hunks:
        return structs.replace(file, decision=old.decision) if old.content == file.content else file
    decided = {(str(one.edits), str(one.imports)): one for one in old.hunks}
    hunks = []
    for hunk in file.hunks:
        one = decided.get((str(hunk.edits), str(hunk.imports)), hunk)
        hunks.append(structs.replace(hunk, decision=one.decision, edited=one.edited))
    return structs.replace(file, hunks=hunks)


def _planned_file(file: FilePlan, choices: Choices) -> PlannedFileEntry:
    entry = structs.asdict(FileEntry.of(file))
    if not file.hunks or file.before is None:
        content = file.after.decode("utf-8", errors="surrogateescape")
        return PlannedFileEntry(**entry, content=content, decision=_decision(choices.get((file.path, WHOLE_FILE))))
    lines = SourceLines(decode_source(file.path, file.before).text)
    hunks = [_hunk_entry(hunk, lines, choices.get((file.path, hunk.number))) for hunk in file.hunks]
    return PlannedFileEntry(**entry, public=sorted(file.public), hunks=hunks)


def _hunk_entry(hunk: Hunk, lines: SourceLines, choice: HunkChoice | None) -> HunkEntry:
    return HunkEntry(
        number=hunk.number,
        lines=[(block.first, block.end - 1) for block in lines.blocks(hunk.edits)],
        edits=_replacements(hunk.edits, lines),
        imports=hunk.import_lines,
        decision=_decision(choice),
        edited=None if choice is None or choice.edits is None else _replacements(choice.edits, lines),
        together=sorted(hunk.together),
    )


def _replacements(edits: Iterable[Edit], lines: SourceLines) -> list[ReplacementEntry]:
    return [ReplacementEntry(lines.position(edit.start), lines.position(edit.end), edit.replacement) for edit in edits]


def _decision(choice: HunkChoice | None) -> Decision | None:
    return None if choice is None else "accepted" if choice.accepted else "refused"


class _CurrentFiles:
    """A :data:`ContentLookup` that reads the current bytes of the files in the project.

    Attributes:
        changed: paths of the files that differ from the hashes in the plan.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.changed: list[str] = []

    def __call__(self, path: str, before: str | None, after: str) -> tuple[bytes | None, bytes | None] | None:
        place = self._root / path
        if before is None:
            if not os.path.lexists(place):
                return None, None
            self.changed.append(f"{path} (it exists now)")
            return None
        try:
            content = read_file(place)
        except OSError:
            content = None
        if content is not None and sha256(content) == before:
            return content, None
        self.changed.append(path)
        return None


class _PlanReader:
    """Converts the document of a plan file to a :class:`PlanFile` (attribute ``plan_file``)."""

    def __init__(self, whole: PlanDocument, root: Path, contents: ContentLookup) -> None:
        self._contents = contents
        self._style = ImportStyle(root, whole.options.vendor)
        self._choices: dict[HunkId, HunkChoice] = {}
        if len({entry.path for entry in whole.files}) != len(whole.files):
            raise ValueError("the plan contains a file twice")
        files = tuple(file for entry in whole.files if (file := self._file(entry)) is not None)
        plan = Plan(
            root,
            files,
            tuple(whole.findings),
            tuple(whole.skipped),
            tuple(whole.notes),
            tuple(whole.left_out),
            whole.options,
        )
        self.plan_file = PlanFile(plan, self._choices, whole.reviewed)

    def _file(self, entry: PlannedFileEntry) -> FilePlan | None:
        path = check_relative_path(entry.path)
        contents = self._contents(path, entry.sha256_before, entry.sha256_after)
        if contents is None:
            return None
        before, after = contents
        if before is not None and entry.hunks is not UNSET:
            file = self._rewritten(path, before, after, entry, entry.hunks)
        elif after is not None:
            return FilePlan(path, before, after, entry.note)
        elif entry.content is UNSET or entry.decision is UNSET:
            raise ValueError(f"the field `content` or `decision` of {path} is missing")
        else:
            file = FilePlan(path, before, entry.content.encode("utf-8", errors="surrogateescape"), entry.note)
            self._choose((path, WHOLE_FILE), entry.decision, None)
        if after is None and sha256(file.after) != entry.sha256_after:
            raise ValueError(
                f"the edits of {path} do not result in the planned content, because the plan was changed or another "
                "version of chirp-migrate made the plan"
            )
        return file

    def _rewritten(
        self, path: str, before: bytes, after: bytes | None, entry: PlannedFileEntry, entries: Sequence[HunkEntry]
    ) -> FilePlan:
        if after is None and entry.public is UNSET:
            raise ValueError(f"the field `public` of {path} is missing")
        public = frozenset(entry.public or ())
        try:
            source = decode_source(path, before)
            lines = SourceLines(source.text)
            hunks = tuple(self._hunk(path, one, lines) for one in entries)
            lines.blocks({edit for hunk in hunks for edit in hunk.edits})  # raises an error if edits overlap
            if after is None:
                after = source.encode(text_with_hunks(Module(path, source.text), hunks, public, self._style))
                if not hunks or [hunk.number for hunk in hunks] != list(range(1, len(hunks) + 1)):
                    raise ValueError(f"the hunks of {path} are not numbered 1, 2, 3, …")
        except (UnparsableModule, UnreadableSource, SyntaxError) as error:
            raise ValueError(f"{path}: {error}") from None
        return FilePlan(path, before, after, entry.note, hunks, public)

    def _hunk(self, path: str, entry: HunkEntry, lines: SourceLines) -> Hunk:
        edited = None if entry.edited is None else _edits(entry.edited, lines)
        self._choose((path, entry.number), entry.decision, edited)
        imports = frozenset(_import(one) for one in entry.imports)
        return Hunk(entry.number, _edits(entry.edits, lines), imports, frozenset(entry.together))

    def _choose(self, one: HunkId, decision: Decision | None, edits: tuple[Edit, ...] | None) -> None:
        if decision is not None:
            self._choices[one] = HunkChoice(decision == "accepted", edits)


def _edits(entries: Iterable[ReplacementEntry], lines: SourceLines) -> tuple[Edit, ...]:
    return tuple(Edit(lines.offset(*entry.start), lines.offset(*entry.end), entry.text) for entry in entries)


def _import(line: str) -> tuple[str, str]:
    words = line.split(" ", 3)
    if len(words) != 4 or (words[0], words[2]) != ("from", "import"):
        raise ValueError(f"{line!r} is not an import of the form `from module import name`")
    return words[1], words[3]
