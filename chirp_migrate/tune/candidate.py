"""One way of loading, and what was measured of it: plain data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

__all__ = ["Candidate", "Measured", "grid"]


@dataclass(frozen=True)
class Candidate:
    """One way of loading.

    Attributes:
        num_workers: worker processes; 0 loads in the training's own process.
        prefetch_factor: batches that each worker loads ahead; None without workers.
        prefetch_threads: threads that load ahead in the process; 0 with workers.
        batch_size: samples in a batch; None where a batch sampler decides.
    """

    num_workers: int
    prefetch_factor: int | None = None
    prefetch_threads: int = 0
    batch_size: int | None = None

    @property
    def size(self) -> tuple[int, int, int]:
        """What it costs in processes, then in threads, then in memory for batches: smaller is better."""
        return (self.num_workers, self.prefetch_threads, self.num_workers * (self.prefetch_factor or 0))

    @property
    def at_once(self) -> int:
        """Batches that are loaded at the same time."""
        return max(self.num_workers, self.prefetch_threads, 1)

    @property
    def alone(self) -> bool:
        """Whether it loads in the process, when a batch is asked for: what everything is compared with."""
        return not (self.num_workers or self.prefetch_threads)

    def __str__(self) -> str:
        if self.num_workers:
            ahead = f", prefetch {self.prefetch_factor}" if self.prefetch_factor is not None else ""
            return f"{self.num_workers} worker{'s' if self.num_workers > 1 else ''}{ahead}"
        if self.prefetch_threads:
            return f"{self.prefetch_threads} prefetch thread{'s' if self.prefetch_threads > 1 else ''}"
        return "in the process"


@dataclass
class Measured:
    """What was measured of one candidate, a value for each round it took part in.

    Attributes:
        candidate: the way of loading.
        rates: samples a second, once running.
        first_batch_s: seconds to the first batch, the start of workers included; no part of the rates.
        batches: batches that were counted, over all rounds.
        error: why it could not be measured; None where it could.
    """

    candidate: Candidate
    rates: list[float] = field(default_factory=list)
    first_batch_s: list[float] = field(default_factory=list)
    batches: int = 0
    error: str | None = None


def grid(
    workers: Iterable[int],
    prefetch: Sequence[int],
    threads: Iterable[int],
    batch_size: int | None,
    now: Candidate | None,
) -> list[Candidate]:
    """Every candidate once, smallest first; without workers there is nothing to prefetch (trap 4).

    Loading in the process is always among them, since everything is compared with it, and so is what the training has
    now.
    """
    found = {Candidate(0)}
    for count in workers:
        found |= {Candidate(count, ahead) for ahead in prefetch} if count else set()
    found |= {Candidate(0, prefetch_threads=count) for count in threads if count}
    if now is not None:
        found.add(replace(now, batch_size=None))
    return sorted((replace(one, batch_size=batch_size) for one in found), key=lambda one: one.size)
