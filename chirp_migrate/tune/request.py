"""What the parent process tells the child, and what the child answers: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from chirp_migrate.training.workload.entry_points import EntryPoint, Sizes
from chirp_migrate.tune.candidate import Candidate, Measured
from chirp_migrate.tune.config import TuneConfig

__all__ = ["Findings", "Grid", "LoaderFindings", "Request", "Training"]


@dataclass(frozen=True)
class Grid:
    """What is swept.

    Attributes:
        workers: numbers of worker processes.
        prefetch: batches that each worker loads ahead.
        batch_sizes: further batch sizes to try with what was picked; empty for none.
        seconds: time for measuring, over all loaders; one that loads slowly takes longer.
        thread_safe: whether the datasets and their collation may be used by several threads at once.
        migrated: whether the loader of ``chirpid_patch`` is measured, or PyTorch's; None for what the training has.
    """

    workers: tuple[int, ...] = (0, 2, 4, 8)
    prefetch: tuple[int, ...] = (2, 4)
    batch_sizes: tuple[int, ...] = ()
    seconds: float = 30.0
    thread_safe: bool = False
    migrated: bool | None = None


@dataclass(frozen=True)
class Request:
    """One run of the child. The dataset comes from ``dataset``, else from ``config``, else from a training.

    Attributes:
        tree: folder that it works in and imports from.
        grid: what is swept.
        dataset: ``MODULE:CALLABLE`` that gives a dataset or a loader; empty for none.
        unaugmented: the same for the dataset without its augmentation; empty for none.
        config: the training's configuration, if one was given.
        entry_points: training calls whose loaders are measured; empty for none.
        model: what found entry points train.
        sizes: how much is trained.
        origin: the user's own folder, where ``tree`` is a copy of it; empty where it is not.
        profile: file that what was picked is kept in; empty for none.
        uses_runtime: whether the code at ``tree`` loads by ``chirpid_patch``, for datasets that come without a loader.
    """

    tree: str
    grid: Grid
    dataset: str = ""
    unaugmented: str = ""
    config: TuneConfig | None = None
    entry_points: tuple[EntryPoint, ...] = ()
    model: str = ""
    sizes: Sizes = field(default_factory=Sizes)
    origin: str = ""
    profile: str = ""
    uses_runtime: bool = False


@dataclass
class LoaderFindings:
    """What was found for one loader.

    Attributes:
        name: class names of its dataset, outermost first.
        role: ``training`` or ``validation``.
        batch_size: samples in a batch; None where a batch sampler decides.
        samples: samples in the dataset.
        migrated: whether the loader measured was that of ``chirpid_patch``, else PyTorch's.
        now: how the training loads today; None where that is not known.
        setting: what the user's settings are called, by the argument of the loader: ``num_workers`` may be
            ``data.num_workers in config.yaml``.
        measured: every candidate.
        batch_sizes: what was picked, at other batch sizes.
        rounds: rounds made.
        cpu_share: CPU time / wall time of loading in the process; None where that failed.
        with_s, without_s: seconds a batch with and without augmentation, by round; empty where not measured.
        not_augmented: why they are empty; None where they are not.
        others: share of the CPUs that other processes used meanwhile, the median; None where that is not known.
        waited_share: share of the training's time spent waiting for it; None without a training.
        saved: profile that the pick was kept in; None where it was not.
        not_saved: why not, where it was asked for.
    """

    name: str
    role: str
    batch_size: int | None
    samples: int
    migrated: bool
    now: Candidate | None = None
    setting: dict[str, str] = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)
    batch_sizes: list[Measured] = field(default_factory=list)
    rounds: int = 0
    cpu_share: float | None = None
    with_s: list[float] = field(default_factory=list)
    without_s: list[float] = field(default_factory=list)
    not_augmented: str | None = None
    others: float | None = None
    waited_share: float | None = None
    saved: str | None = None
    not_saved: str | None = None


@dataclass
class Training:
    """The training that was watched.

    Attributes:
        seconds: wall time of the training calls.
        gpu_percent: mean utilisation of the GPUs meanwhile; None where there is none to read.
        gpu: the GPUs, or why there is none, in words.
    """

    seconds: float
    gpu_percent: float | None
    gpu: str


@dataclass
class Findings:
    """Everything the child found out.

    Attributes:
        loaders: those that were measured.
        training: the training that was watched; None where there was none.
        notes: what the user should know, one sentence each.
    """

    loaders: list[LoaderFindings] = field(default_factory=list)
    training: Training | None = None
    notes: list[str] = field(default_factory=list)
