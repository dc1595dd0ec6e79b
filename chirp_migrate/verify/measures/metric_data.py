"""The results of the MEASURED pass of one version, as plain data; ``measures.figures`` defines them."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "AugmentationCost",
    "EntryMeasures",
    "LoaderRate",
    "Measure",
    "SideMeasures",
    "Slope",
    "UsagePoint",
    "Walk",
    "WorkerTrial",
]


@dataclass(frozen=True)
class Measure:
    """The definition of a metric.

    Attributes:
        name: key in the JSON document.
        unit: unit of the figure.
        title: short name for people.
        method: how it is taken, one sentence.
        requirement: row of the requirements that asks for it.
    """

    name: str
    unit: str
    title: str
    method: str
    requirement: str


@dataclass(frozen=True)
class Slope:
    """Growth of memory in MiB per epoch with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass
class Walk:
    """One walk over one loader; times in seconds from a moment before the training call, without our own readings.

    Attributes:
        loader: number of the loader within the entry point, in order of first use.
        role: ``train`` when gradients were enabled as the first batch was asked for, else ``validation``.
        begun_s, ended_s: the iterator was asked for; the last batch, or the news that there is none, arrived.
        waits_s: seconds waited for each batch; the first one from asking for the iterator.
        samples: samples taken.
        memory_bytes: memory of the process and its workers at the end of a training walk; None where not to be had.
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
        seconds: wall time of the training call, without our own readings.
        walks: walks over loaders, in the order in which they began.
        lost_workers: loaders of which a worker process died, or could not be started.
        augmentations: names of the augmented datasets it trains on (see ``SideMeasures.augmentation``).
    """

    seconds: float
    walks: list[Walk]
    lost_workers: int
    augmentations: list[str] = field(default_factory=list)


@dataclass
class AugmentationCost:
    """The cost of augmentation in loading one batch in the process.

    Attributes:
        dataset: what the samples come from, outermost class first.
        with_s, without_s: seconds per batch, medians of each round; empty when ``reason`` says why.
        reason: why it could not be measured, else None.
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
        workers: worker processes.
        start_method: how they were started (``fork``, ``forkserver``, ``spawn``).
        samples: samples that were checked.
        problem: what was wrong, or why it was not tried, in one sentence; None when all was well.
        tried: whether it was tried at all.
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
        loader: ``plain`` for PyTorch's own, ``factory`` for what the factory chooses.
        dataset: as in :class:`AugmentationCost`.
        workers: worker processes asked for (``factory``: 0, it decides).
        samples_per_second: the steady rate, or None when ``problem`` says why.
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
        memory_bytes: memory of the process and its workers, shared pages once if the system reports it.
        resident_bytes: resident sets of the same processes added up: shared pages once for each.
        gpu_percent, gpu_bytes: utilisation (mean of the visible GPUs) and memory in use; None without a GPU.
    """

    seconds: float
    memory_bytes: int | None
    resident_bytes: int | None
    gpu_percent: float | None
    gpu_bytes: int | None


@dataclass
class SideMeasures:
    """Everything the MEASURED pass of one side found.

    Attributes:
        entries: by entry point label.
        usage: samples of memory and GPU while training ran, in order.
        memory_kind: ``pss``, ``uss``, ``rss`` or ``peak-rss`` (see ``chirpid_patch.machine.process_memory``).
        gpu: the visible GPUs in words, or "no GPU" with the reason.
        augmentation: one for each augmented dataset found.
        workers: worker safety (the side after only).
        rates: loading alone (the side after only).
        unread: datasets that could not be read by number, with the reason: nothing was asked of them.
    """

    entries: dict[str, EntryMeasures] = field(default_factory=dict)
    usage: list[UsagePoint] = field(default_factory=list)
    memory_kind: str = ""
    gpu: str = ""
    augmentation: list[AugmentationCost] = field(default_factory=list)
    workers: list[WorkerTrial] = field(default_factory=list)
    rates: list[LoaderRate] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
