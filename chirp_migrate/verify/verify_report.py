"""The result of a verification as one document: ``verify --json`` writes it, a run stores it, reports read it.

docs/json.md describes each field, and docs/schemas/verify.json is the JSON Schema. A new field gets a default, so that
documents of earlier versions can be read. A field that is removed or changes its meaning requires another ``SCHEMA``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from chirp_migrate.console.json_document import as_bytes, read_as, read_json
from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.training.workload.entry_points import WorkloadSizes
from chirp_migrate.transaction.journal_schema import checked_path
from chirp_migrate.verify.measures.metric_data import Measure, SideMeasures, Slope
from chirp_migrate.verify.measures.targets import TargetVerdict
from chirp_migrate.verify.spec import PassTrace, StepCount
from chirp_migrate.verify.timing.rounds import Rounds

__all__ = [
    "SCHEMA",
    "DetectableDifference",
    "Difference",
    "EntryVerdict",
    "LoadingProblem",
    "OwnTimes",
    "ReportedMetrics",
    "RunDescription",
    "SimulatedDevice",
    "VerifyReport",
    "Workload",
    "decode",
    "encode",
]

SCHEMA: Final = 1

Seconds = dict[str, dict[str, list[float]]]
"""Version (``before``, ``after``, ``cached``) → entry point → seconds of each valid round with this entry point."""


class EntryVerdict(msgspec.Struct, frozen=True):
    """The verdict on one entry point.

    Attributes:
        verdict: ``meets the threshold``, ``model-bound``, ``not shown``, ``inconclusive`` or ``slower``.
        zero_cost_ratio: time with zero-cost loading / time before; None if it was not measured.
        headroom: share of the original time that zero-cost loading would save, 0 to 1.
    """

    verdict: str = ""
    zero_cost_ratio: Ratio | None = None
    headroom: float | None = None


class OwnTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the user's own run of an entry point.

    Attributes:
        epochs, folds: epochs and folds of that run, by the defaults of the entry point; 0 epochs if it is timed as a
            whole.
        assumed: whether the number of epochs is assumed, because the source does not contain it.
        epoch_s: version → seconds of an epoch after the first; empty if the entry point is timed as a whole.
        start_s: version → seconds of start-up in each fold: the time before the first epoch, and the additional time of
            the first epoch.
        timed_epochs: number of timed epochs in ``epoch_s``.
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
        name: short stable name, such as ``validation-drops-samples`` (docs/verify.md lists all names).
        entry_point: label of the entry point; ``""`` if the difference belongs to none, such as one in the public API.
        message: one sentence that begins with the entry point and describes what differs and where.
    """

    name: str
    entry_point: str
    message: str


class LoadingProblem(msgspec.Struct, frozen=True):
    """A loading problem that the traces prove; ``doctor`` shows it with its evidence, its line and the fix.

    Attributes:
        check: name of the check, a section of docs/doctor.md.
        message: what is wrong, in one sentence.
        entry_points: entry points that have the problem.
    """

    check: str
    message: str
    entry_points: list[str]


class DetectableDifference(msgspec.Struct, frozen=True):
    """The smallest difference of a statistic that its test would have found in 9 of 10 verifications.

    Attributes:
        share: smallest share of samples, 0 to 1, that must move across a value to be noticed.
        shift: smallest shift of all samples that are not skipped, in the statistic's unit; None if no shift would be
            noticed.
        samples: number of samples before and after.
    """

    share: float
    shift: float | None
    samples: tuple[int, int]


class ReportedMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics of both versions, with their definitions and raw data."""

    definitions: list[Measure] = []
    figures: dict[str, dict[str, float | None]] = {}
    memory_slope_mib: dict[str, Slope | None] = {}
    raw: dict[str, SideMeasures] = {}


class SimulatedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """Simulated device steps: a description of their time, the share of the time that they took, and counts."""

    step_ms: float
    what: str
    device_busy: dict[str, float] = {}
    steps: dict[str, dict[str, StepCount]] = {}


@dataclass(frozen=True, kw_only=True)
class Workload(WorkloadSizes):
    """The training and its size.

    Attributes:
        model: ``module:ClassName``; empty if the user's own call chooses the model.
        entry_points: in the order in which they ran.
        left_out: functions that look like training but were not called, with the reason.
        failing: entry points that fail before the migration, with their errors.
        no_room: entry points that were watched, but not timed within the budget.
        source: ``found``, ``hook``, ``script`` or ``command``; ``hook`` is the hook function, and ``command`` contains
            the words of a script or command.
    """

    model: str = ""
    entry_points: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failing: dict[str, str] = field(default_factory=dict)
    no_room: list[str] = field(default_factory=list)
    source: Literal["found", "hook", "script", "command"] = "found"
    hook: str | None = None
    command: list[str] | None = None


class RunDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Sentences that describe the number of rounds and the reason for it, the training, and the machine.

    ``compared`` describes the part of the training that was compared; empty if all of it was watched. ``unseen`` names
    objects in batches that verify does not compare; empty if there are none.
    """

    rounds: str = ""
    workload: str = ""
    machine: str = ""
    compared: str = ""
    unseen: str = ""


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """One verification. If it ``failed``, only reason, conditions and the end of the output are present.

    Attributes:
        verdict: ``faster``, ``faster, entry points inconclusive`` (``--strict``), ``not shown to be faster``,
            ``model-bound``, ``slower``, ``not equivalent``, ``failed``.
        exit_code: exit code of the command.
        reason: the reason for the verdict, one sentence.
        threshold, headroom: shares of the original time, 0 to 1: the share that must be saved, and the share that
            zero-cost loading would save.
        ratio, zero_cost_ratio: time after / time before, and time with zero-cost loading / time before, over all entry
            points.
        ratios, verdicts: ratio and verdict of each entry point.
        seconds, total_seconds: seconds of the user's own run, computed from each round: by entry point, and of all
            together.
        own_runs: the parts of these seconds, by entry point.
        spent_s: seconds of each activity of the verification.
        differences: the differences between the trainings.
        notes: parts that could not be compared, and problems of both versions.
        smallest_adjusted_p: augmented entry point → smallest adjusted p-value of the tests of its distribution.
        noticed: entry point → statistic → the smallest difference that its test would have found.
        unrepeatable: entry points whose losses or batches differ between two runs of the version before the migration.
        passes: version → entry point → traces of its loaders in the untimed PROBE pass.
        problems: loading problems that the passes after the migration prove.
        tool, before, copies: the verifying program, a description of the version before the migration, and the files
            that the copies lack.
        side, output_tail: the failed version (``before`` or ``after``), and the end of the output of the project's
            code.
        created: time of its end, ISO 8601 in UTC.
        files: SHA-256 of every file of the applied runs during the verification, by path; None: the file did not exist.
    """

    schema: Literal[1] = SCHEMA
    verdict: str
    exit_code: int
    reason: str
    threshold: float = 0.0
    headroom: float | None = None
    ratio: Ratio | None = None
    ratios: dict[str, Ratio] = {}
    seconds: Seconds = {}
    total_seconds: dict[str, list[float]] = {}
    rounds: Rounds = Rounds()
    verdicts: dict[str, EntryVerdict] = {}
    zero_cost_ratio: Ratio | None = None
    own_runs: dict[str, OwnTimes] = {}
    spent_s: dict[str, float] = {}
    measures: ReportedMetrics = ReportedMetrics()
    targets: list[TargetVerdict] = []
    simulated: SimulatedDevice | None = None
    differences: list[Difference] = []
    notes: list[str] = []
    smallest_adjusted_p: dict[str, float] = {}
    noticed: dict[str, dict[str, DetectableDifference]] = {}
    unrepeatable: list[str] = []
    passes: dict[str, dict[str, list[PassTrace]]] = {}
    problems: list[LoadingProblem] = []
    workload: Workload | None = None
    machine: dict[str, Any] = {}
    described: RunDescription = RunDescription()
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
    """Return the document as JSON in one line, because it may contain 100,000 numbers."""
    return as_bytes(report, indent=None)


def decode(data: bytes) -> VerifyReport:
    """Read a document of :func:`encode`, which any program may have changed.

    Raises:
        ValueError: it is no such document, or it names a path outside of the tree; the message has the reason.
    """
    found = read_json(data)
    if not {"verdict", "exit_code"} <= found.keys():
        raise ValueError("verify did not write it")
    if found.get("schema") != SCHEMA:
        raise ValueError(f"its schema is {found.get('schema')!r}, and this version of chirp-migrate reads {SCHEMA}")
    return read_as(found, VerifyReport)
