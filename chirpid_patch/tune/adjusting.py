"""Worker processes raised and lowered between epochs, by how long the training waited for its batches (R-000-N)."""

from __future__ import annotations

import logging
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset

from chirpid_patch.datasets.collate import stacks_samples
from chirpid_patch.datasets.gather import is_in_memory
from chirpid_patch.loading.batch_timer import TimedBatches
from chirpid_patch.loading.limits import TORCH_PREFETCH
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.samplers import tasks_drawn_freely
from chirpid_patch.machine.cpus import rank_cpus
from chirpid_patch.tune.search import why_no_processes

logger = logging.getLogger("chirpid_patch")


@dataclass(frozen=True)
class EpochLoad:
    """What an epoch showed, from its second batch on: the first one waits for workers to start.

    ``waited_s`` of ``elapsed_s`` seconds went by waiting for ``batches`` batches.
    """

    waited_s: float
    elapsed_s: float
    batches: int

    @property
    def share_waited(self) -> float:
        """Part of the time spent waiting, 0 to 1."""
        return self.waited_s / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def batch_s(self) -> float:
        """Seconds from batch to batch."""
        return self.elapsed_s / self.batches


class WorkerAdjuster:
    """The number of workers for the next epoch, from what the last ones showed. Knows no loader and no clock.

    * An epoch that waited more than ``RAISE_ABOVE`` of its time is followed by one with twice the workers (the first
      step is to 2).
    * After ``PATIENCE`` epochs in a row that waited less than ``LOWER_BELOW``, one with half of them is tried.
    * A change stands if it kept its promise: more workers must shorten the time from batch to batch by ``WORTH``,
      fewer may not lengthen it by as much. Else it is taken back, and that number is not tried again.

    Between the two shares, and in epochs of fewer than ``LEAST_BATCHES`` batches, nothing changes.

    Args:
        workers: the number to begin with.
        least, most: bounds of the number.

    Raises:
        ValueError: bounds that are negative or contradict each other.
    """

    RAISE_ABOVE = 0.10
    LOWER_BELOW = 0.01
    PATIENCE = 3
    WORTH = 0.05
    LEAST_BATCHES = 8

    def __init__(self, workers: int, least: int, most: int) -> None:
        if not 0 <= least <= most:
            raise ValueError(
                f"least_workers={least} and most_workers={most} must be numbers of workers, the first no larger"
            )
        self.least, self.most = least, most
        self.workers = min(max(workers, least), most)
        #: Why the number is what it is, in words.
        self.why = "nothing seen yet"
        self._refused: set[int] = set()
        self._trial: tuple[int, float] | None = None  # the number before, and its seconds from batch to batch
        self._idle = 0

    def observe(self, load: EpochLoad) -> int:
        """Take in an epoch with ``workers`` workers, and give the number for the next."""
        if load.batches < self.LEAST_BATCHES or load.elapsed_s <= 0:
            return self.workers
        if self._trial is not None:
            before, batch_s = self._trial
            self._trial = None
            if self._broke_its_promise(before, load.batch_s / batch_s):
                self._refused.add(self.workers)
                self.why = (
                    f"{self.workers} took {load.batch_s / batch_s:.2f} times as long a batch as {before}: taken back"
                )
                self.workers = before
                return before
        waited = load.share_waited
        self._idle = self._idle + 1 if waited < self.LOWER_BELOW else 0
        if waited > self.RAISE_ABOVE:
            self._try(min(max(2 * self.workers, 2), self.most), load, f"{waited:.0%} of the epoch was waited")
        elif self._idle >= self.PATIENCE:
            self._idle = 0
            self._try(max(self.workers // 2, self.least), load, f"{waited:.1%} of the epochs was waited")
        return self.workers

    def _broke_its_promise(self, before: int, ratio: float) -> bool:
        """Whether a change from ``before`` gave ``ratio`` times the seconds from batch to batch that it should not."""
        return ratio > 1 - self.WORTH if self.workers > before else ratio > 1 + self.WORTH

    def _try(self, workers: int, load: EpochLoad, reason: str) -> None:
        if workers == self.workers or workers in self._refused:
            return
        self.why = f"{workers} after {self.workers}: {reason}"
        self._trial = (self.workers, load.batch_s)
        self.workers = workers


class AdjustingDataLoader(BatchedDataLoader[Any]):
    """A ``BatchedDataLoader`` that changes its number of worker processes between epochs, where that helps.

    Samples and their order are the same as with any fixed number, and so is what is drawn from the global generators
    and augmentation by this package; a dataset that draws from global generators itself draws other numbers with
    another number of workers, as it does in PyTorch. The number changes only when an epoch begins and no other
    iterator of this loader is in use. ``adjusting`` says why it is what it is, and each change is logged.

    Where another number would be other data or cannot help it is left alone: an iterable dataset, a sampler that draws
    as it goes, samples in memory, lost workers, processes that cannot be started safely.

    Args:
        least_workers, most_workers: bounds; ``most_workers`` is by default the CPUs this rank may use, and never
            below ``num_workers``.

    All others are those of :class:`BatchedDataLoader`. Raises ValueError for bounds that contradict each other.
    """

    def __init__(
        self, dataset: Any, *args: Any, least_workers: int = 0, most_workers: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(dataset, *args, **kwargs)
        self.least_workers = least_workers
        if most_workers is None:
            most_workers = max(rank_cpus(), self.num_workers)
        self.most_workers = most_workers
        self._adjuster = WorkerAdjuster(self.num_workers, self.least_workers, self.most_workers)
        self._running: list[weakref.ref[TimedBatches]] = []
        self._load: EpochLoad | None = None  # what the epoch that ended last showed
        self._refusal = self._why_fixed()

    @property
    def adjusting(self) -> str:
        """Why the number of workers is what it is, or why it stays."""
        return self._adjuster.why if self._refusal is None else f"fixed: {self._refusal}"

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self._running = [ref for ref in self._running if (batches := ref()) is not None and not batches.over]
        if self._refusal is None and self._load is not None and not self._running:
            load, self._load = self._load, None
            self._change_to(self._adjuster.observe(load))
        with warnings.catch_warnings():  # more workers than CPUs stay only where they were faster
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            batches = TimedBatches(super().__iter__(), self._epoch_ended)
        self._running.append(weakref.ref(batches))
        return batches

    def _epoch_ended(self, epoch: TimedBatches) -> None:
        self._load = EpochLoad(waited := sum(epoch.waits[1:]), waited + sum(epoch.steps[:-1]), max(len(epoch.waits) - 1, 0))

    def _why_fixed(self) -> str | None:
        if isinstance(self.dataset, IterableDataset):
            return "each worker of an iterable dataset has samples of its own"
        if not tasks_drawn_freely(self):
            return "the sampler may draw random numbers as it goes"
        if is_in_memory(self.dataset) and stacks_samples(self.collate_fn):
            return "the samples are in memory, workers would only cost time"
        return None

    def _change_to(self, workers: int) -> None:
        before = self.num_workers
        if workers == before:
            return
        if self.lost_workers:
            self._refusal = "worker processes were lost"
        elif workers and not before:
            self._refusal = why_no_processes({"multiprocessing_context": self.multiprocessing_context})
        if self._refusal is not None:
            return
        counters = self._counters()
        self.shutdown()
        # It goes on drawing from the global generators as it did.
        if self.draws_like_persistent_workers:
            object.__setattr__(self, "persistent_workers", True)  # which PyTorch's loader fixes when it is made
        if before and not workers:
            self.draws_ahead = before * (self.prefetch_factor or TORCH_PREFETCH)
            self.draws_like_persistent_workers = self.persistent_workers
        if workers and self.prefetch_factor is None:
            self.prefetch_factor = TORCH_PREFETCH
        self.num_workers = workers
        self.load_state_dict(counters)
        logger.info("worker processes: %s", self._adjuster.why)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_running": []}
