"""A training call is divided into epochs, and ended after enough of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from chirp_migrate.training.workload.entry_points import OwnRun
from chirp_migrate.verify.spec import EntryPointTiming
from chirp_migrate.verify.timing.constant_batch import RepeatedBatchLoading
from chirp_migrate.verify.timing.epochs import LONGEST_VISIT, EnoughEpochsTimed, EpochTimer
from chirp_migrate.verify.timing.rounds import own_run_seconds, zero_cost_run_seconds


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
            except EnoughEpochsTimed:
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
    assert own_run_seconds(visit, OwnRun(epochs=11, folds=2)) == pytest.approx(2 * (3.0 + 10 * 1.0))
    assert zero_cost_run_seconds(visit, OwnRun(epochs=11, folds=2)) == pytest.approx(2 * (3.0 + 10 * 1.0 - 11 * 0.6))
    assert own_run_seconds(EntryPointTiming(start_s=3.0, rest_s=1.0), OwnRun(epochs=11)) == 4.0
    assert zero_cost_run_seconds(EntryPointTiming(start_s=3.0), OwnRun()) is None


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
