"""Define the data of a plan: the new bytes of every file, and all findings of the rules."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final, Literal, TypeVar

from msgspec import Struct, structs

#: Version of the format of JSON documents. The version increases if a field is removed or changes its meaning. New
#: fields do not change the version.
SCHEMA: Final = 1


class Safety(str, Enum):
    """The effect of a rule's rewrites on the training.

    With ``SAFE``, the training gets the same samples in the same order, and augmented values keep their distribution.
    With ``BEHAVIOUR``, a rewrite changes what the training learns. With ``ADVICE``, the rule reports problems and
    rewrites nothing.
    """

    SAFE = "safe"
    BEHAVIOUR = "behaviour-changing"
    ADVICE = "advice"


#: ``Finding.why`` of a finding whose rewrite changes a file that this user may not write.
NOT_WRITTEN = "file-not-written"


class FindingStatus(str, Enum):
    """The treatment of a finding by ``apply``.

    For ``REWRITE``, ``apply`` rewrites the code. For ``OPT_IN``, ``apply`` rewrites the code only with ``--unsafe``.
    For ``REPORT``, ``apply`` reports the finding and does not rewrite the code. A ``SUPPRESSED`` finding is excluded by
    a comment or a setting. For a ``REFUSED`` finding, the user refused the rewrite in a review. A ``FINE`` finding is
    correct code, which is only counted. For an ``UNCHANGED`` finding, the rewrite would improve nothing (see
    :class:`Gain`).
    """

    REWRITE = "rewrite"
    OPT_IN = "opt-in"
    REPORT = "report"
    SUPPRESSED = "suppressed"
    REFUSED = "refused"
    FINE = "fine"
    UNCHANGED = "unchanged"


class GainKind(str, Enum):
    """The kind of improvement that the rewrite of a loader brings. docs/apply.md describes each kind."""

    BATCHED = "batched-reading"
    AT_RUN_TIME = "decided-at-run-time"
    PICKLABLE = "picklable-workers"
    PINNED = "pinned-transfers"
    NOTHING = "nothing"

    @property
    def words(self) -> str:
        """Return the kind as text for users, such as "batched reading"."""
        return self.value.replace("-", " ")


#: Reasons why the factory and more workers cannot speed up a loader.
NO_SAMPLES = "the dataset is empty"
ONE_SAMPLE = "each batch is one sample"
ONE_SAMPLE_IN_MEMORY = f"{ONE_SAMPLE}, which is in memory"
INDEXED_ONE_BY_ONE = "samples are indexed one by one"
ALL_INDEXED_ONE_BY_ONE = "the datasets of this project index samples one by one"


@dataclass(frozen=True)
class Gain:
    """The improvement that the rewrite of a loader brings, and the reason for this improvement.

    Attributes:
        kind: the kind of improvement; ``NOTHING`` if the rewrite improves nothing.
        why: the reason for the kind, as a part of a message, such as "the dataset is empty".
        path: file of the code line that is the reason, relative to the root of the plan; "" if the reason is not a
            single line.
        line: number of this line, counted from 1; 0 if the reason is not a single line.
    """

    kind: GainKind
    why: str
    path: str = ""
    line: int = 0

    @property
    def workers_may_help(self) -> bool:
        """Return whether a different number of workers may make the loader faster."""
        return self.why not in (
            NO_SAMPLES,
            ONE_SAMPLE_IN_MEMORY,
            INDEXED_ONE_BY_ONE,
            ALL_INDEXED_ONE_BY_ONE,
        )

    @property
    def text(self) -> str:
        """Return the reason, followed by the file and the line number if the reason is a single line of code."""
        return f"{self.why}, {self.path}:{self.line}" if self.path else self.why


@dataclass(frozen=True)
class Edit:
    """The replacement of ``text[start:end]`` in the decoded text of a source file."""

    start: int
    end: int
    replacement: str


#: The reason for writing a file.
Note = Literal["rewrite", "scaffold", "dependency", "vendor", "ignore"]

#: An import that rewritten code needs: the module, and the text after ``import`` (``name`` or ``name as other``).
Import = tuple[str, str]


@dataclass(frozen=True)
class Hunk:
    """The smallest change of a file that a user can accept or refuse alone, as a group of edits that belong together.

    The edits of a hunk do not add imports, and do not remove code that becomes unused. Such changes depend on all
    accepted hunks of the file, so :func:`chirp_migrate.edits.apply_hunks.text_with_hunks` makes these changes later.

    Attributes:
        number: number of the hunk in its file. The hunks are numbered from 1, from top to bottom.
        edits: edits of the original text. Edits of different hunks do not overlap. Two hunks may contain the same
            insertion, which ``apply`` makes only once.
        imports: the imports that ``apply`` must add to the file, because the edits use the imported names.
        together: calls that build loaders, as ``path:line``. The rewrites of these calls must be accepted or refused
            together with this hunk. So hunks that list the same call belong together, even if they are in different
            files.
    """

    number: int
    edits: tuple[Edit, ...]
    imports: frozenset[Import] = frozenset()
    together: frozenset[str] = frozenset()

    @property
    def import_lines(self) -> list[str]:
        """Return ``imports`` as the source of import statements, sorted."""
        return [f"from {module} import {clause}" for module, clause in sorted(self.imports)]


@dataclass(frozen=True)
class Finding:
    """A place in the code where a rule applies.

    Attributes:
        rule: code of the rule, such as ``CHP001``.
        name: kebab-case name of the rule.
        path: posix path relative to the root of the plan.
        line: line in the original file, counted from 1.
        column: column in the original file, counted from 1.
        message: what is wrong and what the rewrite does, or why the code is not rewritten.
        safety: effect of the rewrite on the training.
        status: what ``apply`` does with the finding.
        why: short machine-readable reason why the code is not rewritten, such as ``used-as-value``; may be empty.
        cell: number of the notebook cell that contains ``line``, counted from 1 over all cells; None in a Python file.
        hunk: number of the hunk that rewrites the code; None if no hunk rewrites the code.
        reason: one paragraph on why the rule exists.
        gain: what the rewrite improves, if the finding is a loader or an object that a loader uses; None for all other
            findings.
    """

    rule: str
    name: str
    path: str
    line: int
    column: int
    message: str
    safety: Safety
    status: FindingStatus
    why: str = ""
    cell: int | None = None
    hunk: int | None = None
    reason: str = ""
    gain: Gain | None = None

    @property
    def message_with_gain(self) -> str:
        """Return the message, followed by the gain and its reason.

        The result is only the message if the finding has no gain or has the status ``UNCHANGED``.
        """
        if self.gain is None or self.status is FindingStatus.UNCHANGED:
            return self.message
        return f"{self.message}; gain: {self.gain.kind.words} ({self.gain.text})"

    @property
    def place(self) -> str:
        """Return the line as text for a message, such as ``12``, or ``cell 3, line 12`` in a notebook."""
        return str(self.line) if self.cell is None else f"cell {self.cell}, line {self.line}"


@dataclass(frozen=True)
class FilePlan:
    """One file that the plan creates or rewrites.

    Attributes:
        path: posix path relative to the root of the plan.
        before: the bytes of the file when the plan was made; ``None`` if the plan creates the file.
        after: the bytes that the plan writes.
        note: why the plan writes the file, as a key such as ``rewrite`` or ``vendor``.
        hunks: the changes of a rewritten file that can be accepted or refused; empty for all other files.
        public: the names that other files import from a rewritten file. The rewrite keeps these names.
    """

    path: str
    before: bytes | None
    after: bytes
    note: Note
    hunks: tuple[Hunk, ...] = ()
    public: frozenset[str] = frozenset()


class SkippedFile(Struct, frozen=True, omit_defaults=True):
    """A file or folder that is excluded, or a file that could not be processed or written, with the reason.

    Attributes:
        path: posix path relative to the root of the plan.
        reason: the reason, as a message for users.
        loaders: number of loaders in an excluded test file that could be migrated; 0 for all other files.
    """

    path: str
    reason: str
    loaders: int = 0


class PlanOptions(Struct, frozen=True, kw_only=True):
    """The options with which a plan was made.

    Attributes:
        rules: codes of the rules that ran; None for all rules.
        unsafe: whether ``apply`` also makes rewrites that change what the training learns.
        notebooks: whether notebooks were checked; None if only notebooks without stored outputs were checked.
        scaffold: whether ``apply`` adds a factory module, a monitor module, a notebook and tests to the project.
        vendor: whether ``apply`` copies the runtime (the package ``chirpid_patch``) into the project.
        tests: whether the rules also checked the test files of the project.
        exclude: glob patterns of excluded files, in addition to the patterns in the settings.
        all_loaders: whether ``apply`` also rewrites loaders for which the rewrite improves nothing.
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
    """All changes that one run of ``apply`` makes. Equal projects and options result in the same order of all items.

    Attributes:
        root: absolute path of the folder to which all other paths are relative.
        files: the files to write.
        findings: the findings of all rules.
        skipped: files that could not be processed, with the reason.
        notes: sentences for users about the whole plan, not about a single finding.
        left_out: excluded folders and files, with the reason.
        options: the options with which the plan was made.
    """

    root: Path
    files: tuple[FilePlan, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[SkippedFile, ...]
    notes: tuple[str, ...] = ()
    left_out: tuple[SkippedFile, ...] = ()
    options: PlanOptions = field(default_factory=PlanOptions)

    def seen_from(self, folder: Path) -> Plan:
        """Return the plan with all paths relative to ``folder``.

        ``folder`` must be the root of the plan or a parent of the root.
        """
        between = self.root.relative_to(folder)
        return replace(
            self,
            root=folder,
            files=tuple(_with_calls_below(between, one) for one in _with_paths_below(between, self.files)),
            findings=tuple(_with_gain_below(between, one) for one in _with_paths_below(between, self.findings)),
            skipped=_with_paths_below(between, self.skipped),
            left_out=_with_paths_below(between, self.left_out),
        )

    @property
    def is_vendored(self) -> bool:
        """Return whether the plan copies files of the runtime into the project."""
        return any(file.note == "vendor" for file in self.files)


_Placed = TypeVar("_Placed", FilePlan, Finding, SkippedFile)


def _with_paths_below(folder: Path, parts: tuple[_Placed, ...]) -> tuple[_Placed, ...]:
    paths = [(folder / part.path).as_posix() for part in parts]
    return tuple(
        structs.replace(part, path=path) if isinstance(part, SkippedFile) else replace(part, path=path)
        for part, path in zip(parts, paths, strict=True)
    )


def _with_calls_below(folder: Path, file: FilePlan) -> FilePlan:
    hunks = (
        replace(hunk, together=frozenset((folder / one).as_posix() for one in hunk.together)) for hunk in file.hunks
    )
    return replace(file, hunks=tuple(hunks))


def _with_gain_below(folder: Path, finding: Finding) -> Finding:
    gain = finding.gain
    if gain is None or not gain.path:
        return finding
    return replace(finding, gain=replace(gain, path=(folder / gain.path).as_posix()))


def sha256(content: bytes) -> str:
    """Return the SHA-256 of ``content`` as hexadecimal digits. Plans and journals store this hash for each file."""
    return hashlib.sha256(content).hexdigest()
