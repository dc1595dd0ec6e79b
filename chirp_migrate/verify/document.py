"""The result of a verification as one document: ``verify --json`` writes it, a run stores it, reports read it.

docs/json.md says what each field is, docs/schemas/verify.json is its JSON Schema. A field that is added has a default,
so that documents of earlier versions are read; those that go or change their meaning give another ``SCHEMA``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from chirp_migrate.console.json_document import as_bytes, read_as, read_json
from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.training.workload.entry_points import Sizes
from chirp_migrate.transaction.journal_schema import checked_path
from chirp_migrate.verify.measures.metric_data import Measure, SideMeasures, Slope
from chirp_migrate.verify.measures.targets import TargetVerdict
from chirp_migrate.verify.spec import StepCount, Trace
from chirp_migrate.verify.timing.rounds import Rounds

__all__ = [
    "SCHEMA",
    "Described",
    "Difference",
    "EntryVerdict",
    "LoadingProblem",
    "Measured",
    "Noticed",
    "OwnTimes",
    "Simulated",
    "VerifyReport",
    "Workload",
    "decode",
    "encode",
]

SCHEMA: Final = 1

Seconds = dict[str, dict[str, list[float]]]
"""Side (``before``, ``after``, ``cached``) → entry point → seconds of each round that counts and has it."""


class EntryVerdict(msgspec.Struct, frozen=True):
    """An entry point by itself.

    Attributes:
        verdict: ``meets the threshold``, ``model-bound``, ``not shown``, ``inconclusive`` or ``slower``.
        perfect: time with zero-cost loading / before; None where it was not measured.
        headspace: share of the time before that zero-cost loading would save, 0 to 1.
    """

    verdict: str = ""
    perfect: Ratio | None = None
    headspace: float | None = None


class OwnTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the user's own run of an entry point.

    Attributes:
        epochs, folds: of that run, by the defaults of the entry point; 0 epochs where it is timed as a whole.
        assumed: whether the epochs stand nowhere in the source.
        epoch_s: side → seconds of an epoch after the first; nothing where it is timed as a whole.
        start_s: side → seconds of start-up, once a fold: what comes before the first epoch, and what that takes more.
        timed_epochs: epochs that ``epoch_s`` rests on.
    """

    epochs: int
    folds: int
    assumed: bool
    epoch_s: dict[str, float]
    start_s: dict[str, float]
    timed_epochs: int = 0


class Difference(msgspec.Struct, frozen=True):
    """A difference between the two trainings; part of the document of ``verify``.

    Attributes:
        name: short and stable, such as ``validation-drops-samples`` (all are listed in docs/verify.md).
        entry_point: label of the entry point; ``""`` for what belongs to none, as the public API.
        message: what differs and where, one sentence, the entry point first.
    """

    name: str
    entry_point: str
    message: str


class LoadingProblem(msgspec.Struct, frozen=True):
    """A loading problem that the traces prove; ``doctor`` shows it with its evidence, its line and the fix.

    Attributes:
        check: name of the check, a section of docs/doctor.md.
        message: what is wrong, in one sentence.
        entry_points: entry points that showed it.
    """

    check: str
    message: str
    entry_points: list[str]


class Noticed(msgspec.Struct, frozen=True):
    """The smallest difference of a statistic that its test would have found in 9 of 10 verifications.

    Attributes:
        share: of the samples on the other side of some value, 0 to 1.
        shift: of all samples but skipped ones, in the statistic's unit; None where none would be noticed.
        samples: before and after.
    """

    share: float
    shift: float | None
    samples: tuple[int, int]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of both sides with their definitions and what they were made from."""

    definitions: list[Measure] = []
    figures: dict[str, dict[str, float | None]] = {}
    memory_slope_mib: dict[str, Slope | None] = {}
    raw: dict[str, SideMeasures] = {}


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """Simulated device steps: how long, in words, the share of the time that they kept the device busy, and counts."""

    step_ms: float
    what: str
    device_busy: dict[str, float] = {}
    steps: dict[str, dict[str, StepCount]] = {}


@dataclass(frozen=True, kw_only=True)
class Workload(Sizes):
    """The training, and its size.

    Attributes:
        model: ``module:ClassName``; empty where the user's own call chooses it.
        entry_points: in the order in which they ran.
        left_out: functions that look like training and were not called, with the reason.
        failing: entry points that fail before the migration, with their errors.
        no_room: entry points that were watched, and not timed within the budget.
        source: ``found``, ``hook``, ``script`` or ``command``; ``hook`` is the function, ``command`` the words of a
            script or command.
    """

    model: str = ""
    entry_points: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failing: dict[str, str] = field(default_factory=dict)
    no_room: list[str] = field(default_factory=list)
    source: Literal["found", "hook", "script", "command"] = "found"
    hook: str | None = None
    command: list[str] | None = None


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """In words: how many rounds count and why, what was trained, what it ran on.

    ``compared`` is what "the same training" is limited to; empty where all of it was watched. ``unseen`` is what
    batches hold and verify does not look into; empty for nothing.
    """

    rounds: str = ""
    workload: str = ""
    machine: str = ""
    compared: str = ""
    unseen: str = ""


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """One verification. Of a ``failed`` one there are the reason, the conditions and the end of what was printed.

    Attributes:
        verdict: ``faster``, ``faster, entry points inconclusive`` (``--strict``), ``not shown to be faster``,
            ``model-bound``, ``slower``, ``not equivalent``, ``failed``.
        exit_code: of the command.
        reason: one sentence.
        threshold, headspace: share of the time that had to be saved, and that zero-cost loading would save, 0 to 1.
        ratio, perfect: time after, and time with zero-cost loading / time before, over all entry points.
        ratios, verdicts: each entry point.
        seconds, total_seconds: of the user's own run, by what each round timed: by entry point, and of all of them.
        own_runs: what these are made of, by entry point.
        spent_s: seconds that the verification spent on what.
        differences: what is not the same training.
        notes: what could not be compared, or is amiss on both sides.
        smallest_adjusted_p: per augmented entry point, the smallest adjusted p of the tests of its distribution.
        noticed: entry point → statistic → what difference its test would have noticed.
        unrepeatable: entry points whose losses or batches two runs of the side before do not have in common.
        passes: side → entry point → what its loaders yielded in the untimed probe.
        problems: loading problems that the passes after the migration prove.
        tool, before, copies: what verified it, what the side before is, what was left out of the copies.
        side, output_tail: of a failed one, ``before`` or ``after``, and the end of what the project's code printed.
        created: when it ended, ISO 8601 in UTC.
        files: SHA-256 of every file of the standing runs as it was verified (None: was not there), by path.
    """

    schema: Literal[1] = SCHEMA
    verdict: str
    exit_code: int
    reason: str
    threshold: float = 0.0
    headspace: float | None = None
    ratio: Ratio | None = None
    ratios: dict[str, Ratio] = {}
    seconds: Seconds = {}
    total_seconds: dict[str, list[float]] = {}
    rounds: Rounds = Rounds()
    verdicts: dict[str, EntryVerdict] = {}
    perfect: Ratio | None = None
    own_runs: dict[str, OwnTimes] = {}
    spent_s: dict[str, float] = {}
    measures: Measured = Measured()
    targets: list[TargetVerdict] = []
    simulated: Simulated | None = None
    differences: list[Difference] = []
    notes: list[str] = []
    smallest_adjusted_p: dict[str, float] = {}
    noticed: dict[str, dict[str, Noticed]] = {}
    unrepeatable: list[str] = []
    passes: dict[str, dict[str, list[Trace]]] = {}
    problems: list[LoadingProblem] = []
    workload: Workload | None = None
    machine: dict[str, Any] = {}
    described: Described = Described()
    tool: str = ""
    before: str | None = None
    environment: dict[str, Any] = {}
    copies: list[str] = []
    side: str = ""
    output_tail: str = ""
    created: str = ""
    files: dict[str, str | None] = {}

    def __post_init__(self) -> None:
        for path in self.files:
            checked_path(path)


def encode(report: VerifyReport) -> bytes:
    """Return the document as JSON, in one line: it may hold a hundred thousand figures."""
    return as_bytes(report, indent=None)


def decode(data: bytes) -> VerifyReport:
    """Read a document of :func:`encode`, which any program may have changed.

    Raises:
        ValueError: it is no such document, or it names a path outside of the tree; the message says why.
    """
    found = read_json(data)
    if not {"verdict", "exit_code"} <= found.keys():
        raise ValueError("it is another kind of document than verify writes")
    if found.get("schema") != SCHEMA:
        raise ValueError(f"its schema is {found.get('schema')!r}, and this version of chirp-migrate reads {SCHEMA}")
    return read_as(found, VerifyReport)
