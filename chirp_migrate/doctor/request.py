"""What the parent process asks of the child process: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from chirp_migrate.training.workload.entry_points import Discovery, Sizes

__all__ = ["MEASURED", "NAMES", "Request"]

MEASURED = "measured workers of "
"""Begin of the name of the last message: the label of an entry point follows. It holds a :class:`.recording.Tuned`."""

NAMES = "names of the calls"
"""Name of the first message of a child that trains the calls of a hook: it holds their names."""


@dataclass(frozen=True)
class Request:
    """One child process.

    Attributes:
        tree: copy of the project, in which the child works and from which it imports.
        discovery: the entry points.
        records: folder in which worker processes leave their records.
        select: expression over the names of a hook's calls; None for all.
        ends_at: when the time budget is used up (``time.time()``).
        sizes: how much found entry points train.
    """

    tree: str
    discovery: Discovery
    records: str
    ends_at: float
    select: str | None = None
    sizes: Sizes = field(default_factory=Sizes)
