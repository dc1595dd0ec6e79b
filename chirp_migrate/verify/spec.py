"""The request of the parent process to a child, and the answer of the child: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from chirp_migrate.training.workload.entry_points import Discovery, EntryPoint, Sizes
from chirp_migrate.verify.equivalence.api import Api
from chirp_migrate.verify.measures.metric_data import SideMeasures
from chirp_migrate.verify.options import VerifyOptions

__all__ = ["REPEATED", "EntryResult", "Job", "RunResult", "RunSpec", "StepCount", "Trace", "Visit"]

REPEATED = "results of watched runs that were repeated"
"""Name of the part of what a TIME job finds that holds them: label → fingerprint."""


class Job(str, Enum):
    """The task of a child process.

    NAMES gives the names of a hook's calls. WATCH trains every entry point on a few samples and records what its
    loaders yield. TIME trains epoch by epoch, each in a turn of its own. MEASURE puts clocks on the loaders and samples
    memory and GPU (see :mod:`chirp_migrate.verify.measures.measuring`).
    """

    NAMES = "names"
    WATCH = "watch"
    TIME = "time"
    MEASURE = "measure"


@dataclass(frozen=True)
class RunSpec:
    """One child process: the tree that it runs in and what it does there.

    Attributes:
        tree: root of the backend, the working directory of the child.
        discovery: what is trained.
        options: how much of it, and what is measured; ``worker_counts`` are those of this side.
        job: what it does.
        api_names: names to describe (see :func:`chirp_migrate.verify.equivalence.api.public_names`); empty for none.
        twice: whether each entry point is watched twice, where two runs of one side may differ (on a GPU).
        repeats: TIME: labels of the entry points whose watched run is repeated before any is timed, for its result.
        whole: TIME: labels of the entry points that have no epochs, and are timed as a whole.
        cached: TIME: whether an epoch of each entry point is fed from one batch in memory.
        seconds: MEASURE: no further entry point begins after so many seconds.
        hash_seed: ``PYTHONHASHSEED`` of the process.
        threads: compute threads, the same number on both sides.
        watching_threads: the same while entry points are watched: both sides are, beside each other.
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
    def sizes(self) -> Sizes:
        """Return how much is trained."""
        return self.options.sizes


@dataclass
class StepCount:
    """Simulated steps of one entry point in one pass.

    Attributes:
        steps: training batches that were given a step.
        overrun: steps in which the training's own work took longer than the step; nothing was slept then.
        own_work_s: seconds that the training's own work took in all steps together.
    """

    steps: int = 0
    overrun: int = 0
    own_work_s: float = 0.0


@dataclass
class Trace:
    """One loader pass, as the training code sees it.

    Attributes:
        loader: number of the loader within the entry point, in order of first use.
        role: ``train`` when gradients were enabled as the first batch was taken, else ``validation``.
        random: whether fetching one sample again gives other values (augmentation is active).
        shuffled: whether the loader's sampler orders the samples at random.
        whole: whether the sampler is one of PyTorch's that names every sample exactly once.
        drop_last: whether the loader leaves out a last batch that is not full.
        finished: whether the loader was asked on until it had no more batches.
        available: samples of the loader's data set, -1 when it has no length.
        samples: samples taken.
        sizes: samples of each batch.
        batches: hash (first 16 hex digits) of each batch: dtypes, shapes and bytes of its samples, in order.
        contents: hash of the sorted hashes of the single samples: equal for equal samples in any order.
        plain_contents: the same of the samples before they are augmented; "" when not random, or not known.
        indices: of the samples taken, in order, as the sampler gave them; empty when they are not known.
        base: text that is equal for equal data sets, of the lowest one under the loader's.
        base_indices: ``indices`` as they are in that one.
        labels: count of each label, as text.
        losses: outputs of loss modules for each batch, as hexadecimal floats.
        sketches: some values of each batch, only when not random: see ``first_difference.sketch``.
        statistics: rows of ``augmentation_statistics.STATISTICS``, one per sample; only when random.
        paired: rows of ``augmentation_statistics.PAIRED``; only where samples before are known.
        repeats: pairs of samples in each of the ``augmentation_statistics.RELATIONS``, and how many
            of them were augmented with the same random numbers.
        unpicklable: why the loader could not be sent to worker processes; "" when it could.
        unseen: names of the types of what batches hold and is not looked into, sorted.
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
        """Mean of the batches' losses, or None when no loss module ran."""
        return sum(map(float.fromhex, self.losses)) / len(self.losses) if self.losses else None


@dataclass
class EntryResult:
    """The watched run of one entry point.

    Attributes:
        seconds: wall time of the call.
        fingerprint: path of each value in what the call returned → exact text or hash of the value.
        traces: what the loaders yielded.
        seeds: what this run and one with another seed showed, see ``equivalence.first_difference``.
        again: what the loaders yielded in another run with the same seed; empty where there was none.
        error: what the entry point raised, or how it hung or ended the process, in one line; empty where it trained.
            Neither addresses nor the folder of the copy are in it.
        printed: the end of the error's traceback, or of what the process printed.
        lost: whether the process ended with it, by itself or because it took too long.
        hung: whether it took too long.
    """

    seconds: float
    fingerprint: dict[str, str]
    traces: list[Trace]
    seeds: list[dict[str, str]] = field(default_factory=list)
    again: list[Trace] = field(default_factory=list)
    error: str = ""
    printed: str = ""
    lost: bool = False
    hung: bool = False


@dataclass
class Visit:
    """The timing of one entry point in one process, epoch by epoch, until enough epochs have run.

    Attributes:
        start_s: seconds from the call to the end of the first epoch: data sets, models, workers and that epoch.
        epochs_s: seconds of each later epoch, its validation included. Empty where no loader was iterated again.
        cached_s: seconds of an epoch that was fed from one batch in memory; empty without such an epoch.
        rest_s: seconds from the last epoch that was timed to the end of the call; 0 where the call was ended.
        samples, batches: taken from all loaders in each of the later epochs, on average.
        steps: simulated device steps; None without a simulation.
        error, printed: as those of :class:`EntryResult`.
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
        api: what :func:`chirp_migrate.verify.equivalence.api.describe_api` found for the names asked for.
        names: of the calls that a hook gives, when that is what was asked for.
        measured: what the MEASURE job found.
        spent_s: seconds that the process spent on what, by name.
    """

    api: Api = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    measured: SideMeasures | None = None
    spent_s: dict[str, float] = field(default_factory=dict)
