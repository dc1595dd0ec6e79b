"""The types of the JSON documents of ``plan -o``, ``apply --json``, ``check --json`` and the journal's ``plan.json``.

docs/json.md describes each field. A new field must have a default, so that this version can read older documents.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from chirp_migrate.plans.plan import SCHEMA, FilePlan, Finding, Note, PlanOptions, SkippedFile, sha256

KIND: Final = "chirp-migrate plan"

Decision = Literal["accepted", "refused"]
_FromOne = Annotated[int, Meta(ge=1)]
_Place = Annotated[tuple[_FromOne, _FromOne], Meta(description="Line and column, in code points of the source.")]
_Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class ReplacementEntry(Struct, frozen=True):
    """A replacement: text replaces the source between start and end. The character at end is not replaced.

    For a notebook, start and end are positions in the text of all code cells, joined to one module.
    """

    start: _Place
    end: _Place
    text: str


class HunkEntry(Struct, frozen=True, kw_only=True):
    """One hunk of a plan: edits that make sense only together.

    Attributes:
        number: number of the hunk in its file, from 1.
        lines: first and last line of each changed range. For an insertion before line 5, the pair is (5, 4).
        edits: the edits of the hunk.
        imports: the imports that the edits need. An import is added if any accepted hunk needs the import.
        decision: decision of a review; None if the hunk is not decided yet.
        edited: the edits that the user wrote in place of the field edits; None without such edits.
        together: calls that build loaders, as path:line. All hunks that have a call in common are accepted or refused
            together, also in different files.
    """

    number: int
    lines: list[tuple[int, int]]
    edits: list[ReplacementEntry]
    imports: list[str]
    decision: Decision | None
    edited: list[ReplacementEntry] | None
    together: list[str] = []


class FileEntry(Struct, frozen=True, kw_only=True):
    """A written file: posix path, reason, and the SHA-256 of the old bytes (None for an added file) and new bytes."""

    path: str
    note: Note
    sha256_before: _Hash | None
    sha256_after: _Hash

    @classmethod
    def of(cls, file: FilePlan) -> FileEntry:
        """Return the entry of one file of a plan."""
        before = None if file.before is None else sha256(file.before)
        return cls(path=file.path, note=file.note, sha256_before=before, sha256_after=sha256(file.after))


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
    """The number of loaders by outcome (``sites``), and the number of findings by rule and outcome (``rules``)."""

    sites: dict[str, int]
    listed_by_reason: dict[str, int]
    rules: dict[str, dict[str, int]]
    files_not_handled: int


class PlanJson(Struct, frozen=True, kw_only=True):
    """The JSON document of a finished or simulated run. Only ``check`` sets ``strict`` and ``exit_code``."""

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
    """The document of a plan file. ``plan`` writes such files, ``review`` adds decisions, ``apply --plan`` reads them.

    ``reviewed``: whether a review has begun. After the beginning of a review, every hunk must be decided before the
    plan can be applied.
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
