"""What the user chose for a verification."""

from __future__ import annotations

from dataclasses import dataclass

from chirp_migrate.training.workload.entry_points import Sizes
from chirp_migrate.verify.measures.options import NO_OPTIONS, MeasureOptions
from chirp_migrate.verify.verdict import MARGIN

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """What the user chose.

    Attributes:
        sizes: the workload.
        rounds: timed pairs that count, at most; at least :data:`.rounds.MIN_ROUNDS` are run.
        budget_s: seconds for everything from the first training on; no round begins that would probably end later.
        threshold: share of the time that must be saved, 0 to 1.
        threads: compute threads of each child.
        timeout_s: seconds after which a child counts as hung.
        measuring: what is measured besides times, and whether device steps are simulated.
        margin: share of the time by which an entry point must be slower to count as slower.
        each: whether rounds are made for each entry point's own verdict, too.
    """

    sizes: Sizes
    rounds: int
    budget_s: float
    threshold: float
    threads: int
    timeout_s: float
    measuring: MeasureOptions = NO_OPTIONS
    each: bool = False
    margin: float = MARGIN
