"""A plan as pure data: every file's new bytes, every finding with its place and reason."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final, Literal, TypeVar

from msgspec import Struct, structs

__all__ = [
    "SCHEMA",
    "Edit",
    "FilePlan",
    "Finding",
    "Gain",
    "GainKind",
    "Hunk",
    "Import",
    "Note",
    "Plan",
    "PlanOptions",
    "Safety",
    "SkippedFile",
    "Status",
    "sha256",
]

#: Version of the documents: it changes when a field changes its meaning or is removed, not when a field is added.
SCHEMA: Final = 1


class Safety(str, Enum):
    """The effect of a rule on the training.

    ``SAFE``: same samples, order and values, or the same distribution of augmentations. ``BEHAVIOUR``: the result of
    the training differs. ``ADVICE``: a problem that is reported but not rewritten.
    """

    SAFE = "safe"
    BEHAVIOUR = "behaviour-changing"
    ADVICE = "advice"


class Status(str, Enum):
    """The outcome of a finding: rewritten, rewritten only with ``--unsafe``, or only reported.

    ``SUPPRESSED``: excluded by a comment or setting. ``REFUSED``: the user refused it in a review. ``FINE``: nothing is
    wrong, so it is only counted. ``UNCHANGED``: the rewrite would gain nothing (see :class:`Gain`).
    """

    REWRITE = "rewrite"
    OPT_IN = "opt-in"
    REPORT = "report"
    SUPPRESSED = "suppressed"
    REFUSED = "refused"
    FINE = "fine"
    UNCHANGED = "unchanged"


class GainKind(str, Enum):
    """The kind of a gain; docs/apply.md describes each kind."""

    BATCHED = "batched-reading"
    AT_RUN_TIME = "decided-at-run-time"
    PICKLABLE = "picklable-workers"
    PINNED = "pinned-transfers"
    NOTHING = "nothing"

    @property
    def words(self) -> str:
        """Return the kind as text for users."""
        return self.value.replace("-", " ")


@dataclass(frozen=True)
class Gain:
    """The gain of a rewrite, and the reason.

    Attributes:
        kind: the kind of gain.
        why: the reason, as the end of a sentence.
        path: file of the code that is the reason, relative to the root of the plan; "" if there is no such code.
        line: line of that code, from 1; 0 if there is no such code.
    """

    kind: GainKind
    why: str
    path: str = ""
    line: int = 0

    @property
    def text(self) -> str:
        """Return the reason with its place."""
        return f"{self.why}, {self.path}:{self.line}" if self.path else self.why


@dataclass(frozen=True)
class Edit:
    """Replacement of the code points ``start:end`` of a decoded text."""

    start: int
    end: int
    replacement: str


#: Why a file is written.
Note = Literal["rewrite", "scaffold", "dependency", "vendor", "ignore"]

#: An import that rewritten code needs: module, and the clause after ``import`` (``name`` or ``name as other``).
Import = tuple[str, str]


@dataclass(frozen=True)
class Hunk:
    """A rewrite that can be accepted or refused alone: edits that make sense only together.

    The imports that it needs, and the removal of code that it makes dead, are not part of it: they follow from the
    accepted hunks (see :func:`chirp_migrate.edits.apply_hunks.compose`).

    Attributes:
        number: number of the hunk, from 1 in each file, in the order of the text.
        edits: edits of the original text. Edits of different hunks do not overlap, but may be the same insertion.
        imports: the imports that the edits need.
        together: calls that build loaders, as ``path:line``. Hunks of other files with one of these calls are accepted
            or refused together with this hunk.
    """

    number: int
    edits: tuple[Edit, ...]
    imports: frozenset[Import] = frozenset()
    together: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Finding:
    """A finding of a rule.

    Attributes:
        rule: code of the rule, such as ``CHP001``.
        name: its kebab-case name.
        path: posix path relative to the root of the plan.
        line: 1-based line in the original file.
        column: 1-based column in the original file.
        message: what is wrong and what the rewrite does, or why it is not rewritten.
        safety: effect of the rewrite on the training.
        status: the outcome.
        why: short machine-readable reason why it is not rewritten, such as ``used-as-value``; may be empty.
        cell: in a notebook, the number of the cell that contains ``line``, from 1 over all cells.
        hunk: number of the hunk that rewrites it, or would rewrite it.
        reason: the reason for the rule.
        gain: the gain of rewriting a loader, or an object in loaders; None for any other finding.
    """

    rule: str
    name: str
    path: str
    line: int
    column: int
    message: str
    safety: Safety
    status: Status
    why: str = ""
    cell: int | None = None
    hunk: int | None = None
    reason: str = ""
    gain: Gain | None = None

    @property
    def message_with_gain(self) -> str:
        """Return the message, with kind and reason of the gain, if any."""
        if self.gain is None or self.status is Status.UNCHANGED:
            return self.message
        return f"{self.message}; gain: {self.gain.kind.words} ({self.gain.text})"

    @property
    def place(self) -> str:
        """Return the line, and in a notebook the cell, for messages."""
        return str(self.line) if self.cell is None else f"cell {self.cell}, line {self.line}"


@dataclass(frozen=True)
class FilePlan:
    """New bytes of one file.

    Attributes:
        path: posix path relative to the root of the plan.
        before: the bytes that the plan refers to; ``None`` if the plan creates the file.
        after: the new bytes.
        note: why the file is written.
        hunks: for a rewritten file, the changes that can be accepted or refused.
        public: for a rewritten file, the names that other files import from it, which stay.
    """

    path: str
    before: bytes | None
    after: bytes
    note: Note
    hunks: tuple[Hunk, ...] = ()
    public: frozenset[str] = frozenset()


class SkippedFile(Struct, frozen=True, omit_defaults=True):
    """A file that could not be handled, or an excluded one, and the reason.

    Attributes:
        path: posix path relative to the root of the plan.
        reason: the reason, as a message.
        loaders: for an excluded test, the number of its loaders that could be migrated.
    """

    path: str
    reason: str
    loaders: int = 0


class PlanOptions(Struct, frozen=True, kw_only=True):
    """The options of a plan.

    Attributes:
        rules: codes of the rules that ran; None means all.
        unsafe: whether rewrites that change behaviour are applied.
        notebooks: whether notebooks were checked; None: only those without stored outputs.
        scaffold: whether the factory and monitor modules, the notebook and the tests are added.
        vendor: whether the runtime is copied into the project.
        tests: whether tests were checked.
        exclude: globs of excluded files, in addition to those of the settings.
        all_loaders: whether loaders without a gain are rewritten.
    """

    rules: tuple[str, ...] | None = None
    unsafe: bool = False
    notebooks: bool | None = None
    scaffold: bool = True
    vendor: bool = False
    tests: bool = False
    exclude: tuple[str, ...] = ()
    all_loaders: bool = False


@dataclass(frozen=True)
class Plan:
    """All changes of one run in the tree at ``root`` (absolute), in a deterministic order.

    Attributes:
        skipped: files that could not be handled.
        notes: sentences about the run that belong to no single finding.
        left_out: excluded folders and files.
        options: the options of the run.
    """

    root: Path
    files: tuple[FilePlan, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[SkippedFile, ...]
    notes: tuple[str, ...] = ()
    left_out: tuple[SkippedFile, ...] = ()
    options: PlanOptions = field(default_factory=PlanOptions)

    def seen_from(self, folder: Path) -> Plan:
        """Return the plan with ``folder`` as its root: the present root or a folder above it."""
        between = self.root.relative_to(folder)
        return replace(
            self,
            root=folder,
            files=tuple(_joined_below(between, one) for one in _below(between, self.files)),
            findings=tuple(_gained_below(between, one) for one in _below(between, self.findings)),
            skipped=_below(between, self.skipped),
            left_out=_below(between, self.left_out),
        )

    @property
    def is_vendored(self) -> bool:
        """Return whether the runtime is copied into the tree."""
        return any(file.note == "vendor" for file in self.files)


_Placed = TypeVar("_Placed", FilePlan, Finding, SkippedFile)


def _below(folder: Path, parts: tuple[_Placed, ...]) -> tuple[_Placed, ...]:
    paths = [(folder / part.path).as_posix() for part in parts]
    return tuple(
        structs.replace(part, path=path) if isinstance(part, SkippedFile) else replace(part, path=path)
        for part, path in zip(parts, paths, strict=True)
    )


def _joined_below(folder: Path, file: FilePlan) -> FilePlan:
    hunks = (
        replace(hunk, together=frozenset((folder / one).as_posix() for one in hunk.together)) for hunk in file.hunks
    )
    return replace(file, hunks=tuple(hunks))


def _gained_below(folder: Path, finding: Finding) -> Finding:
    gain = finding.gain
    if gain is None or not gain.path:
        return finding
    return replace(finding, gain=replace(gain, path=(folder / gain.path).as_posix()))


def sha256(content: bytes) -> str:
    """Return the hexadecimal SHA-256 of ``content``, which identifies bytes in plans and journals."""
    return hashlib.sha256(content).hexdigest()
