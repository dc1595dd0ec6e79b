"""The task that the parent process sends to the child, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from chirp_migrate.training.workload.entry_points import Discovery, WorkloadSizes
from chirp_migrate.tune.config import TuneConfig

__all__ = ["Grid", "TuneTask"]


@dataclass(frozen=True)
class Grid:
    """The settings to sweep.

    Attributes:
        workers: numbers of worker processes.
        prefetch: numbers of batches that each worker loads ahead.
        batch_sizes: further batch sizes to try with the pick; may be empty.
        seconds: time limit of everything; if three rounds of a loader take longer, there are fewer rounds.
        thread_safe: whether several threads may use the datasets and their collation at once.
        migrated: whether the loader of ``chirpid_patch`` is measured, or PyTorch's; None for the loader of the
            training.
    """

    workers: tuple[int, ...] = (0, 2, 4, 8)
    prefetch: tuple[int, ...] = (2, 4)
    batch_sizes: tuple[int, ...] = ()
    seconds: float = 90.0
    thread_safe: bool = False
    migrated: bool | None = None


@dataclass(frozen=True)
class TuneTask:
    """The task of the child. The dataset comes from ``dataset``, else from ``config``, else from a training.

    Attributes:
        tree: working directory of the child, from which it imports.
        grid: the settings to sweep.
        dataset: ``MODULE:CALLABLE`` that returns a dataset or a loader; may be empty.
        unaugmented: ``MODULE:CALLABLE`` that returns the dataset without its augmentation; may be empty.
        config: the training's configuration, if the user named one.
        discovery: training calls in a copy whose loaders are measured; None if there is no training.
        sizes: numbers of samples and epochs of the training.
        lost: entry points that ended an earlier process, or yielded no batch in time → description; they do not run
            again.
        profile: file in which the picks are saved; may be empty.
        ends_at: end of the time budget (``time.time()``); None: ``grid.seconds`` after the start of the child.
        uses_runtime: whether the code at ``tree`` loads with ``chirpid_patch``, for datasets without a loader.
    """

    tree: str
    grid: Grid
    dataset: str = ""
    unaugmented: str = ""
    config: TuneConfig | None = None
    discovery: Discovery | None = None
    sizes: WorkloadSizes = field(default_factory=WorkloadSizes)
    lost: dict[str, str] = field(default_factory=dict)
    profile: str = ""
    ends_at: float | None = None
    uses_runtime: bool = False
