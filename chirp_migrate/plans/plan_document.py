"""Documents of plans and runs: ``plan -o``, the journal's ``plan.json``, ``apply --json`` and ``check --json``.

docs/json.md describes each field. A new field gets a default, so that documents of earlier versions can be read.
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
    "LoaderAccount",
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
    """The replacement of the source from start up to, not including, end by text.

    For a notebook, the positions are in the module of its code cells.
    """

    start: _Place
    end: _Place
    text: str


class HunkEntry(Struct, frozen=True, kw_only=True):
    """Edits that make sense only together.

    Attributes:
        number: number of the hunk, from 1 in each file.
        lines: first and last line of each changed range; the last is one less than the first for inserted lines.
        edits: the edits of the hunk.
        imports: the imports that the edits need; they are added with any hunk that needs them.
        decision: decision of a review; None if it is not decided.
        edited: the user's own edits in place of these, or None.
        together: calls that build loaders, as path:line; hunks of other files with the same calls are decided together
            with this one.
    """

    number: int
    lines: list[tuple[int, int]]
    edits: list[Replacement]
    imports: list[str]
    decision: Decision | None
    edited: list[Replacement] | None
    together: list[str] = []


class FileEntry(Struct, frozen=True, kw_only=True):
    """A written file: posix path, reason, and hashes of its bytes before (None: created) and after."""

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
    """A file of a plan: a rewritten file has ``hunks`` and ``public``, any other file ``content`` and ``decision``.

    Attributes:
        public: names that other files import from this file.
        hunks: the changes that can be accepted or refused.
        content: the whole content; bytes that are not UTF-8 are lone surrogates.
        decision: decision of a review on the whole file.
    """

    public: list[str] | UnsetType = UNSET
    hunks: list[HunkEntry] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    decision: Decision | UnsetType | None = UNSET


class LoaderAccount(Struct, frozen=True, kw_only=True):
    """Counts of the outcomes of all loaders (``sites``) and of the findings of every rule."""

    sites: dict[str, int]
    listed_by_reason: dict[str, int]
    rules: dict[str, dict[str, int]]
    files_not_handled: int


class RunDocument(Struct, frozen=True, kw_only=True):
    """The document of a finished or simulated run; for ``check``, also whether remarks count, and its exit code."""

    schema: Literal[1] = SCHEMA
    tool: str
    files: list[FileEntry]
    findings: list[Finding]
    skipped: list[SkippedFile]
    left_out: list[SkippedFile]
    ledger: LoaderAccount
    notes: list[str]
    strict: bool | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET


class PlanDocument(Struct, frozen=True, kw_only=True):
    """The document that ``plan`` writes, ``review`` decides on, and ``apply --plan`` applies.

    ``reviewed``: whether a review has begun; every hunk must then be decided before the plan is applied.
    """

    schema: Literal[1] = SCHEMA
    kind: Literal["chirp-migrate plan"] = KIND
    tool: str
    options: PlanOptions
    reviewed: bool
    files: list[PlannedFile]
    findings: list[Finding]
    skipped: list[SkippedFile]
    left_out: list[SkippedFile]
    ledger: LoaderAccount
    notes: list[str]
