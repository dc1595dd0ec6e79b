"""A training call is divided into epochs, and ended after enough of them."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from chirp_migrate.training.watch.epoch_detector import StopTraining
from chirp_migrate.training.workload.entry_points import FullTrainingLength
from chirp_migrate.verify.spec import EntryPointTiming
from chirp_migrate.verify.timing.epochs import LONGEST_VISIT, EpochTimer, RepeatedBatchLoading
from chirp_migrate.verify.timing.rounds import full_training_seconds, zero_cost_training_seconds
from chirpid_patch import BatchedDataLoader

MS = 1e-3
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are forked on Linux")


class Numbers(Dataset[int]):
    """Ten numbers, and how often one was read."""

    def __init__(self) -> None:
        self.read = 0

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        self.read += 1
        return index


Log = list[str]
Training = Callable[[Log], Any]


def train_step() -> None:
    torch.zeros(1, requires_grad=True).sum().backward()


def each(loader: DataLoader[int], log: Log, name: str) -> None:
    for number, _ in enumerate(loader):
        if number == 0:
            log.append(name)
        if name == "train":
            train_step()


def plain(log: Log, epochs: int = 20) -> str:
    """A training loader that is kept, and validation without gradients."""
    train, val = DataLoader(Numbers(), 4), DataLoader(Numbers(), 4)
    for _ in range(epochs):
        each(train, log, "train")
        with torch.no_grad():
            each(val, log, "val")
    return "result"


def with_statistics(log: Log) -> None:
    """A loader of the same dataset reads statistics first."""
    dataset = Numbers()
    each(DataLoader(dataset, 4), log, "statistics")
    train = DataLoader(dataset, 4)
    for _ in range(20):
        each(train, log, "train")


def rebuilt(log: Log) -> None:
    """A loader that is built anew for every epoch."""
    dataset = Numbers()
    for _ in range(20):
        each(DataLoader(dataset, 4), log, "train")


def validating_with_gradients(log: Log) -> None:
    train, val = DataLoader(Numbers(), 4), DataLoader(Numbers(), 4)
    for _ in range(20):
        each(train, log, "train")
        each(val, log, "val")


def evaluating_on_the_training_loader(log: Log) -> None:
    """Gradients are enabled when the evaluation starts, as in ignite's evaluators."""
    train, val = DataLoader(Numbers(), 4), DataLoader(Numbers(), 4)
    for _ in range(20):
        each(train, log, "train")
        each(train, log, "evaluation")
        each(val, log, "val")


def evaluating_first(log: Log) -> None:
    train = DataLoader(Numbers(), 4)
    each(train, log, "evaluation")
    for _ in range(20):
        each(train, log, "train")
        each(train, log, "evaluation")


def with_three_passes_of_statistics(log: Log) -> None:
    train = DataLoader(Numbers(), 4)
    for _ in range(3):
        each(train, log, "statistics")
    for _ in range(20):
        each(train, log, "train")


def without_backward(log: Log) -> None:
    loader = DataLoader(Numbers(), 4)
    for _ in range(20):
        each(loader, log, "pass")


def paired(log: Log) -> None:
    """Two training loaders at once."""
    first, second = DataLoader(Numbers(), 4), DataLoader(Numbers(), 4)
    for _ in range(20):
        for number, _ in enumerate(zip(first, second, strict=True)):
            if number == 0:
                log.append("train")
            train_step()


def timed(
    training: Training, cached: RepeatedBatchLoading | None = None, least: int = 1
) -> tuple[EntryPointTiming, Log]:
    """The visit, and what the training did, with the turns that it took between."""
    log: Log = []
    epochs = EpochTimer(lambda: log.append("turn"), least, cached)
    if cached is not None:
        cached.is_active = False
        with cached, epochs:
            return epochs.time(lambda: training(log)), log
    with epochs:
        return epochs.time(lambda: training(log)), log


@pytest.mark.parametrize(
    ("training", "start", "epoch"),
    [
        (plain, ["train", "val"], ["train", "val"]),
        (with_statistics, ["statistics", "train"], ["train"]),
        (rebuilt, ["train", "train"], ["train"]),
        (validating_with_gradients, ["train", "val"], ["train", "val"]),
        (paired, ["train"], ["train"]),
        (evaluating_on_the_training_loader, ["train"], ["evaluation", "val", "train"]),
    ],
)
def test_an_epoch_is_one_pass_of_the_loader_that_paces_it_with_all_that_follows(
    training: Training, start: Log, epoch: Log
) -> None:
    visit, log = timed(training)
    parts: list[Log] = [[]]
    for word in log:
        if word == "turn":
            parts.append([])
        else:
            parts[-1].append(word)
    assert parts == [start, *[epoch] * LONGEST_VISIT]
    assert len(visit.epochs_s) == LONGEST_VISIT, "short epochs are timed several times"
    assert visit.start_s > 0 and visit.rest_s == 0, "the call was ended"
    assert visit.samples == 10 * visit.batches / 3


@pytest.mark.parametrize(
    ("training", "before", "epoch"),
    [(evaluating_first, 2, 2), (with_three_passes_of_statistics, 4, 1)],
)
def test_passes_before_the_first_backward_are_start_up(training: Training, before: int, epoch: int) -> None:
    visit, log = timed(training)
    words = [word for word in log if word != "turn"]
    assert len(visit.epochs_s) == LONGEST_VISIT
    assert len(words) == before + epoch * LONGEST_VISIT
    assert visit.samples == 10 * epoch


def test_a_training_that_never_calls_backward_has_two_epochs_more() -> None:
    visit, log = timed(without_backward)
    assert len(visit.epochs_s) == LONGEST_VISIT + 2
    assert log == ["pass", *["turn", "pass"] * (LONGEST_VISIT + 2)]


def test_a_training_that_ends_in_its_first_epoch_has_no_later_epoch() -> None:
    def training(log: Log) -> None:
        train = DataLoader(Numbers(), 4)
        each(train, log, "statistics")
        each(train, log, "statistics")
        each(train, log, "train")

    visit, _ = timed(training)
    assert visit.epochs_s == [] and visit.start_s > 0 and visit.rest_s == 0


def test_a_call_without_a_second_epoch_is_timed_as_a_whole() -> None:
    for training in (lambda log: plain(log, 1), lambda log: log.append("work")):
        visit, log = timed(training)
        assert visit.epochs_s == [] and visit.start_s > 0 and visit.rest_s == 0
        assert "turn" not in log


def test_what_is_left_of_a_call_with_few_epochs_is_no_epoch() -> None:
    visit, _ = timed(lambda log: plain(log, 3))
    assert len(visit.epochs_s) == 1 and visit.rest_s > 0


def test_the_last_epoch_is_fed_from_memory() -> None:
    read: list[int] = []
    dataset = Numbers()

    def training(log: Log) -> None:
        train = DataLoader(dataset, 4)
        for _ in range(20):
            before = dataset.read
            each(train, log, "train")
            read.append(dataset.read - before)

    visit, log = timed(training, RepeatedBatchLoading())
    assert len(visit.cached_s) == 1 and len(visit.epochs_s) == LONGEST_VISIT
    assert read == [10] * (1 + LONGEST_VISIT) + [4], "one batch is made"
    assert log.count("train") == len(read)


def test_code_that_handles_errors_does_not_keep_a_training_from_being_ended() -> None:
    cleaned: list[bool] = []

    def training(log: Log) -> None:
        try:
            plain(log)
        except Exception:
            plain(log)
        finally:
            cleaned.append(True)

    _, log = timed(training)
    assert log.count("train") == 1 + LONGEST_VISIT and cleaned == [True]


def test_one_that_handles_everything_goes_on_and_is_no_longer_timed() -> None:
    ended: list[bool] = []

    def training(log: Log) -> None:
        loader = DataLoader(Numbers(), 4)
        for _ in range(20):
            try:
                each(loader, log, "train")
            except StopTraining:
                ended.append(True)

    visit, _log = timed(training)
    assert len(visit.epochs_s) == LONGEST_VISIT and len(ended) == 20 - 1 - LONGEST_VISIT


def test_only_the_call_that_is_timed_is_ended() -> None:
    log: Log = []
    with EpochTimer(lambda: None) as epochs:
        epochs.time(lambda: plain(log))
        assert plain(log) == "result"


def test_an_error_of_the_training_is_raised() -> None:
    def training(_log: Log) -> Iterator[int]:
        raise KeyError("no such bird")

    with pytest.raises(KeyError):
        timed(training)


def test_the_own_run_has_start_up_once_a_fold() -> None:
    visit = EntryPointTiming(start_s=3.0, epochs_s=[0.9, 1.0, 9.0], cached_s=[0.4])
    assert full_training_seconds(visit, FullTrainingLength(epochs=11, folds=2)) == pytest.approx(2 * (3.0 + 10 * 1.0))
    assert zero_cost_training_seconds(visit, FullTrainingLength(epochs=11, folds=2)) == pytest.approx(
        2 * (3.0 + 10 * 1.0 - 11 * 0.6)
    )
    assert full_training_seconds(EntryPointTiming(start_s=3.0, rest_s=1.0), FullTrainingLength(epochs=11)) == 4.0
    assert zero_cost_training_seconds(EntryPointTiming(start_s=3.0), FullTrainingLength()) is None


def test_an_epoch_lasts_until_the_gpu_has_finished_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a GPU: each batch leaves 0.5 s of work, which only waiting for the GPU does."""
    now = pending = 0.0

    class Clock:
        @staticmethod
        def perf_counter() -> float:
            return now

    def finish() -> None:
        nonlocal now, pending
        now, pending = now + pending, 0.0

    def training() -> None:
        nonlocal pending
        loader = DataLoader(Numbers(), 4)
        for _ in range(4):
            for _ in loader:
                pending += 0.5
                train_step()

    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    monkeypatch.setattr("torch.accelerator.synchronize", finish)
    monkeypatch.setattr("chirp_migrate.verify.timing.epochs.time", Clock)
    with EpochTimer(lambda: None) as epochs:
        visit = epochs.time(training)
    each = 0.5 * len(DataLoader(Numbers(), 4))
    assert visit.start_s == each
    assert visit.epochs_s[0] == each


@pytest.mark.parametrize(("enough_s", "timed_epochs"), [(0.0, 2), (0.45, 4), (9.0, 6)])
def test_an_epoch_that_is_long_enough_is_timed_more_often_where_there_is_time(
    monkeypatch: pytest.MonkeyPatch, enough_s: float, timed_epochs: int
) -> None:
    now = 0.0

    class Clock:
        @staticmethod
        def perf_counter() -> float:
            return now

    def training() -> None:
        nonlocal now
        loader = DataLoader(Numbers(), 4)
        for _ in range(20):
            for _ in loader:
                now += 0.04
                train_step()

    monkeypatch.setattr("chirp_migrate.verify.timing.epochs.time", Clock)
    with EpochTimer(lambda: None) as epochs:
        assert len(epochs.time(training, enough_s).epochs_s) == timed_epochs


class Slow(Numbers):
    """Each number takes two milliseconds."""

    def __getitem__(self, index: int) -> int:
        time.sleep(2 * MS)
        return super().__getitem__(index)


def test_waits_are_for_the_next_training_batch_of_the_timed_epochs() -> None:
    def training(log: Log) -> None:
        train, val = DataLoader(Slow(), 4), DataLoader(Slow(), 5)
        for _ in range(20):
            each(train, log, "train")
            with torch.no_grad():
                each(val, log, "val")

    for cached in (None, RepeatedBatchLoading()):
        visit, _ = timed(training, cached)
        epochs = len(visit.epochs_s)
        assert len(visit.waits_s) == 2 * epochs and len(visit.first_waits_s) == epochs
        # A clock that starts after the batch has come sees none of this.
        assert all(wait >= samples * 2 * MS for wait, samples in zip(visit.waits_s, [4, 2] * epochs, strict=True))
        assert all(wait >= 8 * MS for wait in visit.first_waits_s)
        training_s = sum(visit.waits_s) + sum(visit.first_waits_s)
        assert sum(visit.epochs_s) >= visit.waited_s >= training_s + 20 * MS * epochs, "validation waits too"


@pytest.mark.parametrize("training", [evaluating_first, with_three_passes_of_statistics])
def test_waits_of_start_up_do_not_count(training: Training) -> None:
    visit, _ = timed(training)
    assert len(visit.first_waits_s) == visit.samples / 10 * len(visit.epochs_s)
    whole, _ = timed(lambda log: plain(log, 1))
    assert (whole.waits_s, whole.first_waits_s, whole.waited_s) == ([], [], 0.0)


def test_of_many_waits_some_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chirp_migrate.verify.timing.epochs._MOST_WAITS", 5)
    visit, _ = timed(plain)
    assert len(visit.waits_s) == 5 and len(visit.first_waits_s) == LONGEST_VISIT


def _hold_memory(ready: Any, over: Any) -> None:
    held = bytearray(os.urandom(2**20) * 80)
    ready.set()
    over.wait(60)
    assert held


def _memory_of(training: Callable[[], Any]) -> EntryPointTiming:
    with EpochTimer(lambda: None) as epochs:
        return epochs.time(training, reads_memory=True)


@linux
def test_memory_is_read_with_the_processes_that_were_started() -> None:
    visit = _memory_of(lambda: plain([]))
    assert visit.memory_kind == "pss" and visit.memory_bytes
    assert timed(plain)[0].memory_bytes is None, "only where it is asked for"

    context = multiprocessing.get_context("fork")
    ready, over = context.Event(), context.Event()
    process = context.Process(target=_hold_memory, args=(ready, over))
    process.start()
    ready.wait(60)
    during = _memory_of(lambda: plain([]))
    over.set()
    process.join()
    assert (during.memory_bytes or 0) - visit.memory_bytes > 64 * 2**20


def test_a_training_does_not_fail_because_its_batches_cannot_be_counted() -> None:
    class Batches:
        counted = 0

        def __iter__(self) -> Iterator[list[int]]:
            return iter([[0, 1], [2, 3]])

        def __len__(self) -> int:
            type(self).counted += 1
            raise RuntimeError("call set_epoch first")

    loader = DataLoader(TensorDataset(torch.zeros(4, 2, requires_grad=True)), batch_sampler=Batches())

    def training() -> None:
        for _ in range(9):
            for (x,) in loader:
                x.sum().backward()

    visit = _memory_of(training)
    assert visit.epochs_s and visit.memory_bytes is None
    assert Batches.counted <= 2, "once for each pass of the first epoch, not for each batch"


def test_reading_memory_takes_no_time_of_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    read: list[int] = []

    class Clock:
        @staticmethod
        def perf_counter() -> float:
            return now

    class Streamed(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(8))

    def memory_status(_monitor: Any) -> Any:
        nonlocal now
        now += 5.0
        read.append(len(multiprocessing.active_children()))
        return SimpleNamespace(bytes=len(read), kind="pss")

    def training() -> None:
        nonlocal now
        loader, stream = DataLoader(Numbers(), 4, num_workers=1), DataLoader(Streamed(), 4)
        for _ in range(3):
            for _ in loader:
                now += 1.0
                train_step()
            with torch.no_grad():
                assert len(list(stream)) == 2

    monkeypatch.setattr("chirp_migrate.verify.timing.epochs.time", Clock)
    monkeypatch.setattr("chirpid_patch.DataLoaderPerformanceMonitor.memory_status", memory_status)
    visit = _memory_of(training)
    assert read == [1], "once, in the first epoch, while the worker lives"
    assert (visit.start_s, visit.epochs_s, visit.memory_bytes) == (3.0, [3.0], 1)


class DiesOnce(Numbers):
    """Its first worker dies."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def __getitem__(self, index: int) -> int:
        if not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return super().__getitem__(index)


@linux
def test_a_loader_that_lost_its_workers_is_counted_once(tmp_path: Path) -> None:
    def training(log: Log) -> None:
        loader: Any = BatchedDataLoader(DiesOnce(tmp_path / "died"), batch_size=4, num_workers=1)
        for _ in range(20):
            each(loader, log, "train")

    visit, _ = timed(training)
    assert visit.lost_workers == 1 and visit.samples == 10, "and no sample is lost"


class Nvml:
    """The part of `pynvml` that is used, for one GPU."""

    NVMLError = RuntimeError

    def nvmlInit(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "Stand-in"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=85)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=3 * 2**30, total=16 * 2**30)


def test_the_gpu_is_read_at_the_end_of_every_timed_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.max_memory_reserved", lambda device: 2**30 * (1 + device))
    visit, _ = timed(plain)
    assert visit.gpu_percent == [85] * LONGEST_VISIT and visit.gpu_bytes == 3 * 2**30
    visit, _ = timed(evaluating_first)
    assert len(visit.gpu_percent) == LONGEST_VISIT, "start-up does not count"


def test_without_a_gpu_nothing_is_read_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    visit, _ = timed(plain)
    assert visit.gpu_percent == [] and visit.gpu_bytes is None
