"""Define the task that the parent process of ``doctor`` sends to the child process."""

from __future__ import annotations

from dataclasses import dataclass, field

from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, WorkloadSizes

MEASURED = "measured workers of "
"""Prefix of the names of messages with a :class:`.recording.WorkerCountTimings`. A label of an entry point follows."""

NAMES = "names of the calls"
"""Name of the child's first message, which lists the names of the training calls that a workload function returns."""


@dataclass(frozen=True)
class DoctorTask:
    """The task of a child process of ``doctor``.

    Attributes:
        tree: path of the temporary copy of the project. The child runs in this folder, and imports the user's code from
            this folder.
        discovery: the entry points (training functions or scripts) to run.
        records: folder for the recordings that worker processes write.
        ends_at: time at which the time budget ends, in seconds of ``time.time``.
        select: expression that selects training calls by name, as with ``pytest -k``; None for all calls. The
            expression applies to the calls that a workload function (``--workload``) returns.
        sizes: numbers of samples and epochs, and seed, of the training.
    """

    tree: str
    discovery: DiscoveredEntryPoints
    records: str
    ends_at: float
    select: str | None = None
    sizes: WorkloadSizes = field(default_factory=WorkloadSizes)
