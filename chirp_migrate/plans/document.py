"""A plan and what a run did, as documents: ``plan -o``, the journal's ``plan.json``, ``apply`` and ``check --json``.

docs/json.md says what each field is. A field that is added has a default, so that documents of earlier versions are
read.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from chirp_migrate.plans.plan import SCHEMA, FilePlan, Finding, Note, PlanOptions, Skipped, sha256

__all__ = [
    "KIND",
    "Account",
    "Decision",
    "FileEntry",
    "HunkEntry",
    "PlanDocument",
    "PlannedFile",
    "Replacement",
    "RunDocument",
]

KIND: Final = "chirp-migrate plan"

Decision = Literal["accepted", "refused"]
_FromOne = Annotated[int, Meta(ge=1)]
_Place = Annotated[tuple[_FromOne, _FromOne], Meta(description="Line and column, in code points of the source.")]
_Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class Replacement(Struct, frozen=True):
    """The source from start up to, not including, end becomes text; of a notebook, the module of its code cells."""

    start: _Place
    end: _Place
    text: str


class HunkEntry(Struct, frozen=True, kw_only=True):
    """Edits that make sense only together.

    Attributes:
        number: from 1 in each file.
        lines: first and last line of each run that changes; the last is one less where lines are inserted.
        edits: what it changes.
        imports: that the edits need; they come with any hunk that needs them.
        decision: of a review; None where nothing is decided.
        edited: what the user wrote in the place of the edits, or None.
        together: calls that build loaders, as path:line; hunks of other files with the same are decided with this one.
    """

    number: int
    lines: list[tuple[int, int]]
    edits: list[Replacement]
    imports: list[str]
    decision: Decision | None
    edited: list[Replacement] | None
    together: list[str] = []


class FileEntry(Struct, frozen=True, kw_only=True):
    """One file that is written: posix path, why, and hashes of its bytes before (None: created) and after."""

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


class PlannedFile(FileEntry, frozen=True, kw_only=True):
    """A file of a plan: rewritten source has ``hunks`` and ``public``, any other file ``content`` and ``decision``.

    Attributes:
        public: names that other files take from this one.
        hunks: what can be accepted or refused in it.
        content: all of it; bytes that are not UTF-8 as lone surrogates.
        decision: of a review, on the whole file.
    """

    public: list[str] | UnsetType = UNSET
    hunks: list[HunkEntry] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    decision: Decision | UnsetType | None = UNSET


class Account(Struct, frozen=True, kw_only=True):
    """Counts of the outcomes of all loaders (``sites``) and of the findings of every rule."""

    sites: dict[str, int]
    listed_by_reason: dict[str, int]
    rules: dict[str, dict[str, int]]
    files_not_handled: int


class RunDocument(Struct, frozen=True, kw_only=True):
    """A finished or simulated run; for ``check``, also whether remarks count, and its exit code."""

    schema: Literal[1] = SCHEMA
    tool: str
    files: list[FileEntry]
    findings: list[Finding]
    skipped: list[Skipped]
    left_out: list[Skipped]
    ledger: Account
    notes: list[str]
    strict: bool | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET


class PlanDocument(Struct, frozen=True, kw_only=True):
    """The document that ``plan`` writes, ``review`` decides on, and ``apply --plan`` applies.

    ``reviewed``: whether a review was begun; then every hunk must be decided before the plan is applied.
    """

    schema: Literal[1] = SCHEMA
    kind: Literal["chirp-migrate plan"] = KIND
    tool: str
    options: PlanOptions
    reviewed: bool
    files: list[PlannedFile]
    findings: list[Finding]
    skipped: list[Skipped]
    left_out: list[Skipped]
    ledger: Account
    notes: list[str]
