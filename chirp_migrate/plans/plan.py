"""The data of a plan: the new bytes of every file, and all findings with place and reason."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final, Literal, TypeVar

from msgspec import Struct, structs

#: Version of the format of JSON documents. The version changes if a field is removed or changes its meaning. New fields
#: do not change the version.
SCHEMA: Final = 1


class Safety(str, Enum):
    """How the rewrites of a rule affect the training.

    ``SAFE``: the training gets the same samples in the same order; augmented values keep their distribution.
    ``BEHAVIOUR``: the training learns something else. ``ADVICE``: the rule reports problems and rewrites nothing.
    """

    SAFE = "safe"
    BEHAVIOUR = "behaviour-changing"
    ADVICE = "advice"


class FindingStatus(str, Enum):
    """What ``apply`` does with a finding.

    ``REWRITE``: ``apply`` rewrites the code. ``OPT_IN``: ``apply`` rewrites the code only with ``--unsafe``.
    ``REPORT``: the finding is only reported. ``SUPPRESSED``: a comment or setting excludes the finding. ``REFUSED``:
    the user refused the rewrite in a review. ``FINE``: nothing is wrong, so the finding is only counted. ``UNCHANGED``:
    the rewrite would gain nothing (see :class:`Gain`).
    """

    REWRITE = "rewrite"
    OPT_IN = "opt-in"
    REPORT = "report"
    SUPPRESSED = "suppressed"
    REFUSED = "refused"
    FINE = "fine"
    UNCHANGED = "unchanged"


class GainKind(str, Enum):
    """What the rewrite of a loader improves; docs/apply.md describes each kind."""

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
    """The improvement that a rewrite brings to a loader, and the reason for the improvement.

    Attributes:
        kind: what the rewrite improves.
        why: the reason, as a part of a message, such as "the dataset is empty".
        path: file of the code that explains the reason, relative to the root of the plan; "" without such code.
        line: line of the code that explains the reason, from 1; 0 without such code.
    """

    kind: GainKind
    why: str
    path: str = ""
    line: int = 0

    @property
    def workers_may_help(self) -> bool:
        """Return whether another number of workers may speed up the loader."""
        return self.why not in (
            NO_SAMPLES,
            ONE_SAMPLE_IN_MEMORY,
            INDEXED_ONE_BY_ONE,
            ALL_INDEXED_ONE_BY_ONE,
        )

    @property
    def text(self) -> str:
        """Return the reason, with file and line of the code that explains the reason."""
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
    """The smallest change that can be accepted or refused alone. The edits of a hunk make sense only together.

    The edits of a hunk do not add imports, and do not remove code that becomes unused. These edits follow from all
    accepted hunks of the file (see :func:`chirp_migrate.edits.apply_hunks.text_with_hunks`).

    Attributes:
        number: number of the hunk in its file, from 1, from top to bottom.
        edits: edits of the original text. Edits of different hunks do not overlap, but two hunks may have the same
            insertion.
        imports: the imports that the edits need.
        together: calls that build loaders, as ``path:line``. All hunks that have a call in common are accepted or
            refused together, also in different files.
    """

    number: int
    edits: tuple[Edit, ...]
    imports: frozenset[Import] = frozenset()
    together: frozenset[str] = frozenset()

    @property
    def import_lines(self) -> list[str]:
        """Return the import statements that the edits need, sorted."""
        return [f"from {module} import {clause}" for module, clause in sorted(self.imports)]


@dataclass(frozen=True)
class Finding:
    """A finding of a rule.

    Attributes:
        rule: code of the rule, such as ``CHP001``.
        name: kebab-case name of the rule.
        path: posix path relative to the root of the plan.
        line: 1-based line in the original file.
        column: 1-based column in the original file.
        message: what is wrong and what the rewrite does, or why the code is not rewritten.
        safety: effect of the rewrite on the training.
        status: what happens to the finding.
        why: short machine-readable reason why the code is not rewritten, such as ``used-as-value``; may be empty.
        cell: number of the notebook cell that contains ``line``, from 1 over all cells; None in a Python file.
        hunk: number of the hunk that rewrites the code; None without such a hunk.
        reason: one paragraph on why the rule exists.
        gain: the gain from rewriting a loader, or an object that a loader uses; None for all other findings.
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
        """Return the message. If the rewrite has a gain, the message contains the gain and the reason for the gain."""
        if self.gain is None or self.status is FindingStatus.UNCHANGED:
            return self.message
        return f"{self.message}; gain: {self.gain.kind.words} ({self.gain.text})"

    @property
    def place(self) -> str:
        """Return the place as text for a message, such as ``12``, or ``cell 3, line 12`` in a notebook."""
        return str(self.line) if self.cell is None else f"cell {self.cell}, line {self.line}"


@dataclass(frozen=True)
class FilePlan:
    """The new bytes of one file.

    Attributes:
        path: posix path relative to the root of the plan.
        before: the bytes of the file when the plan was made; ``None`` if the plan creates the file.
        after: the new bytes.
        note: the reason for writing the file.
        hunks: for a rewritten file, the changes that can be accepted or refused.
        public: for a rewritten file, the names that other files import from this file. The rewrite keeps these names.
    """

    path: str
    before: bytes | None
    after: bytes
    note: Note
    hunks: tuple[Hunk, ...] = ()
    public: frozenset[str] = frozenset()


class SkippedFile(Struct, frozen=True, omit_defaults=True):
    """A file that is excluded, or that could not be processed or written, with the reason.

    Attributes:
        path: posix path relative to the root of the plan.
        reason: the reason, as a message.
        loaders: for an excluded test, the number of loaders in the test that could be migrated.
    """

    path: str
    reason: str
    loaders: int = 0


class PlanOptions(Struct, frozen=True, kw_only=True):
    """The options of a plan.

    Attributes:
        rules: codes of the rules that ran; None for all rules.
        unsafe: whether rewrites that change what training learns are applied.
        notebooks: whether notebooks were checked; None: only notebooks without stored outputs were checked.
        scaffold: whether the factory and monitor modules, the notebook and the tests are added.
        vendor: whether the runtime is copied into the project.
        tests: whether tests were checked.
        exclude: globs of excluded files, in addition to the globs in the settings.
        all_loaders: whether loaders are rewritten even if the rewrite gains nothing.
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
    """All changes of one run of ``apply``, in a deterministic order.

    Attributes:
        root: absolute path of the folder to which all other paths are relative.
        files: the files to write.
        findings: the findings of all rules.
        skipped: files that could not be processed.
        notes: sentences about the whole run, which do not belong to a finding.
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
        """Return the plan with paths relative to ``folder``, which is the present root or a folder above the root."""
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
    """Return the hexadecimal SHA-256 of ``content``. Plans and journals identify the bytes of a file by this hash."""
    return hashlib.sha256(content).hexdigest()
