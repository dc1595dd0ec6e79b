"""The request of the parent process to the child process."""

from __future__ import annotations

from dataclasses import dataclass, field

from chirp_migrate.training.workload.entry_points import Discovery, WorkloadSizes

__all__ = ["MEASURED", "NAMES", "Request"]

MEASURED = "measured workers of "
"""Beginning of the name of the last message, before a label. The message has a :class:`.recording.WorkerTuning`."""

NAMES = "names of the calls"
"""Name of the first message of a child that trains the calls of a hook; the message has their names."""


@dataclass(frozen=True)
class Request:
    """A request to one child process.

    Attributes:
        tree: copy of the project, in which the child works and from which it imports.
        discovery: the entry points.
        records: folder for the records of worker processes.
        select: expression over the names of a hook's calls; None for all.
        ends_at: end of the time budget (``time.time()``).
        sizes: sizes of the training of entry points found automatically.
    """

    tree: str
    discovery: Discovery
    records: str
    ends_at: float
    select: str | None = None
    sizes: WorkloadSizes = field(default_factory=WorkloadSizes)
