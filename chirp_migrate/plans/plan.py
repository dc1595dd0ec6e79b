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
    "Skipped",
    "Status",
    "sha256",
]

#: Version of the documents: it changes when a field changes its meaning or goes, not when one is added.
SCHEMA: Final = 1


class Safety(str, Enum):
    """The effect of a rule on the training.

    ``SAFE``: same samples, order and values, or the same distribution of augmentations. ``BEHAVIOUR``: fixes
    something whose result differs. ``ADVICE``: a hazard that is seen but not fixed.
    """

    SAFE = "safe"
    BEHAVIOUR = "behaviour-changing"
    ADVICE = "advice"


class Status(str, Enum):
    """The outcome of a finding: rewritten, rewritten only with ``--unsafe``, or only reported.

    ``SUPPRESSED``: excluded by a comment or setting. ``REFUSED``: the user refused it in a review.
    ``FINE``: nothing to do, counted only. ``UNCHANGED``: the rewrite would gain nothing (see :class:`Gain`).
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
        """Return the kind as people read it."""
        return self.value.replace("-", " ")


@dataclass(frozen=True)
class Gain:
    """The gain of a rewrite, and the reason.

    Attributes:
        kind: what it buys.
        why: the reason, as the end of a sentence.
        path: file of the code that is the reason, relative to the root of the plan; "" if there is no such code.
        line: its line in that file, from 1; 0 if there is no such code.
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

    Imports that it needs, and what becomes dead by it, are no part of it: they follow from the hunks that are
    accepted (see :func:`chirp_migrate.edits.apply_hunks.compose`).

    Attributes:
        number: from 1 in each file, in the order of the text.
        edits: places in the text as it was; those of different hunks do not overlap, but may be the same insertion.
        imports: what the edits need imported.
        together: calls that build loaders, as ``path:line``: hunks of other files that have one in common with this one
            are accepted or refused together with it.
    """

    number: int
    edits: tuple[Edit, ...]
    imports: frozenset[Import] = frozenset()
    together: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Finding:
    """One thing a rule found.

    Attributes:
        rule: code of the rule, such as ``CHP001``.
        name: its kebab-case name.
        path: posix path relative to the root of the plan.
        line: 1-based line in the original file.
        column: 1-based column in the original file.
        message: what was found and what is done about it, or why it is not rewritten.
        safety: what rewriting it means for the training.
        status: what happens to it.
        why: short machine-readable reason of a report, such as ``used-as-value``; may be empty.
        cell: in a notebook, the cell that ``line`` is counted in, from 1 over all cells.
        hunk: number of the hunk that rewrites it, or would.
        reason: why its rule is there.
        gain: what the rewrite of a loader, or of what loaders hold, buys; None of any other finding.
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
        before: the bytes the plan was made from; ``None`` when the file is to be created.
        after: the bytes it is to have.
        note: why it is written.
        hunks: of a rewritten file, what can be accepted or refused in it.
        public: of a rewritten file, names that other files import from it, so that they stay.
    """

    path: str
    before: bytes | None
    after: bytes
    note: Note
    hunks: tuple[Hunk, ...] = ()
    public: frozenset[str] = frozenset()


class Skipped(Struct, frozen=True, omit_defaults=True):
    """A file that could not be handled, or an excluded one, and the reason.

    Attributes:
        path: posix path relative to the root of the plan.
        reason: why, as a message.
        loaders: of an excluded test, how many of its loaders could be migrated.
    """

    path: str
    reason: str
    loaders: int = 0


class PlanOptions(Struct, frozen=True, kw_only=True):
    """The options of a plan.

    Attributes:
        rules: codes of the rules that ran; None means all.
        unsafe: whether rewrites that change behaviour are among what is done.
        notebooks: whether notebooks were looked at; None: those without stored outputs.
        scaffold: whether the factory and monitor modules, the notebook and the tests are added.
        vendor: whether the runtime is copied into the project.
        tests: whether tests were looked at.
        exclude: globs of files that were left out besides those of the settings.
        all_loaders: whether loaders are rewritten that gain nothing.
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
    """Everything one run would do to the tree at ``root`` (absolute), in a deterministic order.

    Attributes:
        skipped: files that could not be handled.
        notes: sentences about the run that belong to no single finding.
        left_out: folders and files that were not looked at, on purpose.
        options: what was asked for.
    """

    root: Path
    files: tuple[FilePlan, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...] = ()
    left_out: tuple[Skipped, ...] = ()
    options: PlanOptions = field(default_factory=PlanOptions)

    def seen_from(self, folder: Path) -> Plan:
        """Return the plan with ``folder``, which contains or is the root, as its root."""
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


_Placed = TypeVar("_Placed", FilePlan, Finding, Skipped)


def _below(folder: Path, parts: tuple[_Placed, ...]) -> tuple[_Placed, ...]:
    paths = [(folder / part.path).as_posix() for part in parts]
    return tuple(
        structs.replace(part, path=path) if isinstance(part, Skipped) else replace(part, path=path)
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
    """Hexadecimal SHA-256 of ``content``: how plans and journals name bytes."""
    return hashlib.sha256(content).hexdigest()
