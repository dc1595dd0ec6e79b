"""``BatchedDataLoader``, a subclass of ``DataLoader`` that reads whole batches from memory if possible."""

from __future__ import annotations

import logging
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch.utils.data import IterableDataset, MapDataPipe

from chirpid_patch.datasets.collate import is_stacking_collate, make_worker_like_collate
from chirpid_patch.datasets.gather import is_in_memory, permits_batched_reading
from chirpid_patch.datasets.sent_copy import copy_for_workers
from chirpid_patch.loading.adjusting import LoadingController, WorkerCountChooser
from chirpid_patch.loading.batch_reader import BatchReader
from chirpid_patch.loading.batch_requests import EpochRequests
from chirpid_patch.loading.batch_timer import TimedBatches, log_waits
from chirpid_patch.loading.by_value import make_picklable_for_workers
from chirpid_patch.loading.in_process import EpochReaders, InProcessIterator
from chirpid_patch.loading.limits import TORCH_PREFETCH, loader_length
from chirpid_patch.loading.loader_attributes import Overridable
from chirpid_patch.loading.loader_parts import copy_loader_attributes
from chirpid_patch.loading.patched_loader import is_loader_iteration_patched
from chirpid_patch.loading.pinning import pin_dense_tensors
from chirpid_patch.loading.placement import Placement
from chirpid_patch.loading.prefetch_threads import ReusedThreads
from chirpid_patch.loading.samplers import batches_to_request_early, uses_only_torch_generator
from chirpid_patch.loading.worker_iterator import WorkerIterator, WorkersNotStartedError
from chirpid_patch.loading.worker_start import is_importing_main, start_method, why_workers_cannot_start
from chirpid_patch.machine.accelerator import pinning_device
from chirpid_patch.randomness.random_states import GlobalGeneratorStates
from chirpid_patch.randomness.seeding import worker_init_fn
from chirpid_patch.torch_private import IS_COMPLETE, DataLoader, hidden_from_torch_modes, pin_batch, sample_fetcher

if TYPE_CHECKING:
    from chirpid_patch.distributed.epochs import RankEpochs

logger = logging.getLogger("chirpid_patch")

_T_co = TypeVar("_T_co", covariant=True)


#: Types of datasets that PyTorch's own iterators read, because PyTorch prepares a data pipe for each iteration.
_READ_BY_PYTORCH = (IterableDataset, MapDataPipe)


class _EpochStart(NamedTuple):
    """The state of the random generators at the start of an epoch.

    If the epoch continues from a saved state, ``taken`` is the number of batches to skip; else 0.
    """

    states: GlobalGeneratorStates
    generator: torch.Tensor | None
    base_seed: int | None
    taken: int = 0


@dataclass
class _Progress:
    """The state of a loader's epochs.

    This object is separate from the loader, because assigning an attribute of a ``DataLoader`` is slow.

    Attributes:
        begun: number of epochs that have begun.
        skipped: number of batches to skip at the start of the latest epoch, because the training used these batches
            before the restart from a saved state.
        kept_seed: base seed of the next epoch; None: the next epoch draws a base seed.
        begun_from: state of the random generators at the start of the latest epoch; None before the first epoch.
        resumed: if ``load_state_dict`` loaded a state from the middle of an epoch, the state of the generators at the
            start of this epoch; else None.
        latest: weak reference to the iterator of the latest epoch; None before the first epoch.
        is_own: whether ``_make_iterator`` is running. If True, ``_get_iterator`` returns an iterator of this package
            instead of PyTorch's iterator.
    """

    begun: int = 0
    skipped: int = 0
    kept_seed: int | None = None
    begun_from: _EpochStart | None = None
    resumed: _EpochStart | None = None
    latest: weakref.ref[Any] | None = None
    is_own: bool = False

    def between_epochs(self) -> _Progress:
        """Return the state for a copy of the loader; no epoch of the copy is running."""
        return replace(self, latest=None, begun_from=None, is_own=False)


class BatchedDataLoader(DataLoader[_T_co]):
    """A ``DataLoader`` that reads whole batches from memory if possible, and replaces workers that die.

    The loader accepts every argument of ``torch.utils.data.DataLoader``. Batches, order, errors and states of the
    global random generators are the same as with PyTorch's class. ``docs/loader.md`` lists the exceptions. The loader
    reads whole batches from a dataset for which ``permits_batched_reading`` returns True, such as a ``TensorDataset``.
    PyTorch's own code reads all other datasets.

    Five numbers determine the augmentation of a sample in a dataset of this package: base seed, epoch, rank, index of
    the sample, and the number of earlier occurrences of this index in the epoch. So the augmentation is the same for
    any number of workers.

    If a worker dies, new workers continue the epoch (see ``worker_iterator.WorkerIterator``). If the operating system
    cannot start workers, the loader warns once and loads in this process, provided that three conditions ensure the
    same batches: the samples are in memory, the collation is the default, and ``worker_init_fn`` is None or the
    function of this package. Otherwise the loader raises PyTorch's error.

    Args:
        in_process: whether to read batches in this process, even if ``num_workers`` is above 0. If True, the loader
            starts no workers, but calls the random generators exactly as a loader with workers does for the same
            ``num_workers``, ``prefetch_factor`` and ``persistent_workers``. Do not pass True for an iterable dataset,
            because PyTorch's own code starts the workers of such a dataset anyway.
        prefetch_threads: number of threads that load batches in advance if there are no workers. None: the loader
            measures during the training whether threads help (see ``loading.adjusting``). The batches are the same with
            any number of threads. With ``thread_safe=False``, the loader uses threads only for in-memory datasets with
            default collation.
        thread_safe: True declares that several threads may use the dataset and ``collate_fn`` at the same time, and
            that neither uses a global random generator.
        keep_workers: whether the worker processes stay alive from epoch to epoch. Unlike with ``persistent_workers``,
            each epoch calls the random generators exactly as an epoch with new workers does.
        most_workers: largest number of workers. If this number is passed, the loader changes the number of workers
            between epochs (see ``adjusting.WorkerCountChooser``). While another iterator of the loader is in use, the
            number does not change. The batches are the same as with a fixed number, unless the dataset uses global
            random generators in workers. The number stays fixed if another number of workers would change the batches
            or would not make loading faster; the attribute ``adjusting`` then names the reason. None: the number is
            fixed.
        benchmark: whether to log at the end of each epoch how long the training waited for batches.
        placement: object that puts the batches on a device (see ``device.place_batches``). None: the batches stay on
            the device of the dataset's samples.
        epochs: object that counts and seeds the epochs of a rank (see ``distributed.epochs``). None: the loader counts
            its epochs.
        pins_own_batches: whether to put the tensors of batches into pinned memory, if there is an accelerator and
            ``pin_memory`` is False. Objects that cannot be pinned stay unchanged (see ``pinning``).
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        in_process: bool = False,
        prefetch_threads: int | None = None,
        thread_safe: bool = False,
        keep_workers: bool = False,
        most_workers: int | None = None,
        benchmark: bool = False,
        placement: Placement | None = None,
        epochs: RankEpochs | None = None,
        pins_own_batches: bool = False,
    ) -> None:
        # Frameworks rebuild a loader from its public attributes, so each public attribute has the name of a parameter.
        self.in_process = in_process
        self.keep_workers = keep_workers
        self.most_workers = most_workers
        self._without_workers = False
        super().__init__(
            dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        if prefetch_threads is not None and prefetch_threads < 0:
            raise ValueError(f"prefetch_threads must be a number of threads, 0 or more, not {prefetch_threads}")
        self._decision = ""
        self.prefetch_threads = prefetch_threads
        self.thread_safe = thread_safe
        self.pins_own_batches = pins_own_batches
        self.benchmark = self._benchmark = benchmark  # later assignments to ``benchmark`` have no effect
        self.placement = self._placement = placement
        self.epochs = self._epochs = epochs
        self._controller = LoadingController(prefetch_threads, may_wait=thread_safe)
        if most_workers is not None:
            self._controller.worker_count = WorkerCountChooser(self._workers(), most_workers)
        self._fixed_workers_reason: str | None = self._why_workers_are_fixed()
        self._lost_workers = False
        self._threads = ReusedThreads()
        self._is_read_by_pytorch = not IS_COMPLETE or isinstance(dataset, _READ_BY_PYTORCH)
        self._draws_repeatedly = sampler is not None or batch_sampler is not None
        self._idle_workers: WorkerIterator | None = None
        self._progress = _Progress()
        if placement is not None:
            placement.attach(self)
        if epochs is not None:
            epochs.attach(self)

    @property
    def decision(self) -> str:
        """Return a text that describes the loading mode and the reason for the choice."""
        return self._decision

    @decision.setter
    def decision(self, decision: str) -> None:
        self._decision = decision

    def _workers(self) -> int:
        return 0 if self.in_process or self._without_workers else self.num_workers

    def _explain_worker_count(self) -> str:
        fixed, count = self._fixed_workers_reason, self._controller.worker_count
        return count.why if fixed is None and count is not None else f"fixed: {fixed}"

    device = Overridable[torch.device | None](
        lambda loader: None if loader._placement is None else loader._placement.device,
        "The device of the batches; None: batches stay on the device of the dataset's samples.",
    )
    overlap = Overridable[LoadingController](
        lambda loader: loader._controller,
        "The object that chooses the number of threads that load batches in advance. The attribute ``threads`` of "
        "the object is the current number, and the attribute ``why`` is the reason for this number.",
    )
    adjusting = Overridable[str](
        _explain_worker_count, "The reason for the current number of workers, or the reason why the number is fixed."
    )
    worker_processes = Overridable[int](
        _workers,
        "The number of worker processes that read batches: ``num_workers``, or 0 if this process reads the batches.",
    )
    lost_workers = Overridable[bool](
        lambda loader: loader._lost_workers, "Whether a worker process has died, or could not be started."
    )

    # -- iteration

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        follows_load = self._fixed_workers_reason is None
        if follows_load:
            workers = self._controller.next_workers()
            if workers is not None:
                self._change_workers(workers)
        if self._epochs is not None:
            self._progress.begun = self._epochs.begin(self)
        batches = self._begin_epoch()
        if self._benchmark:
            batches = TimedBatches(batches, log_waits)
        if self._placement is not None:
            batches = self._placement.deliver(self, batches)
        if self._epochs is not None:
            batches = self._epochs.count(self, batches)
        return self._controller.watch(batches) if follows_load else batches

    def _iterates_as_pytorch(self) -> bool:
        """Return whether PyTorch's iterators read the dataset.

        The result is True for iterable datasets and data pipes. The result is True for every dataset if other code has
        changed the iteration, or if this version of PyTorch lacks a name that the iterators of this package need.
        """
        return self._is_read_by_pytorch or "_get_iterator" in self.__dict__ or is_loader_iteration_patched()

    def _begin_epoch(self) -> Iterator[Any]:
        if self._iterates_as_pytorch():
            return super().__iter__()
        progress = self._progress
        progress.begun += 1
        resumed, progress.resumed = progress.resumed, None
        if resumed is None:
            progress.skipped, progress.begun_from = 0, self._random_states()
            return self._make_iterator()
        outside = GlobalGeneratorStates.now()
        progress.skipped, progress.begun_from = resumed.taken, resumed
        resumed.states.restore()
        if self.generator is not None and resumed.generator is not None:
            self.generator.set_state(resumed.generator)
        try:
            return self._make_iterator()
        finally:
            outside.restore()

    def _make_iterator(self) -> Iterator[Any]:
        keep = self.keep_workers and self._workers() and not self.persistent_workers
        progress = self._progress
        progress.is_own = True
        try:
            batches = self._with_kept_workers() if keep else super().__iter__()
        finally:
            progress.is_own = False
        progress.latest = weakref.ref(batches)
        return batches

    def _get_iterator(self) -> Any:
        progress = self._progress
        is_own, progress.is_own = progress.is_own, False
        if not is_own and self._iterates_as_pytorch():
            return DataLoader._get_iterator(make_picklable_for_workers(self) if self.num_workers else self)
        if self.num_workers and self._pytorch_refuses_workers():
            return super()._get_iterator()  # raises PyTorch's error for invalid worker settings
        seed, progress.kept_seed = progress.kept_seed, None
        if self._workers():
            try:
                return self._start_workers(seed)
            except WorkersNotStartedError as error:
                return self._continue_without_workers(error, seed)
        return self._iterate_in_process(seed)

    def _continue_without_workers(self, error: WorkersNotStartedError, seed: int | None) -> InProcessIterator:
        self._without_workers = self._lost_workers = True
        warnings.warn(
            f"Worker processes cannot be started ({error}). From now on the training process loads the batches. "
            "No sample is lost. Pass num_workers=0 to load in the training process from the start.",
            RuntimeWarning,
            stacklevel=7,
        )
        return self._iterate_in_process(seed if error.seed is None else error.seed)

    def check_worker_number_rationality(self) -> None:
        """Warn about more workers than CPUs, as PyTorch's loader does.

        The method does not warn if this loader starts no workers, or if ``keep_workers`` or ``most_workers`` is set.
        """
        if not self.in_process and not self.keep_workers and self.most_workers is None:
            super().check_worker_number_rationality()

    def _pytorch_refuses_workers(self) -> bool:
        """Return whether PyTorch would raise an error instead of starting the requested workers."""
        context = {"multiprocessing_context": self.multiprocessing_context}
        return not (self.prefetch_factor or 0) > 0 or (is_importing_main() and start_method(context) != "fork")

    def _start_workers(self, seed: int | None, *, keep: bool = False) -> WorkerIterator:
        self.check_worker_number_rationality()
        return WorkerIterator(
            self,
            reads_batches=permits_batched_reading(self.dataset),
            can_load_in_process=self._reads_same_batches_in_process(),
            keep=keep,
            seed=seed,
        )

    def _reads_same_batches_in_process(self) -> bool:
        """Return whether this process provably reads the same batches as worker processes would read."""
        plain = self.worker_init_fn is None or self.worker_init_fn is worker_init_fn
        return plain and not is_importing_main() and is_stacking_collate(self.collate_fn) and is_in_memory(self.dataset)

    def _iterate_in_process(self, seed: int | None) -> InProcessIterator:
        if self._placement is not None:
            self._placement.begin_epoch(self.dataset)
        requested, changed, ahead = self.num_workers, dict[str, Any](), 0
        if requested:  # this process then collates samples as worker processes do
            method = start_method({"multiprocessing_context": self.multiprocessing_context})
            changed = {"num_workers": 0, "timeout": 0, "collate_fn": make_worker_like_collate(self.collate_fn, method)}
            ahead = requested * (self.prefetch_factor or 0)
        parts = copy_loader_attributes(self, **changed)
        # The function refers to ``parts`` and not to this loader, so that the threads end when the program deletes its
        # last reference to the loader.
        readers = partial(BatchedDataLoader._readers, parts, requested > 0)
        return InProcessIterator(parts, self._current_epoch(), readers, ahead=ahead, threads=self._threads, seed=seed)

    def _current_epoch(self) -> tuple[int, int]:
        """Return the number of the epoch that begins, from 0, and the number of batches to skip at its start."""
        return self._progress.begun - 1, self._progress.skipped

    def _readers(self, is_sent: bool, requests: EpochRequests) -> EpochReaders:
        """Return the functions and objects with which this process reads the batches of ``requests``.

        If ``is_sent`` is True, the functions read from a copy of the dataset, as workers do.
        """
        node = requests.node
        # For small batches, PyTorch's own code is as fast as batched reading.
        size = self.batch_size
        is_plain = not (is_sent or node.keyed or self.thread_safe or self._placement is not None)
        with hidden_from_torch_modes():
            is_small = is_plain and size is not None and size > 1 and not node.gains(size)
        for_threads = self.thread_safe or (not is_small and node.in_memory and is_stacking_collate(self.collate_fn))
        reader, read = None, None
        if for_threads or (not is_small and node.reads_batches):
            reader = BatchedDataLoader._reader(self, sent=is_sent)
        else:
            read = sample_fetcher(self.dataset, self._auto_collation, self.collate_fn, self.drop_last).fetch
        if for_threads:
            self._controller.begin_epoch()
        pin: Callable[[Any], Any] | None = None
        if self.pin_memory or self.pins_own_batches:
            device = pinning_device()
            if device is not None:
                pin = partial(pin_batch, device=device) if self.pin_memory else pin_dense_tensors
        return EpochReaders(read, reader, self._controller if for_threads else None, pin)

    def _reader(self, *, sent: bool) -> BatchReader:
        """Return the object that reads batches in this process.

        If ``sent`` is True, this object reads a copy of the dataset, as a worker does.
        """
        placed = None if self._placement is None else self._placement.reader(self)
        if placed is not None:
            return placed
        dataset = copy_for_workers(self.dataset) if sent else self.dataset
        return BatchReader(dataset, self.collate_fn, batches=self.batch_sampler is not None)

    def _with_kept_workers(self) -> Iterator[Any]:
        workers, self._idle_workers = self._idle_workers, None
        if workers is not None:
            workers.start_over()
            return _KeptEpoch(self, workers)
        try:
            return _KeptEpoch(self, self._start_workers(None, keep=True))
        except WorkersNotStartedError as error:
            return self._continue_without_workers(error, None)

    # -- another number of workers

    def _why_workers_are_fixed(self) -> str | None:
        """Return the reason why the number of workers is fixed; None if the number may change between epochs."""
        if self.most_workers is None:
            return "the argument most_workers is missing"
        if isinstance(self.dataset, IterableDataset):
            return "the samples of an iterable dataset depend on the number of workers"
        if not batches_to_request_early(self):
            return "the sampler may draw random numbers during the epoch"
        if is_in_memory(self.dataset) and is_stacking_collate(self.collate_fn):
            return "the samples are in memory, so workers would only cost time"
        return None

    def _change_workers(self, workers: int) -> None:
        before = self._workers()
        if workers == before:
            return
        if self._lost_workers:
            self._fixed_workers_reason = "a worker process has died or could not be started"
        elif workers and not before:
            context = {"multiprocessing_context": self.multiprocessing_context}
            self._fixed_workers_reason = why_workers_cannot_start(context)
        if self._fixed_workers_reason is not None:
            return
        counters = self._counters()
        self.shutdown()
        self.in_process = not workers
        if workers:  # if the number is 0, num_workers stays, so that the random calls stay the same
            self.num_workers, self.prefetch_factor = workers, self.prefetch_factor or TORCH_PREFETCH
        self.load_state_dict(counters)
        logger.info("worker processes: %s", self._explain_worker_count())

    # -- saving and restoring the state

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this loader. A new loader that loads this state continues at the same batch.

        The caller must also save and restore the states of the random generators. If an epoch is running, the first
        epoch of the new loader contains only the batches that the loop has not received yet.

        Returns:
            A dictionary that ``torch.load(..., weights_only=True)`` can read. The dictionary contains the number of
            epochs that have begun, and the base seed if all epochs share a base seed. If an epoch is running, the
            dictionary also contains the random states at the start of the epoch and the number of delivered batches.

        Raises:
            ValueError: an epoch with worker processes is running, and ``in_order=False`` lets its batches arrive in any
                order.
        """
        progress = self._progress
        batches = None if progress.latest is None else progress.latest()
        state = self._counters()
        if batches is None or batches.ended or batches.taken == loader_length(self):
            return state if self._epochs is None else {**state, "epochs_begun": self._epochs.next_epoch(self)}
        begun_from = progress.begun_from
        assert begun_from is not None
        plain = {
            "global": begun_from.states.as_plain(),
            "generator": begun_from.generator,
            "base_seed": begun_from.base_seed,
        }
        return {**state, "taken": batches.taken, "begun_from": plain}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the training at the batch at which ``state_dict`` returned ``state``.

        Call this method before the first iteration. The caller must also restore the random generators.

        Raises:
            KeyError: ``state`` is not a result of ``state_dict``.
        """
        progress = self._progress
        progress.begun, progress.kept_seed, progress.resumed = int(state["epochs_begun"]), state["base_seed"], None
        if "taken" in state:
            progress.begun -= 1
            plain = state["begun_from"]
            states = GlobalGeneratorStates.of_plain(plain["global"])
            progress.resumed = _EpochStart(states, plain["generator"], plain["base_seed"], state["taken"])
            progress.kept_seed = plain["base_seed"]
        if self._epochs is not None:
            progress.kept_seed = None  # seed and rank determine the base seed
            self._epochs.set_next_epoch(self, progress.begun)

    def _counters(self) -> dict[str, Any]:
        """Return the part of ``state_dict`` that does not describe a running epoch."""
        return {"epochs_begun": self._progress.begun, "base_seed": self._seed_in_use()}

    def _seed_in_use(self) -> int | None:
        """Return the base seed of all further epochs; None if each epoch draws a new base seed."""
        iterator: Any = self._iterator
        return iterator._base_seed if self.persistent_workers and iterator is not None else self._progress.kept_seed

    def _random_states(self) -> _EpochStart:
        """Return the current states of the random generators, as the ``_EpochStart`` of the next epoch."""
        generator: Any = self.generator
        # PyTorch's loader accepts no other type of generator.
        own = generator.get_state() if isinstance(generator, torch.Generator) else None
        states = GlobalGeneratorStates.of_torch() if uses_only_torch_generator(self) else GlobalGeneratorStates.now()
        return _EpochStart(states, own, self._seed_in_use())

    # -- shutdown and copies

    def shutdown(self) -> None:
        """End the worker processes and threads that the loader keeps between epochs.

        The next iteration starts new worker processes and threads. If an epoch is running, the epoch continues with new
        workers.
        """
        self._threads.close(wait=True)
        if self._placement is not None:
            self._placement.release()
        kept = (self._iterator, self._idle_workers)
        self._iterator = self._idle_workers = self._progress.kept_seed = None
        for iterator in kept:
            if isinstance(iterator, WorkerIterator):
                iterator.end_workers()

    def __enter__(self) -> BatchedDataLoader[_T_co]:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without processes, threads and running epochs."""
        return {**self.__dict__, "_iterator": None, "_idle_workers": None, "_progress": self._progress.between_epochs()}

    def __copy__(self) -> BatchedDataLoader[_T_co]:
        """Return a shallow copy. The copy shares persistent workers with this loader, as with PyTorch's loader."""
        duplicate: BatchedDataLoader[_T_co] = object.__new__(type(self))
        duplicate.__dict__.update(
            {**self.__dict__, "_idle_workers": None, "_progress": self._progress.between_epochs()}
        )
        return duplicate


class _KeptEpoch(Iterator[Any]):
    """The iterator over one epoch with ``keep_workers``: its worker processes stay alive for the next epoch."""

    def __init__(self, loader: BatchedDataLoader[Any], workers: WorkerIterator) -> None:
        self._loader = loader
        self._workers_iterator: WorkerIterator | None = workers

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        workers = self._workers_iterator
        if workers is None:
            raise StopIteration
        try:
            return next(workers)
        except StopIteration:
            self._loader._idle_workers, self._workers_iterator = workers, None
            raise

    @property
    def taken(self) -> int:
        """Return how many batches of this epoch the loop has received, including batches that raised an error."""
        return 0 if self._workers_iterator is None else self._workers_iterator.taken

    @property
    def ended(self) -> bool:
        """Return whether the epoch has ended: the loop has received all batches."""
        return self._workers_iterator is None or self._workers_iterator.ended
