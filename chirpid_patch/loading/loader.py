"""The loader of migrated code: PyTorch's DataLoader to its callers, reading whole batches where it can."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from chirpid_patch.data.collate import stacks_samples
from chirpid_patch.data.fetch import is_in_memory
from chirpid_patch.device.accelerator import pinning_device
from chirpid_patch.loading.in_process import InProcessIterator
from chirpid_patch.loading.on_demand import OnDemandIterator, demand_of
from chirpid_patch.loading.overlap import Overlap
from chirpid_patch.loading.prefetch import PrefetchThreads
from chirpid_patch.loading.samplers import tasks_drawn_freely
from chirpid_patch.loading.tasks import EpochTasks, draw_base_seed
from chirpid_patch.loading.waits import EpochWaits
from chirpid_patch.loading.workers import WorkerPool, WorkersClosedError, WorkersLostError
from chirpid_patch.randomness.as_in_worker import AsInWorker
from chirpid_patch.randomness.seeding import current_rank

logger = logging.getLogger("chirpid_patch")


class BatchedDataLoader(DataLoader[Any]):
    """A ``DataLoader`` that reads each batch at once where the dataset allows it, and survives its workers.

    It takes every argument of ``torch.utils.data.DataLoader`` and gives the same batches in the same order.
    The global random generators are left as the original loader would have left them:

    draws_ahead: how many batches of indices the original had drawn when its iterator was made, that is its
        ``num_workers * prefetch_factor``. Only used without workers, where 0 means that it had none.
    draws_like_persistent_workers: the original kept its workers, so it drew its base seed once in its life and
        not once an epoch. Only used without workers.
    prefetch_threads: without workers, how many threads of this process load ahead. None tries, in the running
        loop, whether that helps (see ``overlap.Overlap``). Batches are the same either way. Only this package's
        datasets over memory, with default collation, are read in threads, unless
    thread_safe: says that the dataset and ``collate_fn`` may be used by several threads at once and draw no
        random numbers from global generators.
    keep_workers: worker processes stay from epoch to epoch, as with ``persistent_workers``, but random numbers are
        drawn as without.
    workers_on_demand: begin in this process, and start the ``num_workers`` worker processes once the running loop shows
        that they would shorten it (see ``worker_demand.WorkerDemand``). Samples must not depend on where they are
        read: a dataset is read here only as long as it draws no random numbers and changes nothing in itself by being
        read, else the processes are started (see ``on_demand``).
    benchmark: log, at the end of each epoch, how long the training waited for its batches.

    Augmentation by this package's datasets is keyed by base seed, epoch, rank, sample index and occurrence,
    hence the same with any number of workers. If workers cannot be started, or one dies, the loader warns
    once and goes on in this process with every sample exactly once.
    """

    def __init__(
        self,
        dataset: Any,
        *args: Any,
        draws_ahead: int = 0,
        draws_like_persistent_workers: bool = False,
        prefetch_threads: int | None = None,
        thread_safe: bool = False,
        keep_workers: bool = False,
        workers_on_demand: bool = False,
        benchmark: bool = False,
        **kwargs: Any,
    ) -> None:
        self._pool: WorkerPool | None = None
        self._threads: PrefetchThreads | None = None
        super().__init__(dataset, *args, **kwargs)
        #: What was chosen for this loader and why, in words.
        self.decision = ""
        self.draws_ahead = max(draws_ahead, 1) if draws_like_persistent_workers else draws_ahead
        self.draws_like_persistent_workers = draws_like_persistent_workers
        if prefetch_threads is not None and prefetch_threads < 0:
            raise ValueError(f"prefetch_threads must be a number of threads, 0 or more, not {prefetch_threads}")
        self.prefetch_threads = prefetch_threads
        self.thread_safe = thread_safe
        self.keep_workers = keep_workers
        #: How many threads load ahead in this process, and why.
        self.overlap = Overlap(may_wait=thread_safe) if prefetch_threads is None else Overlap.fixed(prefetch_threads)
        #: Whether worker processes are worth their start; None where they are started in any case.
        self.demand = demand_of(self) if workers_on_demand and self.num_workers else None
        self.benchmark = benchmark
        self._epochs_begun = 0
        self._kept_seed: int | None = None
        self._seed_state: Tensor | None = None
        self._as_in_worker: AsInWorker | None = None
        self._without_workers = False

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        batches = self._iterate()
        return EpochWaits(batches, logger) if self.benchmark else batches

    def _iterate(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            return super().__iter__()
        epoch = self._epochs_begun
        self._epochs_begun += 1
        if self.num_workers == 0 or self._without_workers:
            return self._iterate_here(epoch)
        if self.demand is None or self.demand.settled:
            return self._iterate_with_workers(epoch)
        return OnDemandIterator(self, epoch, self.demand)

    @property
    def lost_workers(self) -> bool:
        """Whether worker processes could not be started or died, so that batches are loaded in this process."""
        return self._without_workers

    @property
    def _key_rank(self) -> int:
        """The rank that goes into the keys of samples."""
        return current_rank()

    @property
    def _keeps_workers(self) -> bool:
        return self.persistent_workers if self.num_workers else self.draws_like_persistent_workers

    @property
    def _ahead(self) -> int:
        return self.num_workers * (self.prefetch_factor or 0) if self.num_workers else self.draws_ahead

    @property
    def _sampler_of_tasks(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _iterate_here(self, epoch: int) -> InProcessIterator:
        """An epoch in this process, drawing as PyTorch's iterators do (see ``_BaseDataLoaderIter``)."""
        indices = iter(self._sampler_of_tasks)
        seed = self._kept_seed
        if seed is None:
            self._seed_state = torch.get_rng_state() if self.generator is None else self.generator.get_state()
            seed = draw_base_seed(self.generator)
            if self._ahead:
                indices = iter(self._sampler_of_tasks)  # an iterator with workers asks its sampler twice
        tasks = EpochTasks(indices, batches=self.batch_sampler is not None, seed=seed, epoch=epoch, rank=self._key_rank)
        tasks.seed_state = self._seed_state
        return self._go_on_here(tasks, seed)

    def _go_on_here(self, tasks: EpochTasks, seed: int) -> InProcessIterator:
        """The rest of an epoch in this process."""
        if self._keeps_workers:
            self._kept_seed = seed
        if not self._keeps_workers or self._as_in_worker is None:
            # Numbered as a further worker: those that ran have used the streams of their numbers.
            self._as_in_worker = AsInWorker(seed + self.num_workers)
        for_threads = self.thread_safe or (stacks_samples(self.collate_fn) and is_in_memory(self.dataset))
        return InProcessIterator(
            self.dataset,
            self.collate_fn,
            tasks,
            length=self.__len__,
            ahead=self._ahead,
            free_tasks=tasks_drawn_freely(self),
            pin=self.pin_memory,
            as_in_worker=self._as_in_worker if self._ahead and not for_threads else None,
            overlap=self.overlap if for_threads else None,
            threads=self._prefetch_threads,
        )

    def _prefetch_threads(self, count: int) -> PrefetchThreads:
        """The threads that load ahead, kept from epoch to epoch: a new one's memory is new, too, and slow at first."""
        threads = self._threads
        if threads is None or threads.count != count or not threads.at_work:
            self._end_threads(wait=False)
            threads = self._threads = PrefetchThreads(count)
        return threads

    def _end_threads(self, *, wait: bool) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close(wait=wait)

    def _iterate_with_workers(self, epoch: int, going_on: EpochTasks | None = None) -> Iterator[Any]:
        """An epoch loaded by worker processes, or the rest of one."""
        pool = self._pool or self._new_pool()
        if self.persistent_workers or self.keep_workers:
            self._pool = pool
        try:
            pool.start_epoch(epoch, self._key_rank, new_seed=not self.persistent_workers, going_on=going_on)
        except WorkersLostError as lost:
            return self._replace_workers(pool, lost, epoch)
        return WorkerIterator(self, pool, epoch)

    def _let_workers_go(self) -> None:
        """End kept workers between epochs; what follows draws as if they were still there."""
        if self._pool is not None:
            seed = self._pool.seed if self.persistent_workers else None
            self._end_workers()
            self._kept_seed = seed

    def _go_on_without(self, batches: Iterator[Any]) -> Iterator[Any]:
        """What goes on in this process where ``batches`` of worker processes are; these end."""
        if not isinstance(batches, WorkerIterator):
            return batches
        return self._replace_workers(batches.pool, WorkersClosedError(), batches.epoch)

    def _new_pool(self) -> WorkerPool:
        options: dict[str, Any] = {
            name: getattr(self, name) for name in ("timeout", "multiprocessing_context", "prefetch_factor")
        }
        options["persistent_workers"] = self.persistent_workers or self.keep_workers
        if not getattr(self, "in_order", True):  # torch >= 2.6
            options["in_order"] = False
        return WorkerPool(
            self.dataset,
            self.collate_fn,
            self._sampler_of_tasks,
            batches=self.batch_sampler is not None,
            generator=self.generator,
            worker_init_fn=self.worker_init_fn,
            seed=self._kept_seed,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory and pinning_device() is not None,
            **options,
        )

    def _replace_workers(self, pool: WorkerPool, lost: WorkersLostError, epoch: int) -> Iterator[Any]:
        """Load what the workers of ``pool`` owe, and all that follows, in this process."""
        if pool.successor is not None:
            return pool.successor
        tasks, seed = pool.tasks, pool.seed
        pool.close()
        if self._pool is pool:
            self._pool = None
        if not isinstance(lost, WorkersClosedError):
            self._without_workers = True
            warnings.warn(
                f"Worker processes could not be used ({lost}); batches are loaded in the training process "
                "from here on, no sample is lost: pass num_workers=0 to load there from the start.",
                RuntimeWarning,
                stacklevel=3,
            )
        if tasks is None or seed is None:
            pool.successor = successor = self._iterate_here(epoch)
        else:
            pool.successor = successor = self._go_on_here(tasks, seed)
        return successor

    def state_dict(self) -> dict[str, int | None]:
        """What, with the state of its random generators, lets a new loader go on as this one would: plain integers.

        Taken between epochs: the epochs begun, and the base seed where it is drawn only once.
        """
        seed = self._pool.seed if self._pool is not None and self.persistent_workers else self._kept_seed
        return {"epochs_begun": self._epochs_begun, "base_seed": seed}

    def load_state_dict(self, state: Mapping[str, int | None]) -> None:
        """Go on where the loader whose ``state_dict`` this is would have, before this one is first iterated.

        The random generators are the caller's to restore. Raises KeyError for a state of something else.
        """
        epochs, self._kept_seed = state["epochs_begun"], state["base_seed"]
        self._epochs_begun = int(epochs or 0)

    def shutdown(self) -> None:
        """End kept worker processes and threads now. The loader can be iterated again, and then starts anew."""
        self._end_threads(wait=True)
        self._end_workers()

    def _end_workers(self) -> None:
        pool, self._pool = self._pool, None
        self._kept_seed = None
        if pool is not None:
            pool.close()

    def __enter__(self) -> BatchedDataLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __del__(self) -> None:
        # At interpreter exit PyTorch ends the workers itself.
        if not sys.is_finalizing():
            self._end_threads(wait=False)
            self._end_workers()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the processes and threads."""
        return {**self.__dict__, "_pool": None, "_threads": None}


class WorkerIterator(Iterator[Any]):
    """One epoch loaded by worker processes, or by what replaces them."""

    def __init__(self, loader: BatchedDataLoader, pool: WorkerPool, epoch: int) -> None:
        self._loader = loader
        self.pool = pool
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        if self.pool.successor is not None:
            return next(self.pool.successor)
        try:
            return self.pool.next_batch()
        except WorkersLostError as lost:
            successor = self._loader._replace_workers(self.pool, lost, self.epoch)
        return next(successor)
