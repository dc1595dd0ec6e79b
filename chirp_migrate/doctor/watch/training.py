"""Run and record a training call, until its third epoch begins, or its time is over."""

from __future__ import annotations

import functools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import psutil
import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.rnn import RNNBase, RNNCellBase
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
)
from torch.utils.data._utils import worker

from chirp_migrate.doctor.recording import (
    IN_TRAINING_PROCESS,
    BatchNormCalls,
    BatchRecord,
    CodeLine,
    FetcherPassRecord,
    LoaderInfo,
    LoaderPass,
    Recording,
)
from chirp_migrate.doctor.watch.objects import (
    count_tensor_bytes,
    dataset_and_inner_datasets,
    large_containers,
    opened_files,
    read_plain_attributes,
)
from chirp_migrate.doctor.watch.pickling import count_pickled_bytes, unpicklable_parts
from chirp_migrate.doctor.watch.places import LineFinder
from chirp_migrate.doctor.watch.reading import (
    RecordingWorkerLoop,
    RecordReceiver,
    passes_with_new_workers,
    read_fetcher_passes,
    record_fetchers,
)
from chirp_migrate.doctor.watch.results import functions_by_code_object
from chirp_migrate.doctor.watch.samples import describe_batch, record_tensors
from chirp_migrate.training.watch.epoch_detector import EpochDetector, StopTraining, call_before_backward
from chirp_migrate.training.watch.interception import Interception, LoaderIteratorWrapper, SamplerRecorder
from chirp_migrate.training.watch.lightning_validation import let_lightning_validate_after
from chirp_migrate.training.watch.nested_datasets import dataset_length
from chirp_migrate.training.watch.samples import leaves_by_position
from chirpid_patch.loader_speed.measure import shut_down_workers
from chirpid_patch.loading.batch_timer import count_batch_samples
from chirpid_patch.loading.worker_start import start_method
from chirpid_patch.machine.cpus import usable_cpus
from chirpid_patch.randomness.random_states import restore_generators_after
from chirpid_patch.torch_private import MultiProcessingIterator

_EPOCHS = 2
_LEAST_BATCHES = 8
_BATCHES_WITH_STATE = 2
_COMPARED_SAMPLES = 64
"""Approximate number of samples that a later training epoch hashes, to compare them with the first epoch."""
_MAX_SHARE_OF_PASS = 0.2
"""Largest share of the time of a training call that one loader pass may take."""
_MEMORY_FACTOR = 2
"""A pass may take this many times longer if the memory of workers is measured, because the memory rises slowly."""


def record_training(
    training_call: Callable[[], Any], tree: Path, recordings_folder: Path, time_limit_s: float, recording: Recording
) -> list[Any]:
    """Run a training call, and fill in ``recording`` even if the call raises an error.

    Args:
        training_call: function without parameters that runs the training.
        tree: absolute path of the folder with the user's code.
        recordings_folder: folder for the files in which worker processes write their recordings.
        time_limit_s: time limit for the call in seconds. An iteration over a loader ends early when it has taken a
            fifth of this time and at least 8 batches. The limit is two fifths if the loader has forked workers and a
            dataset with large containers, because the memory of such workers rises slowly.
        recording: the recording that this function fills with its results.

    Returns:
        The loaders that the training used, in the order of their numbers. The workers of these loaders have ended.

    Raises:
        Exception: the call raised this error.
    """
    # Each call has its own folder, because workers of a failed call may still write to their folder.
    recordings_folder = Path(tempfile.mkdtemp(dir=recordings_folder))
    watch = _TrainingWatch(recording, LineFinder(tree), recordings_folder, time_limit_s)
    recording.cpus, recording.most_handles = usable_cpus(), _file_descriptor_limit()
    began = time.perf_counter()
    try:
        with watch.watching(), suppress(StopTraining):
            training_call()
    finally:
        recording.seconds = time.perf_counter() - began
        loaders = watch.end_workers()
        recording.worker_starts = passes_with_new_workers(recordings_folder)
        recording.runs += read_fetcher_passes(recordings_folder)
    return loaders


class _TrainingWatch(Interception):
    def __init__(self, recording: Recording, places: LineFinder, folder: Path, seconds: float) -> None:
        super().__init__()
        self._recording, self._places, self._folder = recording, places, folder
        self._pacing = EpochDetector()
        self._pass_s = seconds * _MAX_SHARE_OF_PASS
        self._deadline = time.perf_counter() + seconds
        self._build_lines: WeakKeyDictionary[Any, CodeLine] = WeakKeyDictionary()
        self._models: list[Any] = []
        self._loaders: list[Any] = []
        self._datasets: list[Any] = []
        self._has_ended = False
        self._current_pass: LoaderPass | None = None
        self._beginning_pass: LoaderPass | None = None
        self._hash_every, self._is_fetched = 1, False
        self._process = psutil.Process()
        self._samplers = SamplerRecorder()
        self._begins_with_state: dict[int, dict[tuple[int, int], bool]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self)
            stack.enter_context(self._samplers)
            stack.enter_context(record_fetchers(self._make_receiver))
            stack.enter_context(_replacing_attribute(DataLoader, "__init__", self._recording_build_line))
            stack.enter_context(self._pacing)
            stack.enter_context(call_before_backward(self._record_backward))
            hook = torch.nn.modules.module.register_module_forward_pre_hook(self._record_module_call)
            stack.callback(hook.remove)
            yield

    def end_workers(self) -> list[Any]:
        """End the persistent workers of the training, and return all loaders of the training."""
        loaders, self._loaders = self._loaders, []
        for loader in loaders:
            shut_down_workers(loader)
        self._models.clear()
        self._datasets.clear()
        return loaders

    def _make_iterator(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        # An epoch may begin with an evaluation of the previous epoch. Then the recording ends later, at the next call
        # of ``backward``.
        if self._pacing.begins_epoch(loader) and self._pacing.is_over(_EPOCHS) and not self._pacing.evaluates:
            self._end_training()
        self._end_training_if_late()
        with restore_generators_after():
            info = self._loader_info(loader)
        is_third = torch.is_grad_enabled() and self._count_training_passes(info.place) >= _EPOCHS
        if not self._pacing.later and is_third:  # a training that builds a new dataset for each epoch
            self._end_training()
        one = LoaderPass(len(self._recording.passes), info.number)
        files = opened_files(loader.dataset) if info.num_workers > 1 and info.start_method == "fork" else {}
        if info.persistent_workers:
            one.values = read_plain_attributes(loader.dataset)
        self._recording.passes.append(one)
        pass_s = self._pass_s * (
            _MEMORY_FACTOR if info.num_workers and info.start_method == "fork" and info.objects else 1
        )
        began = time.perf_counter()
        record: Callable[[Any], None] | None = None
        drawn: list[list[Any]] = []
        is_last = False

        def around(advance: Callable[[], Any]) -> Any:
            nonlocal is_last
            requested_s = time.perf_counter()
            if one.sizes:  # not before the first batch, because the start of workers may take long
                self._end_training_if_late()
            has_gradients = torch.is_grad_enabled()
            if len(one.sizes) >= _LEAST_BATCHES and requested_s - began > pass_s:
                if is_last or not has_gradients or not let_lightning_validate_after(len(one.sizes) + 1):
                    self._recording.is_shortened = True
                    raise StopIteration
                is_last = True
            self._samplers.into = None if record is None else (loader, drawn)
            try:
                batch = advance()
            except StopIteration:
                one.is_complete = True
                raise
            finally:
                self._samplers.into = None
            if record is not None:
                record(batch)
            one.seconds = time.perf_counter() - began
            one.waits_s.append(time.perf_counter() - requested_s)
            one.sizes.append(count_batch_samples(batch))
            one.has_gradients.append(has_gradients)
            if len(one.sizes) == 1:
                record_tensors(one, batch)
            if info.num_workers:
                one.handles.append(_count_file_descriptors(self._process))
            for path, descriptor in files.items():
                with suppress(OSError):  # the file was closed
                    one.positions.setdefault(path, []).append(os.lseek(descriptor, 0, os.SEEK_CUR))
            self._current_pass = one
            return batch

        self._beginning_pass = one
        is_validation = not torch.is_grad_enabled()
        later = 1 if is_validation else 0 if info.is_stream else max(2, info.samples // _COMPARED_SAMPLES)
        self._hash_every = later if self._count_training_passes(info.place) else 1
        loop = RecordingWorkerLoop(str(self._folder), one.number, (self._hash_every, later))
        self._samplers.cover_new_classes()
        self._is_fetched, self._samplers.into = False, (loader, drawn)
        try:
            with _replacing_attribute(worker, "_worker_loop", lambda _: loop):
                iterator = start()
        finally:
            self._beginning_pass = self._samplers.into = None
        if not (self._is_fetched or isinstance(iterator, MultiProcessingIterator)):
            record = self._make_recorder(one, drawn)
        return LoaderIteratorWrapper(self, loader, iterator, around)

    def _make_recorder(self, one: LoaderPass, drawn: list[list[Any]]) -> Callable[[Any], None]:
        """Return a function that records a batch, for a loader that does not use PyTorch's fetcher objects.

        An example is a loader class whose own ``__iter__`` reads the samples.
        """
        run, every = FetcherPassRecord(IN_TRAINING_PROCESS, one.number, 0), self._hash_every
        self._recording.runs.append(run)

        def record(batch: Any) -> None:
            sampled: list[Any] = next((each for each in reversed(drawn) if each), [])
            with suppress(Exception):  # a batch that cannot be described is not recorded
                run.tasks.append(describe_batch(sampled[len(run.tasks)], batch, hash_every=every))

        return record

    def _end_training_if_late(self) -> None:
        if time.perf_counter() > self._deadline:
            self._recording.is_cut = True
            self._end_training()

    def _end_training(self) -> None:
        """End the training with an exception, if the caller runs in the main thread.

        In other threads, which only prefetch batches, the method raises no exception.

        Raises:
            StopTraining: the caller runs in the main thread.
        """
        self._has_ended = True
        if threading.current_thread() is threading.main_thread():
            raise StopTraining

    def _make_receiver(self, _dataset: Any) -> RecordReceiver | None:
        """Return the destination for the recording of a new fetcher (PyTorch's object that reads batches).

        The result is None if no iteration over a loader is beginning.
        """
        if self._beginning_pass is None:
            return None
        self._is_fetched = True
        run = FetcherPassRecord(IN_TRAINING_PROCESS, self._beginning_pass.number, 0)

        def write(record: Any) -> None:
            match record:
                case FetcherPassRecord():
                    self._recording.runs.append(record)
                case BatchRecord():
                    run.tasks.append(record)
                case _:
                    run.is_over = True

        return RecordReceiver(run, write, self._hash_every)

    def _loader_info(self, loader: Any) -> LoaderInfo:
        number = next((n for n, one in enumerate(self._loaders) if one is loader), None)
        if number is not None:
            return self._recording.loaders[number]
        dataset, sampler = loader.dataset, loader.sampler
        info = LoaderInfo(
            number=len(self._loaders),
            place=self._place(loader),
            dataset=type(dataset).__name__,
            dataset_place=self._places.line_of_definition(type(dataset)),
            dataset_ids=[_index_of(one, self._datasets) for one in dataset_and_inner_datasets(dataset)],
            is_stream=isinstance(dataset, IterableDataset),
            samples=-1 if (samples := dataset_length(dataset)) is None else samples,
            batch_size=loader.batch_size,
            num_workers=loader.num_workers,
            persistent_workers=bool(loader.persistent_workers),
            drop_last=bool(loader.drop_last),
            start_method=start_method({"multiprocessing_context": loader.multiprocessing_context}),
            sampler=type(sampler).__name__,
            is_random_order=isinstance(sampler, (RandomSampler, SubsetRandomSampler)),
            is_distributed=isinstance(sampler, DistributedSampler) and bool(sampler.shuffle),
            held_bytes=count_tensor_bytes(dataset),
            objects=large_containers(dataset),
            functions={
                one.__qualname__: self._places.line_of_definition(one)
                for one in functions_by_code_object(dataset).values()
            },
        )
        if loader.num_workers:
            info.unpicklable = list(unpicklable_parts(loader, self._places))
            if info.start_method != "fork" and not info.unpicklable:
                info.unguarded = self._places.line_of_unguarded_main()
                with suppress(Exception):  # __getstate__ of the user's class may work only once
                    info.sent_bytes = count_pickled_bytes(loader)
        self._loaders.append(loader)
        self._recording.loaders.append(info)
        return info

    def _place(self, loader: Any) -> CodeLine:
        """Return the line that built the loader.

        If this line is not known, return the line that iterates over the loader.
        """
        with suppress(TypeError, KeyError):
            return self._build_lines[loader]
        return self._places.line_of_caller()

    def _count_training_passes(self, place: CodeLine) -> int:
        """Return the number of training epochs until now with loaders that the line ``place`` built."""
        loaders = self._recording.loaders
        return sum(one.trains and loaders[one.loader].place == place for one in self._recording.passes)

    def _recording_build_line(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(loader: Any, *arguments: Any, **named: Any) -> None:
            with suppress(TypeError):  # a subclass may be unhashable
                self._build_lines[loader] = self._places.line_of_caller()
            original(loader, *arguments, **named)

        return __init__

    def _record_backward(self, _: Any) -> None:
        if self._pacing.is_over(_EPOCHS):
            self._end_training()
        if self._current_pass is not None:
            self._current_pass.backwards += 1

    def _record_module_call(self, module: torch.nn.Module, arguments: Any) -> None:
        if self._has_ended:
            raise StopTraining
        one = self._current_pass
        if one is None:
            return
        if torch.is_grad_enabled():
            one.forwards += 1
        else:
            one.forwards_without += 1
        if one.model < 0:
            one.model = _index_of(module, self._models)
        if not one.parameters:
            first = next(module.parameters(recurse=False), None)
            if first is not None:
                one.parameters, one.device = str(first.dtype), first.device.type
        if isinstance(module, (RNNBase, RNNCellBase)) and len(one.sizes) <= _BATCHES_WITH_STATE:
            self._record_initial_state(one, module, arguments)
        if not module.training or not isinstance(module, _BatchNorm) or not arguments:
            return
        kind = type(module).__name__
        calls = one.normalization.setdefault(kind, BatchNormCalls(kind))
        calls.calls += 1
        given = arguments[0]
        if isinstance(given, torch.Tensor) and given.shape[0] == 1 and one.sizes[-1] == 1:
            calls.with_one_sample += 1

    def _record_initial_state(self, one: LoaderPass, module: torch.nn.Module, arguments: Any) -> None:
        """Record whether a recurrent module gets an initial state that is not zero in its first call for a batch."""
        batch = one.number, len(one.sizes)
        begins = self._begins_with_state.setdefault(id(module), {})
        if batch not in begins:
            states = [leaf for leaf in leaves_by_position(arguments[1:]).values() if isinstance(leaf, torch.Tensor)]
            begins[batch] = any(not leaf.is_meta and bool(leaf.any()) for leaf in states)
            one.carries_state |= begins[batch] and not begins.get((one.number, len(one.sizes) - 1), True)


@contextmanager
def _replacing_attribute(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    original = vars(owner)[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _index_of(one: Any, known: list[Any]) -> int:
    """Return the position of an object in the list ``known``. If the list lacks the object, append the object first."""
    number = next((number for number, other in enumerate(known) if other is one), len(known))
    if number == len(known):
        known.append(one)
    return number


def _count_file_descriptors(process: psutil.Process) -> int:
    """Return the number of open file descriptors of a process; 0 if the operating system does not count them."""
    with suppress(psutil.Error, OSError, AttributeError):
        return int(process.num_fds())
    return 0


def _file_descriptor_limit() -> int:
    """Return the largest number of file descriptors that this process may have open; 0 if this limit is not known."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if most == resource.RLIM_INFINITY else most
