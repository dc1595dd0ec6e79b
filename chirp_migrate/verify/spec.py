"""The task that the parent process sends to a child, and the results of the child, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from chirp_migrate.training.workload.entry_points import Discovery, EntryPoint, WorkloadSizes
from chirp_migrate.verify.equivalence.api import Api
from chirp_migrate.verify.measures.metric_data import SideMeasures
from chirp_migrate.verify.options import VerifyOptions

__all__ = ["REPEATED", "EntryResult", "EntryTiming", "Job", "PassTrace", "RunResult", "RunSpec", "StepCount"]

REPEATED = "results of watched runs that were repeated"
"""Name of the part of a TIME result with these results: label → fingerprint."""


class Job(str, Enum):
    """The task of a child process.

    NAMES returns the names of a hook's calls. WATCH trains every entry point on a few samples and records the batches
    of its loaders. TIME trains epoch by epoch, each in its own turn. MEASURE puts clocks on the loaders and samples
    memory and GPU (see :mod:`chirp_migrate.verify.measures.measuring`).
    """

    NAMES = "names"
    WATCH = "watch"
    TIME = "time"
    MEASURE = "measure"


@dataclass(frozen=True)
class RunSpec:
    """The task of one child process, and the tree in which it runs.

    Attributes:
        tree: root of the backend, the working directory of the child.
        discovery: the entry points to train.
        options: sizes and measurements; ``worker_counts`` are those of this version.
        job: the task.
        api_names: names to describe (see :func:`chirp_migrate.verify.equivalence.api.public_names`), may be empty.
        twice: whether each entry point is watched twice, because two runs of one version may differ (on a GPU).
        repeats: for TIME: labels of the entry points whose watched run is repeated before the timing, for its result.
        whole: for TIME: labels of the entry points without epochs, which are timed as a whole.
        cached: for TIME: whether an epoch of each entry point is fed from one batch in memory.
        seconds: for MEASURE: seconds after which no further entry point begins.
        hash_seed: ``PYTHONHASHSEED`` of the process.
        threads: compute threads, the same number in both versions.
        watching_threads: compute threads while entry points are watched, in both versions at once.
    """

    tree: str
    discovery: Discovery
    options: VerifyOptions
    job: Job
    api_names: dict[str, list[str]] = field(default_factory=dict)
    twice: bool = False
    repeats: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    cached: bool = False
    seconds: float = 0.0
    hash_seed: int = 0
    threads: int = 1
    watching_threads: int = 1

    @property
    def entry_points(self) -> tuple[EntryPoint, ...]:
        """Return the entry points in the order in which they run."""
        return self.discovery.entry_points

    @property
    def sizes(self) -> WorkloadSizes:
        """Return the numbers of samples and epochs."""
        return self.options.sizes


@dataclass
class StepCount:
    """Simulated steps of one entry point in one pass.

    Attributes:
        steps: number of training batches with a step.
        overrun: number of steps in which the training's own work took longer than the step, so that there was no sleep.
        own_work_s: seconds of the training's own work in all steps together.
    """

    steps: int = 0
    overrun: int = 0
    own_work_s: float = 0.0


@dataclass
class PassTrace:
    """One loader pass, as the training code sees it.

    Attributes:
        loader: number of the loader within the entry point, in order of first use.
        role: ``train`` if gradients were enabled when the first batch was taken, else ``validation``.
        random: whether another read of a sample returns other values (augmentation is active).
        shuffled: whether the loader's sampler orders the samples randomly.
        whole: whether the sampler is one of PyTorch's that yields every sample exactly once.
        drop_last: whether the loader omits an incomplete last batch.
        finished: whether the loop requested batches until the loader had no more.
        available: number of samples of the loader's dataset, -1 if it has no length.
        samples: number of samples taken.
        sizes: number of samples in each batch.
        batches: hash (first 16 hex digits) of each batch: dtypes, shapes and bytes of its samples, in order.
        contents: hash of the sorted hashes of the single samples, equal for equal samples in any order.
        plain_contents: the same hash for samples before augmentation; "" if samples are not random, or not known.
        indices: indices of the taken samples, in the order of the sampler; empty if they are not known.
        base: text that identifies the innermost dataset of the loader: equal for equal datasets.
        base_indices: ``indices`` in the innermost dataset.
        labels: number of samples with each label, by the label's text.
        losses: outputs of loss modules for each batch, as hexadecimal floats.
        sketches: some values of each batch, only if samples are not random: see ``first_difference.sketch``.
        statistics: rows of ``augmentation_statistics.STATISTICS``, one for each sample; only if samples are random.
        paired: rows of ``augmentation_statistics.PAIRED``; only if the samples before augmentation are known.
        repeats: number of pairs of samples in each of the ``augmentation_statistics.RELATIONS``, and the number of
            these that were augmented with the same random numbers.
        unpicklable: why the loader could not be sent to worker processes; "" if it could.
        unseen: sorted names of the types of objects in batches that are not inspected.
    """

    loader: int
    role: str = ""
    random: bool = False
    shuffled: bool = False
    whole: bool = False
    drop_last: bool = False
    finished: bool = False
    available: int = -1
    samples: int = 0
    sizes: list[int] = field(default_factory=list)
    batches: list[str] = field(default_factory=list)
    contents: str = ""
    plain_contents: str = ""
    indices: list[int] = field(default_factory=list)
    base: str = ""
    base_indices: list[int] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    sketches: list[str] = field(default_factory=list)
    statistics: list[list[float]] = field(default_factory=list)
    paired: list[list[float]] = field(default_factory=list)
    repeats: dict[str, tuple[int, int]] = field(default_factory=dict)
    unpicklable: str = ""
    unseen: list[str] = field(default_factory=list)

    def mean_loss(self) -> float | None:
        """Return the mean of the batches' losses; None if no loss module ran."""
        return sum(map(float.fromhex, self.losses)) / len(self.losses) if self.losses else None


@dataclass
class EntryResult:
    """The watched run of one entry point.

    Attributes:
        seconds: wall time of the call.
        fingerprint: path of each value in the result of the call → exact text or hash of the value.
        traces: the passes over the loaders.
        seeds: aspects of this run, and of a run with another seed, see ``equivalence.first_difference``.
        again: the passes over the loaders in another run with the same seed; empty without such a run.
        error: the error of the entry point, or how it hung or ended the process, in one line; empty if it trained. It
            contains neither addresses nor the folder of the copy.
        printed: the end of the error's traceback, or of the output of the process.
        lost: whether the process ended during the entry point: it crashed, or took too long and was ended.
        hung: whether it took too long.
    """

    seconds: float
    fingerprint: dict[str, str]
    traces: list[PassTrace]
    seeds: list[dict[str, str]] = field(default_factory=list)
    again: list[PassTrace] = field(default_factory=list)
    error: str = ""
    printed: str = ""
    lost: bool = False
    hung: bool = False


@dataclass
class EntryTiming:
    """The timing of one entry point in one process, epoch by epoch, until enough epochs have run.

    Attributes:
        start_s: seconds from the call to the end of the first epoch: datasets, models, workers and that epoch.
        epochs_s: seconds of each later epoch with its validation; empty if no loader was iterated over again.
        cached_s: seconds of an epoch that was fed from one batch in memory; empty without such an epoch.
        rest_s: seconds from the last timed epoch to the end of the call; 0 if the call was ended early.
        samples, batches: average numbers taken from all loaders in each of the later epochs.
        steps: simulated device steps; None without a simulation.
        error, printed: as in :class:`EntryResult`.
    """

    start_s: float = 0.0
    epochs_s: list[float] = field(default_factory=list)
    cached_s: list[float] = field(default_factory=list)
    rest_s: float = 0.0
    samples: float = 0.0
    batches: float = 0.0
    steps: StepCount | None = None
    error: str = ""
    printed: str = ""


@dataclass
class RunResult:
    """The final result of a child; earlier results are separate messages.

    Attributes:
        api: result of :func:`chirp_migrate.verify.equivalence.api.describe_api` for the requested names.
        names: names of the hook's calls, for the task NAMES.
        measured: results of the task MEASURE.
        spent_s: seconds of each activity of the process, by name.
    """

    api: Api = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    measured: SideMeasures | None = None
    spent_s: dict[str, float] = field(default_factory=dict)
