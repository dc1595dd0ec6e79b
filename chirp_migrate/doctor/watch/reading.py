"""Record batches in the process that reads the batches, which is the training process or a worker process.

A fetcher is PyTorch's object that reads and collates batches. For each iteration over a loader, each process that reads
samples creates one fetcher. This module wraps each fetcher. Worker processes write their recordings to files, with one
JSON document in each line. The training process reads these files afterwards.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
from torch.utils.data import dataloader, get_worker_info
from torch.utils.data._utils import worker

from chirp_migrate.doctor.recording import BatchRecord, FetcherPassRecord
from chirp_migrate.doctor.watch.objects import (
    container_lengths,
    generator_states,
    large_containers,
    read_plain_attributes,
)
from chirp_migrate.doctor.watch.results import FunctionResultRecorder
from chirp_migrate.doctor.watch.samples import describe_batch

_TASKS_WITH_GENERATORS = 2
_MOST_TASKS = 400
_EACH_OF_FIRST, _EVERY = 4, 8
"""Containers and threads are measured after each of the first 4 batches, and then after every 8th batch."""
_WAIT_FOR_MEMORY = 25
"""The pause between two measurements of the memory is this many times the CPU time of a measurement."""
_BUSY_S = 0.03
"""A thread counts as busy if it has used at least this many CPU seconds since the first batch."""

_ORIGINAL_LOOP: Callable[..., None] = worker._worker_loop
_make_fetcher: Callable[..., Any] = dataloader._DatasetKind.create_fetcher


class _End(msgspec.Struct, tag="end"):
    """A line in a file of recordings: the iterable dataset ended in the process that wrote the file."""


class RecordReceiver(NamedTuple):
    """The destination for the recording of one fetcher (PyTorch's object that reads batches).

    Attributes:
        run: the recording of one iteration over a loader by one process; at first, this recording contains no batches.
        write: function that stores a part of the recording. The function gets ``run``, then each batch, and an
            :class:`_End` when an iterable dataset ends.
        every: distance between the samples that are hashed. With 1, all samples are hashed; with N > 1, every N-th
            sample; with 0, no sample. See :func:`.describe_batch`.
    """

    run: FetcherPassRecord
    write: Callable[[Any], None]
    every: int


class _Fetcher:
    """A wrapper of PyTorch's fetcher (the object that reads batches) that records each batch."""

    def __init__(self, fetcher: Any, dataset: Any, sink: RecordReceiver) -> None:
        self._fetcher, self._dataset = fetcher, dataset
        self._run, self._write, self._every = sink
        self._begun, self._count = False, 0
        self._memory: _MemoryMeter | None = None
        self._results: FunctionResultRecorder | None = None
        self._thread_times: dict[int, float] | None = None

    def fetch(self, requested: Any) -> Any:
        if not self._begun:  # only at the first batch, because the sampler may use the generators before it
            self._begun, run, dataset = True, self._run, self._dataset
            with suppress(Exception):  # an object that cannot be inspected is not recorded
                run.generators, run.sizes, run.values = (
                    generator_states(dataset),
                    container_lengths(dataset),
                    read_plain_attributes(dataset),
                )
                if run.worker >= 0 and large_containers(dataset):
                    self._memory = _MemoryMeter()
                self._results = FunctionResultRecorder(dataset, self._every)
            self._write(run)
        began = time.perf_counter()
        try:
            with nullcontext() if self._results is None else self._results.watching():
                batch = self._fetcher.fetch(requested)
        except StopIteration:
            self._write(_End())
            raise
        seconds = time.perf_counter() - began
        self._count += 1
        if self._count <= _MOST_TASKS:
            with suppress(Exception):  # a batch that cannot be described is not recorded
                task = describe_batch(requested, batch, hash_every=self._every)
                task.seconds = seconds
                task.results = {} if self._results is None else self._results.last_calls()
                if self._count <= _TASKS_WITH_GENERATORS:
                    task.generators = generator_states(self._dataset)
                if self._count <= _EACH_OF_FIRST or self._count % _EVERY == 0:
                    task.sizes = container_lengths(self._dataset)
                    if self._run.worker >= 0:
                        task.native_threads = self._busy_threads()
                if self._memory is not None:
                    task.memory = self._memory.measure()
                self._write(task)
        return batch

    def _busy_threads(self) -> int:
        """Return the number of threads of C libraries that used at least 0.03 s of CPU time since the first batch."""
        times = _native_thread_times()
        if self._thread_times is None:
            self._thread_times = times
        return sum(used - self._thread_times.get(thread, 0.0) >= _BUSY_S for thread, used in times.items())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fetcher, name)


class _MemoryMeter:
    """Measures the memory that this process does not share with other processes.

    After each measurement, the class skips measurements for 25 times the CPU time of this measurement. So measurements
    do not take much time in total.
    """

    def __init__(self) -> None:
        self._next = 0.0

    def measure(self) -> int:
        """Return the bytes of unshared memory; 0 during the pause after a measurement, or if the measurement fails."""
        if time.perf_counter() < self._next:
            return 0
        began, found = time.thread_time(), 0
        with suppress(psutil.Error, OSError, AttributeError):
            found = int(psutil.Process().memory_full_info().uss)
        # The pause depends on CPU time, so that a busy machine measures as often as an idle machine.
        self._next = time.perf_counter() + _WAIT_FOR_MEMORY * (time.thread_time() - began)
        return found


class RecordingWorkerLoop:
    """A replacement for the main loop of PyTorch's worker processes. The replacement also records the batches.

    Args:
        folder: path of the folder for the files with the recordings.
        started_in: number of the loader pass (iteration over a loader) that starts the worker.
        every: the values of ``hash_every`` (see :func:`.describe_batch`) for the first epoch of the worker, and for
            later epochs.
    """

    def __init__(self, folder: str, started_in: int, every: tuple[int, int]) -> None:
        self._folder, self._started_in, self._every = folder, started_in, every

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Run PyTorch's main loop in this worker process, and record its batches."""
        path = Path(self._folder, f"{self._started_in}-{os.getpid()}.jsonl")
        path.touch()  # an empty file shows that the worker reached this line
        epochs = iter(range(1_000_000))

        def sink(dataset: Any) -> RecordReceiver | None:
            info = get_worker_info()
            if info is None or info.dataset is not dataset:  # a loader inside the dataset created the fetcher
                return None
            epoch = next(epochs)
            run = FetcherPassRecord(info.id, self._started_in, epoch)
            return RecordReceiver(run, lambda what: _append(path, what), self._every[epoch > 0])

        with record_fetchers(sink):
            _ORIGINAL_LOOP(*arguments, **named)


@contextmanager
def record_fetchers(make_receiver: Callable[[Any], RecordReceiver | None]) -> Iterator[None]:
    """Return a context that wraps each new fetcher (PyTorch's object that reads batches), and records its batches.

    Args:
        make_receiver: function that gets the dataset of a new fetcher and returns the destination of its recording. If
            the function returns None, the fetcher is not recorded.
    """

    def create_fetcher(kind: Any, dataset: Any, *arguments: Any, **named: Any) -> Any:
        fetcher = _make_fetcher(kind, dataset, *arguments, **named)
        sink = make_receiver(dataset)
        if sink is None:
            return fetcher
        return _Fetcher(fetcher, dataset, sink)

    kind: Any = dataloader._DatasetKind
    before = vars(kind)["create_fetcher"]
    kind.create_fetcher = staticmethod(create_fetcher)
    try:
        yield
    finally:
        kind.create_fetcher = before


def passes_with_new_workers(recordings_folder: Path) -> list[int]:
    """Return the number (:attr:`.LoaderPass.number`) of each loader pass in which at least one new worker began."""
    return sorted({int(path.name.partition("-")[0]) for path in recordings_folder.glob("*.jsonl")})


def read_fetcher_passes(recordings_folder: Path) -> list[FetcherPassRecord]:
    """Return the recordings of all worker processes from the files in ``recordings_folder``, and remove these files."""
    runs: list[FetcherPassRecord] = []
    for path in sorted(recordings_folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                record = msgspec.json.decode(line, type=FetcherPassRecord | BatchRecord | _End)
            except msgspec.DecodeError:  # the worker process ended while it wrote
                break
            match record:
                case FetcherPassRecord():
                    runs.append(record)
                case BatchRecord():
                    runs[-1].tasks.append(record)
                case _End():
                    runs[-1].is_over = True
        path.unlink()
    return runs


def _append(path: Path, record: Any) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(record) + b"\n")


def _native_thread_times() -> dict[int, float]:
    """Return a dictionary: id of a thread that Python code did not start → CPU seconds of this thread.

    If the operating system does not list threads, the dictionary is empty.
    """
    own = {one.native_id for one in threading.enumerate()}
    with suppress(psutil.Error, OSError, AttributeError):
        return {one.id: one.user_time for one in psutil.Process().threads() if one.id not in own}
    return {}
