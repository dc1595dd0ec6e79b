"""The task that the parent process of ``doctor`` sends to the child process."""

from __future__ import annotations

from dataclasses import dataclass, field

from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, WorkloadSizes

MEASURED = "measured workers of "
"""Prefix of the name of a :class:`.recording.WorkerCountTimings` message; the label of an entry point follows."""

NAMES = "names of the calls"
"""Name of the first message of the child, with the names of the training calls of a workload function."""


@dataclass(frozen=True)
class DoctorTask:
    """The task of one child process.

    Attributes:
        tree: copy of the project, in which the child runs, and from which it imports first.
        discovery: the entry points to train.
        records: folder in which worker processes write their recordings.
        ends_at: end of the time budget, on the clock of ``time.time``.
        select: expression that selects calls of a workload function by name; None for all calls.
        sizes: numbers of samples and epochs, for entry points that ``doctor`` finds automatically.
    """

    tree: str
    discovery: DiscoveredEntryPoints
    records: str
    ends_at: float
    select: str | None = None
    sizes: WorkloadSizes = field(default_factory=WorkloadSizes)
