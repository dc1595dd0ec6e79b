"""The JSON document of a verification. ``verify --json`` writes the document, and ``report`` reads the document.

The page docs/json.md describes each field, and docs/schemas/verify.json is the JSON Schema. A new field must have a
default, so that ``report`` can read documents of earlier versions. If you remove a field or change its meaning,
increase ``SCHEMA``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.training.workload.entry_points import WorkloadSizes
from chirp_migrate.transaction.journal_schema import check_relative_path
from chirp_migrate.verify.metrics import Metric, TargetVerdict
from chirp_migrate.verify.spec import LoaderPassTrace, StepCount
from chirp_migrate.verify.timing.rounds import Rounds

SCHEMA: Final = 1


class EntryVerdict(msgspec.Struct, frozen=True):
    """The verdict on one entry point (a training function or script).

    Attributes:
        verdict: the verdict as text, which is ``meets the threshold``, ``model-bound``, ``not shown``, ``inconclusive``
            or ``slower``.
        zero_cost_ratio: time with zero-cost loading / time before the migration; None if zero-cost loading was not
            timed.
    """

    verdict: str = ""
    zero_cost_ratio: Ratio | None = None


class OwnRunTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers from which ``verify`` computes the time of the full training that the user would run.

    Attributes:
        epochs: number of epochs in each fold of the full training, from the defaults of the training function; 0 if
            ``verify`` times the whole call.
        folds: number of cross-validation folds of the full training, from the defaults of the training function; 1 if
            ``verify`` times the whole call.
        assumed: whether ``epochs`` is an assumption, because the project's source does not contain the number.
        epoch_s: dictionary, version → seconds of an epoch after the first epoch; an empty dictionary if the whole call
            is timed.
        start_s: dictionary, version → start-up time in seconds, which counts once for each fold. The start-up time is
            the time from the start of the training call to the end of the first epoch, minus the time of a later epoch.
            If the whole call is timed, the value is the time of the call, without its second epoch if the call has one.
    """

    epochs: int
    folds: int
    assumed: bool
    epoch_s: dict[str, float]
    start_s: dict[str, float]


class TrainingDifference(msgspec.Struct, frozen=True):
    """A difference between the trainings of both versions.

    Attributes:
        name: short stable name, such as ``validation-drops-samples`` (docs/verify.md lists all names).
        entry_point: label (short unique name) of the entry point, which is a training function or script; ``""`` for a
            difference in the public API.
        message: one sentence that begins with the label of the entry point, and describes the difference and the place
            of the difference, such as the number of the batch.
    """

    name: str
    entry_point: str
    message: str


class LoadingProblem(msgspec.Struct, frozen=True):
    """A data loading problem that the recorded iterations over loaders prove, such as a random order that repeats.

    The command ``chirp-migrate doctor`` shows the evidence for the problem, its line in the source, and a fix.

    Attributes:
        check: name of the check that found the problem; docs/doctor.md has a section for each check.
        message: the problem in one sentence.
        entry_points: labels of the entry points (training functions or scripts) with the problem.
    """

    check: str
    message: str
    entry_points: list[str]


class ReportedMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics of both versions, with the definitions of the metrics.

    Attributes:
        definitions: the definition of each metric, with its name, unit and method.
        figures: dictionary, version → metric → value; None if the metric was not measured.
    """

    definitions: list[Metric] = []
    figures: dict[str, dict[str, float | None]] = {}


class SimulatedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated device steps of ``--simulate-step-ms``.

    Attributes:
        step_ms: duration of a simulated step in milliseconds.
        what: description of the simulation in one or two sentences.
        device_busy: dictionary, version → share of the training time during which the simulated device was busy, 0 to
            1.
        steps: dictionary, version → label of the entry point → number and durations of its simulated steps.
    """

    step_ms: float
    what: str
    device_busy: dict[str, float] = {}
    steps: dict[str, dict[str, StepCount]] = {}


@dataclass(frozen=True, kw_only=True)
class Workload(WorkloadSizes):
    """The training that ``verify`` ran, and its size.

    Attributes:
        model: class of the model, as ``module:ClassName``; an empty string if the user's own code chooses the model.
        entry_points: labels of the entry points (training functions or a script), in the order in which they ran.
        left_out: sentences on functions that look like training but did not run, and on modules in the project's folder
            ``utils/`` that are missing or cannot be parsed.
        failing: dictionary, label of an entry point that fails before the migration → its error.
        no_room: labels of the entry points that were not timed, because the time budget was used up.
        source: kind of code that defines the training, which is ``found`` for functions in the project's source,
            ``hook`` for a workload function, or ``script`` for a script.
        hook: reference to the workload function; None without a workload function.
        command: command line of the script, as a list of words; None without a script.
    """

    model: str = ""
    entry_points: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failing: dict[str, str] = field(default_factory=dict)
    no_room: list[str] = field(default_factory=list)
    source: Literal["found", "hook", "script"] = "found"
    hook: str | None = None
    command: list[str] | None = None


class RunDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Sentences that describe a verification in reports.

    Attributes:
        rounds: sentences with the number of rounds, the CPU use of other processes, and the reason why no more rounds
            ran.
        workload: sentence on the training that ran, and its size.
        machine: line with the processor, the GPU, and the versions of PyTorch and Python.
        compared: sentence on the part of the training that ``verify`` compared; an empty string if ``verify`` compared
            the whole training.
        unseen: sentence on objects in batches that ``verify`` did not compare; an empty string if ``verify`` compared
            all objects.
    """

    rounds: str = ""
    workload: str = ""
    machine: str = ""
    compared: str = ""
    unseen: str = ""


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The document of one verification. If the verdict is ``failed``, most fields are empty.

    Attributes:
        verdict: the verdict as text, which is ``faster``, ``faster, entry points inconclusive`` (only with
            ``--strict``), ``not shown to be faster``, ``model-bound``, ``slower``, ``not equivalent`` or ``failed``.
        exit_code: exit code of the command, which depends on the verdict.
        reason: the reason for the verdict, one sentence.
        threshold: share of the original time that the migration must save for the verdict ``faster``, 0 to 1.
        ratio: time after the migration / time before the migration, for all entry points (training functions or a
            script) together; None without timings.
        zero_cost_ratio: time with zero-cost loading / time before the migration, for all entry points together; None if
            zero-cost loading was not timed.
        ratios: dictionary, label of the entry point → time after the migration / time before the migration.
        verdicts: dictionary, label of the entry point → verdict on this entry point.
        own_runs: dictionary, label of the entry point → the numbers from which the time of the user's full training is
            computed.
        spent_s: dictionary, name of an activity of ``verify``, such as ``warming up`` → seconds of this activity.
        differences: the differences between the trainings before and after the migration.
        notes: sentences on values that were not compared, and on problems that both versions have.
        smallest_adjusted_p: dictionary, label of the entry point → smallest p-value of its statistical tests, after
            Holm's correction.
        detectable_changes: dictionary, label of the entry point → smallest change of a probability, 0 to 1, that each
            two-sample test of the entry point finds in 9 of 10 verifications. For example, a change of the probability
            of a mask from 0.8 to 0.6 has the size 0.2. In general, the size is the largest distance between the
            distribution functions of a random value before and after the change.
        unrepeatable: entry points whose losses or batches differ even between two runs of the version before the
            migration.
        passes: dictionary, version → label of the entry point → records of all iterations over loaders in a short
            training.
        problems: data loading problems of the migrated version, for which the records in ``passes`` are the evidence.
        tool: name and version of the program that wrote the document.
        before: description of the version before the migration.
        copies: sentences on files that were not copied, or that were added to a copy.
        side: the version that failed (``before`` or ``after``); an empty string if no version failed.
        output_tail: the last lines that the failed version printed; an empty string if no version failed.
        created: time at the end of the verification, ISO 8601 in UTC.
        files: dictionary, path of a file that ``apply`` changed → its SHA-256 during the verification; None if the file
            did not exist.
    """

    schema: Literal[1] = SCHEMA
    verdict: str
    exit_code: int
    reason: str
    threshold: float = 0.0
    ratio: Ratio | None = None
    ratios: dict[str, Ratio] = {}
    rounds: Rounds = Rounds()
    verdicts: dict[str, EntryVerdict] = {}
    zero_cost_ratio: Ratio | None = None
    own_runs: dict[str, OwnRunTimes] = {}
    spent_s: dict[str, float] = {}
    measures: ReportedMetrics = ReportedMetrics()
    targets: list[TargetVerdict] = []
    simulated: SimulatedDevice | None = None
    differences: list[TrainingDifference] = []
    notes: list[str] = []
    smallest_adjusted_p: dict[str, float] = {}
    detectable_changes: dict[str, float] = {}
    unrepeatable: list[str] = []
    passes: dict[str, dict[str, list[LoaderPassTrace]]] = {}
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
            check_relative_path(path)
