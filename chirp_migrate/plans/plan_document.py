"""Define the JSON documents of ``plan -o``, ``apply --json``, ``check --json`` and the journal's ``plan.json``.

docs/json.md describes each field. A new field must have a default, so that the program can still read documents of
older versions.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from chirp_migrate.plans.plan import SCHEMA, FilePlan, Finding, Note, PlanOptions, SkippedFile, sha256

KIND: Final = "chirp-migrate plan"

Decision = Literal["accepted", "refused"]
_FromOne = Annotated[int, Meta(ge=1)]
_Place = Annotated[tuple[_FromOne, _FromOne], Meta(description="Line and column (in code points). Both count from 1.")]
_Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class ReplacementEntry(Struct, frozen=True):
    """A replacement: the new text replaces the source code from start up to the character before end.

    In a notebook, start and end are positions in a module that consists of all code cells.
    """

    start: _Place
    end: _Place
    text: str


class HunkEntry(Struct, frozen=True, kw_only=True):
    """A hunk of a plan: edits that are accepted or refused together.

    Attributes:
        number: number of the hunk in its file, counted from 1.
        lines: pairs of the first and last line of each changed range. The pair (5, 4) is an insertion before line 5.
        edits: the edits of the hunk.
        imports: the imports that the edits need. ``apply`` adds an import if at least one accepted hunk needs the
            import.
        decision: the decision of the user in a review; None if the user has not decided on the hunk yet.
        edited: the edits that the user wrote in a review, and that ``apply`` makes instead of ``edits``; None if the
            user wrote no edits.
        together: calls that build loaders, as path:line. The rewrites of these calls must be accepted or refused
            together with this hunk. So hunks that list the same call belong together, even if they are in different
            files.
    """

    number: int
    lines: list[tuple[int, int]]
    edits: list[ReplacementEntry]
    imports: list[str]
    decision: Decision | None
    edited: list[ReplacementEntry] | None
    together: list[str] = []


class FileEntry(Struct, frozen=True, kw_only=True):
    """A file that is written: its posix path, the reason, and SHA-256 hashes of its old and new bytes.

    For an added file, the hash of the old bytes is None.
    """

    path: str
    note: Note
    sha256_before: _Hash | None
    sha256_after: _Hash

    @classmethod
    def of(cls, file: FilePlan) -> FileEntry:
        """Return the entry that describes ``file``."""
        before = None if file.before is None else sha256(file.before)
        return cls(path=file.path, note=file.note, sha256_before=before, sha256_after=sha256(file.after))


class PlannedFileEntry(FileEntry, frozen=True, kw_only=True):
    """A file of a plan.

    A rewritten file has the fields ``hunks`` and ``public``. Any other file has the fields ``content`` and
    ``decision``.

    Attributes:
        public: the names that other files import from this file.
        hunks: the changes that can be accepted or refused.
        content: the whole new content as text. A lone surrogate stands for a byte that is not valid UTF-8.
        decision: the decision of the user on the whole file; None if the user has not decided yet.
    """

    public: list[str] | UnsetType = UNSET
    hunks: list[HunkEntry] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    decision: Decision | UnsetType | None = UNSET


class LoaderCounts(Struct, frozen=True, kw_only=True):
    """The numbers of loaders and findings.

    The field ``sites`` has the number of loaders for each outcome, such as migrated. The field ``rules`` has the number
    of findings for each rule and each outcome.
    """

    sites: dict[str, int]
    listed_by_reason: dict[str, int]
    rules: dict[str, dict[str, int]]
    files_not_handled: int


class PlanJson(Struct, frozen=True, kw_only=True):
    """The JSON document of a run of ``apply`` or ``check``. Only ``check`` sets ``strict`` and ``exit_code``."""

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
    """The document of a plan file.

    ``plan`` writes a plan file, ``review`` adds decisions to the file, and ``apply --plan`` applies the plan in the
    file.

    The field ``reviewed`` is true if a review has begun. Then ``apply`` refuses the plan until the user has decided on
    every hunk.
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
