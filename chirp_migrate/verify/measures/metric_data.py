"""The results of the MEASURED pass of one version, as plain data; ``measures.figures`` defines them."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "AugmentationCost",
    "EntryMeasures",
    "LoaderRate",
    "Measure",
    "PassTiming",
    "SideMeasures",
    "Slope",
    "UsagePoint",
    "WorkerTrial",
]


@dataclass(frozen=True)
class Measure:
    """The definition of a metric.

    Attributes:
        name: key in the JSON document.
        unit: unit of the value.
        title: short name for people.
        method: how it is measured, one sentence.
        requirement: the row of the requirements that defines the metric.
    """

    name: str
    unit: str
    title: str
    method: str
    requirement: str


@dataclass(frozen=True)
class Slope:
    """Growth of memory in MiB per epoch, with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass
class PassTiming:
    """One pass over one loader; times in seconds since the training call, without those of the measurements.

    Attributes:
        loader: number of the loader within the entry point, in order of first use.
        role: ``train`` if gradients were enabled at the request of the first batch, else ``validation``.
        begun_s, ended_s: times of the request of the iterator, and of the arrival of the last batch or of
            ``StopIteration``.
        waits_s: seconds of waiting for each batch; the first wait begins at the request of the iterator.
        samples: number of samples taken.
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
    """One entry point, trained once.

    Attributes:
        seconds: wall time of the training call, without the time of the measurements.
        walks: passes over loaders, in the order of their beginnings.
        lost_workers: loaders with a worker process that died or could not be started.
        augmentations: names of the augmented datasets that it trains on (see ``SideMeasures.augmentation``).
    """

    seconds: float
    walks: list[PassTiming]
    lost_workers: int
    augmentations: list[str] = field(default_factory=list)


@dataclass
class AugmentationCost:
    """The cost of augmentation in loading one batch in the process.

    Attributes:
        dataset: classes of the dataset and of the datasets inside it, outermost class first.
        with_s, without_s: seconds per batch with and without augmentation, medians of each round; empty if there is a
            ``reason``.
        reason: why it could not be measured; None if it was measured.
    """

    dataset: str
    with_s: list[float] = field(default_factory=list)
    without_s: list[float] = field(default_factory=list)
    reason: str | None = None


@dataclass
class WorkerTrial:
    """One dataset read by PyTorch's own loader with a number of worker processes.

    Attributes:
        dataset: as in :class:`AugmentationCost`.
        workers: number of worker processes.
        start_method: start method of the workers (``fork``, ``forkserver``, ``spawn``).
        samples: number of checked samples.
        problem: the problem, or why it was not tried, in one sentence; None without a problem.
        tried: whether it was tried.
    """

    dataset: str
    workers: int
    start_method: str
    samples: int
    problem: str | None
    tried: bool = True


@dataclass
class LoaderRate:
    """Loading alone, at the batch size of the training.

    Attributes:
        loader: ``plain`` for PyTorch's own loader, ``factory`` for the factory's loader.
        dataset: as in :class:`AugmentationCost`.
        workers: number of requested worker processes (``factory``: 0, because the factory decides).
        samples_per_second: the steady rate; None if there is a ``problem``.
    """

    loader: str
    dataset: str
    workers: int
    samples_per_second: float | None
    problem: str | None


@dataclass
class UsagePoint:
    """One sample of memory and GPU.

    Attributes:
        seconds: training seconds of the MEASURED pass so far.
        memory_bytes: memory of the process and its workers; shared pages count once if the system reports that.
        resident_bytes: sum of the resident memory of these processes; shared pages count for each of them.
        gpu_percent, gpu_bytes: utilisation (mean of the visible GPUs) and memory in use; None without a GPU.
    """

    seconds: float
    memory_bytes: int | None
    resident_bytes: int | None
    gpu_percent: float | None
    gpu_bytes: int | None


@dataclass
class SideMeasures:
    """The results of the MEASURED pass of one version.

    Attributes:
        entries: results by label of the entry point.
        usage: samples of memory and GPU while training ran, in order.
        memory_kind: ``pss``, ``uss``, ``rss`` or ``peak-rss`` (see ``chirpid_patch.machine.process_memory``).
        gpu: description of the visible GPUs, or "no GPU" with the reason.
        augmentation: cost of augmentation of each augmented dataset.
        workers: trials with worker processes (version after only).
        rates: rates of loading alone (version after only).
        unread: datasets that could not be read by number and were not tried, with the reason.
    """

    entries: dict[str, EntryMeasures] = field(default_factory=dict)
    usage: list[UsagePoint] = field(default_factory=list)
    memory_kind: str = ""
    gpu: str = ""
    augmentation: list[AugmentationCost] = field(default_factory=list)
    workers: list[WorkerTrial] = field(default_factory=list)
    rates: list[LoaderRate] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
