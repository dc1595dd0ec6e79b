"""Define the task that the parent process of ``tune`` sends to the child process."""

from __future__ import annotations

from dataclasses import dataclass, field

from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, WorkloadSizes
from chirp_migrate.tune.config import TuneConfig


@dataclass(frozen=True)
class SettingsToMeasure:
    """The loader settings to measure.

    Attributes:
        workers: the values of ``num_workers`` to measure; 0 is loading in the main process.
        prefetch: the values of ``prefetch_factor`` to measure, with each number of workers except 0.
        batch_sizes: additional batch sizes to measure with the picked settings; an empty tuple to measure only the
            batch size of the training.
        seconds: time budget of the whole measurement in seconds.
        thread_safe: whether several threads may use a dataset and its ``collate_fn`` at the same time. If so, ``tune``
            also measures loading with threads.
        migrated: which loader to measure, where True stands for the loader of ``chirpid_patch``, False for PyTorch's
            loader, and None for the loader that the training uses.
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

    The dataset to measure comes from ``dataset``. If ``dataset`` is empty, the dataset comes from ``config``. If
    ``config`` is also None, the child runs the entry points in ``discovery``, and measures their loaders.

    Attributes:
        tree: working directory and first import path of the child.
        grid: the loader settings to measure.
        dataset: reference ``MODULE:CALLABLE`` to a function or class that returns a dataset or a loader; an empty
            string if the user named no dataset.
        unaugmented: reference ``MODULE:CALLABLE`` to a function or class that returns the same dataset without
            augmentation; an empty string if the user named no such function or class.
        config: the configuration file of the training; None without such a file.
        discovery: the entry points (training functions or a script) whose loaders are measured; None without a
            training.
        sizes: size of the training, such as its numbers of samples and epochs.
        lost: dictionary, label (short unique name) of an entry point that crashed or hung in an earlier process → how
            this process ended. These entry points do not run again.
        profile: path of the file in which the picked settings are saved; an empty string to save nothing.
        ends_at: time at which the time budget ends, in seconds of ``time.time``; None if the budget of ``grid.seconds``
            begins when the child starts.
        uses_runtime: whether the code in ``tree`` uses ``chirpid_patch``. For a dataset that has
            no loader, ``tune`` measures the loader of ``chirpid_patch`` if True, and PyTorch's loader if False.
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
