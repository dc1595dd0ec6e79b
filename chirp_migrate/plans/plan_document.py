"""The types of the JSON documents of ``plan -o``, ``apply --json``, ``check --json`` and the journal's ``plan.json``.

docs/json.md describes each field. A new field must have a default, so that this version can read older documents.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from chirp_migrate.plans.plan import SCHEMA, FilePlan, Finding, Note, PlanOptions, SkippedFile, sha256

__all__ = [
    "KIND",
    "Decision",
    "FileEntry",
    "HunkEntry",
    "LoaderCounts",
    "PlanDocument",
    "PlanJson",
    "PlannedFileEntry",
    "ReplacementEntry",
]

KIND: Final = "chirp-migrate plan"

Decision = Literal["accepted", "refused"]
_FromOne = Annotated[int, Meta(ge=1)]
_Place = Annotated[tuple[_FromOne, _FromOne], Meta(description="Line and column, in code points of the source.")]
_Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class ReplacementEntry(Struct, frozen=True):
    """A replacement: text replaces the source from start up to end. The character at end is not replaced.

    For a notebook, the positions refer to the module that consists of its code cells.
    """

    start: _Place
    end: _Place
    text: str


class HunkEntry(Struct, frozen=True, kw_only=True):
    """Edits that make sense only together.

    Attributes:
        number: number of the hunk in its file, from 1.
        lines: first and last line of each changed range. For an insertion, the last line is the line above the first.
        edits: the edits of the hunk.
        imports: the imports that the edits need. An import is added if any accepted hunk needs it.
        decision: decision of a review; None if the hunk is not decided yet.
        edited: the edits that the user wrote in place of edits; None if the user wrote none.
        together: calls that build loaders, as path:line. A review accepts or refuses all hunks with the same call
            together, also in other files.
    """

    number: int
    lines: list[tuple[int, int]]
    edits: list[ReplacementEntry]
    imports: list[str]
    decision: Decision | None
    edited: list[ReplacementEntry] | None
    together: list[str] = []


class FileEntry(Struct, frozen=True, kw_only=True):
    """A written file: posix path, reason, and hashes of the old bytes (None for an added file) and of the new bytes."""

    path: str
    action: Literal["rewrite", "create"]
    note: Note
    sha256_before: _Hash | None
    sha256_after: _Hash

    @classmethod
    def of(cls, file: FilePlan) -> FileEntry:
        """Return the entry of one file of a plan."""
        action: Literal["rewrite", "create"] = "create" if file.before is None else "rewrite"
        before = None if file.before is None else sha256(file.before)
        after = sha256(file.after)
        return cls(path=file.path, action=action, note=file.note, sha256_before=before, sha256_after=after)


class PlannedFileEntry(FileEntry, frozen=True, kw_only=True):
    """A file of a plan. A rewritten file has ``hunks`` and ``public``; any other file has ``content`` and ``decision``.

    Attributes:
        public: names that other files import from this file.
        hunks: the changes that can be accepted or refused.
        content: the whole content as text. A byte that is not valid UTF-8 is stored as a lone surrogate.
        decision: decision of a review on the whole file.
    """

    public: list[str] | UnsetType = UNSET
    hunks: list[HunkEntry] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    decision: Decision | UnsetType | None = UNSET


class LoaderCounts(Struct, frozen=True, kw_only=True):
    """Numbers of loaders (``sites``) and of findings of each rule, by outcome."""

    sites: dict[str, int]
    listed_by_reason: dict[str, int]
    rules: dict[str, dict[str, int]]
    files_not_handled: int


class PlanJson(Struct, frozen=True, kw_only=True):
    """The document of a finished or simulated run. Only ``check`` adds ``strict`` and ``exit_code``."""

    schema: Literal[1] = SCHEMA
    tool: str
    files: list[FileEntry]
    findings: list[Finding]
    skipped: list[SkippedFile]
    left_out: list[SkippedFile]
    ledger: LoaderCounts
    notes: list[str]
    strict: bool | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET


class PlanDocument(Struct, frozen=True, kw_only=True):
    """The document of a plan: ``plan`` writes it, ``review`` adds decisions, and ``apply --plan`` applies it.

    ``reviewed``: whether a review has begun. After that, every hunk must be decided before the plan can be applied.
    """

    schema: Literal[1] = SCHEMA
    kind: Literal["chirp-migrate plan"] = KIND
    tool: str
    options: PlanOptions
    reviewed: bool
    files: list[PlannedFileEntry]
    findings: list[Finding]
    skipped: list[SkippedFile]
    left_out: list[SkippedFile]
    ledger: LoaderCounts
    notes: list[str]
