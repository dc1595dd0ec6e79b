"""Classes for the task that ``tune`` sends to its child process."""

from __future__ import annotations

from dataclasses import dataclass, field

from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, WorkloadSizes
from chirp_migrate.tune.config import TuneConfig


@dataclass(frozen=True)
class SettingsToMeasure:
    """The loader settings to measure.

    Attributes:
        workers: values of ``num_workers`` to measure.
        prefetch: values of ``prefetch_factor`` to measure.
        batch_sizes: other batch sizes to measure with the picked settings; may be empty.
        seconds: time limit of the whole measurement in seconds.
        thread_safe: whether several threads may use a dataset and its ``collate_fn`` at the same time.
        migrated: True to measure the loader of ``chirpid_patch``, False to measure PyTorch's loader, None to measure
            the loader that the training uses.
    """

    workers: tuple[int, ...] = (0, 2, 4, 8)
    prefetch: tuple[int, ...] = (2, 4)
    batch_sizes: tuple[int, ...] = ()
    seconds: float = 90.0
    thread_safe: bool = False
    migrated: bool | None = None


@dataclass(frozen=True)
class TuneTask:
    """The task of the child process.

    The dataset to measure comes from ``dataset``, or else from ``config``, or else from the loaders of the training
    ``discovery``.

    Attributes:
        tree: working directory and first import path of the child.
        grid: the loader settings to measure.
        dataset: reference ``MODULE:CALLABLE`` to a function or class that returns a dataset or a loader; an empty
            string for none.
        unaugmented: reference ``MODULE:CALLABLE`` to a function or class that returns the dataset without its
            augmentation; an empty string for none.
        config: the configuration file of the training; None without such a file.
        discovery: the entry points of the training whose loaders are measured; None without a training.
        sizes: numbers of samples and epochs of the training.
        lost: dictionary, label of an entry point that crashed or hung in an earlier process → how this process ended.
            These entry points do not run again.
        profile: path of the file in which the picked settings are saved; an empty string to save nothing.
        ends_at: end of the time budget, in seconds of ``time.time``; None for ``grid.seconds`` after the start.
        uses_runtime: whether the code in ``tree`` uses ``chirpid_patch``. If so, a dataset without a loader is measured
            with the loader of ``chirpid_patch``.
    """

    tree: str
    grid: SettingsToMeasure
    dataset: str = ""
    unaugmented: str = ""
    config: TuneConfig | None = None
    discovery: DiscoveredEntryPoints | None = None
    sizes: WorkloadSizes = field(default_factory=WorkloadSizes)
    lost: dict[str, str] = field(default_factory=dict)
    profile: str = ""
    ends_at: float | None = None
    uses_runtime: bool = False
