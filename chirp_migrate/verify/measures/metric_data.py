"""Classes for the results of the measured run of one version, from which ``measures.figures`` computes the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Metric:
    """The definition of a metric.

    Attributes:
        name: key in the JSON document.
        unit: unit of the value.
        title: short name for reports.
        method: how the metric is measured, one sentence.
        requirement: number of the requirement that defines the metric, such as ``R-004``.
    """

    name: str
    unit: str
    title: str
    method: str
    requirement: str


@dataclass(frozen=True)
class MemoryGrowth:
    """Growth of memory in MiB per epoch, with the lower and upper end of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass
class PassTiming:
    """Timing of one loader pass, that is, of one iteration over a loader.

    Times are seconds since the start of the training. The time that the measurements take is not included.

    Attributes:
        loader: number of the loader within the entry point, in order of first use.
        role: ``train`` if gradients were enabled at the start of the pass, else ``validation``.
        begun_s, ended_s: time of the call of ``iter(loader)``, and time of the last batch or of ``StopIteration``.
        waits_s: seconds of waiting for each batch; the first wait begins at the call of ``iter(loader)``.
        samples: number of samples that the pass yielded.
        memory_bytes: memory of the process and its workers at the end of a training pass; None if it cannot be read.
    """

    loader: int
    role: str
    begun_s: float
    ended_s: float
    waits_s: list[float] = field(default_factory=list)
    samples: int = 0
    memory_bytes: int | None = None


@dataclass
class EntryMeasures:
    """Measurements of one training of one entry point.

    Attributes:
        seconds: wall time of the training call, without the time that the measurements took.
        walks: timings of the loader passes, in the order in which they began.
        lost_workers: number of loaders with a worker process that died or could not start.
        augmentations: names of the augmented datasets that the entry point trains on.
    """

    seconds: float
    walks: list[PassTiming]
    lost_workers: int
    augmentations: list[str] = field(default_factory=list)


@dataclass
class AugmentationCost:
    """The time that augmentation takes when one process loads a batch.

    Attributes:
        dataset: class names of the dataset and of the datasets that it wraps, outermost first.
        with_s, without_s: median seconds per batch with and without augmentation, one value for each round; an empty
            list if the augmentation could not be measured.
        reason: why the augmentation could not be measured; None if it was measured.
    """

    dataset: str
    with_s: list[float] = field(default_factory=list)
    without_s: list[float] = field(default_factory=list)
    reason: str | None = None


@dataclass
class WorkerCheck:
    """The check of one dataset with a number of worker processes of PyTorch's own loader.

    Attributes:
        dataset: class names of the dataset and of the datasets that it wraps, outermost first.
        workers: number of worker processes.
        start_method: start method of the workers (``fork``, ``forkserver``, ``spawn``).
        samples: number of checked samples.
        problem: the problem, or why the check was skipped, in one sentence; None if the check found no problem.
        tried: whether the check ran.
    """

    dataset: str
    workers: int
    start_method: str
    samples: int
    problem: str | None
    tried: bool = True


@dataclass
class LoaderRate:
    """The rate of loading without training, at the batch size of the training.

    Attributes:
        loader: ``plain`` for PyTorch's own loader, ``factory`` for a loader of ``OptimalDataLoaderFactory``.
        dataset: class names of the dataset and of the datasets that it wraps, outermost first.
        workers: requested number of worker processes; 0 for ``factory``, which chooses the number.
        samples_per_second: samples per second once all workers are busy; None if the rate was not measured.
        problem: why the rate was not measured; None if it was measured.
    """

    loader: str
    dataset: str
    workers: int
    samples_per_second: float | None
    problem: str | None


@dataclass
class UsageReading:
    """One reading of memory and GPU use.

    Attributes:
        seconds: seconds of training before the reading, over all entry points of the measured run.
        memory_bytes: memory of the training process and its workers; shared pages count once if the system allows it.
        resident_bytes: resident memory of the training process and its workers; shared pages count once per process.
        gpu_percent, gpu_bytes: mean utilisation of the visible GPUs, and their memory in use; None without a GPU.
    """

    seconds: float
    memory_bytes: int | None
    resident_bytes: int | None
    gpu_percent: float | None
    gpu_bytes: int | None


@dataclass
class VersionMeasures:
    """The results of the measured run of one version.

    Attributes:
        entries: dictionary, label of an entry point → its measurements.
        usage: readings of memory and GPU use during the training, in order.
        memory_kind: kind of the memory readings: ``pss``, ``uss``, ``rss`` or ``peak-rss`` (see
            ``chirpid_patch.machine.process_memory``).
        gpu: description of the visible GPUs, or "no GPU" with the reason.
        augmentation: the time that augmentation takes, for each augmented dataset.
        workers: checks of datasets with worker processes; only for the migrated version.
        rates: rates of loading without training; only for the migrated version.
        unread: dictionary, name of a dataset that cannot be read by index → the error.
    """

    entries: dict[str, EntryMeasures] = field(default_factory=dict)
    usage: list[UsageReading] = field(default_factory=list)
    memory_kind: str = ""
    gpu: str = ""
    augmentation: list[AugmentationCost] = field(default_factory=list)
    workers: list[WorkerCheck] = field(default_factory=list)
    rates: list[LoaderRate] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
