"""The request of the parent process to the child: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from chirp_migrate.training.workload.entry_points import Discovery, Sizes
from chirp_migrate.tune.config import TuneConfig

__all__ = ["Grid", "Request"]


@dataclass(frozen=True)
class Grid:
    """The settings to sweep.

    Attributes:
        workers: numbers of worker processes.
        prefetch: batches that each worker loads ahead.
        batch_sizes: further batch sizes to try with what was picked; empty for none.
        seconds: time for everything; where three rounds of a loader take longer, there are fewer.
        thread_safe: whether the datasets and their collation may be used by several threads at once.
        migrated: whether the loader of ``chirpid_patch`` is measured, or PyTorch's; None for what the training has.
    """

    workers: tuple[int, ...] = (0, 2, 4, 8)
    prefetch: tuple[int, ...] = (2, 4)
    batch_sizes: tuple[int, ...] = ()
    seconds: float = 90.0
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
        discovery: training calls whose loaders are measured, in a copy; None for none.
        sizes: how much is trained.
        lost: entry points that took an earlier process with them, or gave no batch in time → how; not entered again.
        profile: file that what was picked is kept in; empty for none.
        ends_at: when the time budget is used up (``time.time()``); None: ``grid.seconds`` after the child began.
        uses_runtime: whether the code at ``tree`` loads by ``chirpid_patch``, for datasets that come without a loader.
    """

    tree: str
    grid: Grid
    dataset: str = ""
    unaugmented: str = ""
    config: TuneConfig | None = None
    discovery: Discovery | None = None
    sizes: Sizes = field(default_factory=Sizes)
    lost: dict[str, str] = field(default_factory=dict)
    profile: str = ""
    ends_at: float | None = None
    uses_runtime: bool = False
