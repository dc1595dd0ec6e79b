"""The MEASURED pass: what it counts, times and asks of datasets, with real loaders, workers and processes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    get_worker_info,
)

from chirp_migrate.training.watch.augmentation_cost import augmentation_share_of_loading
from chirp_migrate.training.watch.samples import augmented_positions, nested_class_names, unaugmented_dataset
from chirp_migrate.verify.measures.figures import metrics_of_measured_run, seconds_of_augmentation
from chirp_migrate.verify.measures.measuring import TrainingMeasurement, augmentation_cost, resident_bytes
from chirp_migrate.verify.measures.metric_data import VersionMeasures
from chirp_migrate.verify.measures.worker_safety import check_workers, measure_loader_rates
from chirpid_patch import BatchedDataLoader, WorkerSafeAugmentedDataset

MS = 1e-3
LONG = 1e9
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are forked on Linux")


class Numbers(Dataset[Any]):
    """(x, y) with x random where ``random``, and slower by ``seconds``; ``trouble`` strikes in worker processes."""

    def __init__(self, length: int = 40, seconds: float = 0.0, random: bool = False, trouble: str = "") -> None:
        self.length = length
        self.seconds = seconds
        self.random = random
        self.trouble = trouble

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.trouble and get_worker_info() is not None and index == self.length // 2:
            if self.trouble == "dies":
                os._exit(3)
            index = 0
        time.sleep(self.seconds)
        x = torch.full((2, 3), float(index))
        return (x + torch.rand(2, 3) if self.random else x), index


class Holding(Dataset[Any]):
    """Samples of another dataset with noise, which also takes time."""

    def __init__(self, inner: Any, seconds: float = 0.0) -> None:
        self.inner = inner
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        x, y = self.inner[index]
        time.sleep(self.seconds)
        return x + torch.rand_like(x), y


def measured(*walks: tuple[Any, bool], counts: tuple[int, ...] = ()) -> VersionMeasures:
    """Walk over loaders, with gradients where the second value says so, under measurement."""

    def train() -> tuple[float, None]:
        began = time.perf_counter()
        for loader, gradients in walks:
            with torch.set_grad_enabled(gradients):
                for _ in loader:
                    pass
        return time.perf_counter() - began, None

    measuring = TrainingMeasurement(counts, extra_s=LONG if counts else 0.0)
    with measuring:
        measuring.train("entry", train)
        measuring.measure_datasets("entry")
    return measuring.finish()


def test_walks_are_counted_and_waits_are_for_the_next_batch() -> None:
    train_loader, val_loader = DataLoader(Numbers(10, 2 * MS), batch_size=4), DataLoader(Numbers(6), batch_size=4)
    found = measured((train_loader, True), (val_loader, False), (train_loader, True), (val_loader, False))
    walks = found.entries["entry"].walks
    assert [(walk.loader, walk.role, len(walk.waits_s), walk.samples) for walk in walks] == [
        (0, "train", 3, 10),
        (1, "validation", 2, 6),
    ] * 2
    for walk in walks[::2]:  # trap 7: a clock that starts after the batch has come sees none of this
        assert all(wait >= samples * 2 * MS for wait, samples in zip(walk.waits_s, (4, 4, 2), strict=True))
        assert walk.ended_s - walk.begun_s >= sum(walk.waits_s)
    assert metrics_of_measured_run(found)["waiting_percent"] is not None
    assert 0 < (metrics_of_measured_run(found)["waiting_percent"] or 0) <= 100


def test_a_loop_that_is_left_early_counts_what_it_took() -> None:
    measuring = TrainingMeasurement((), extra_s=0.0)

    def train() -> tuple[float, Any]:
        return 1.0, next(iter(DataLoader(Numbers(), batch_size=4)))

    with measuring:
        measuring.train("entry", train)
    assert [(len(walk.waits_s), walk.samples) for walk in measuring.found.entries["entry"].walks] == [(1, 4)]


@linux
def test_memory_is_read_with_the_processes_that_were_started() -> None:
    found = measured((DataLoader(Numbers(), batch_size=4), True))
    assert found.memory_kind == "pss"
    assert all(point.memory_bytes and point.resident_bytes for point in found.usage)
    assert found.entries["entry"].walks[0].memory_bytes

    context = multiprocessing.get_context("fork")
    ready, over = context.Event(), context.Event()
    process = context.Process(target=_hold_memory, args=(ready, over))
    before = resident_bytes()
    process.start()
    ready.wait(60)
    during = resident_bytes()
    over.set()
    process.join()
    assert before is not None and during is not None
    assert during - before > 64 * 2**20


def _hold_memory(ready: Any, over: Any) -> None:
    held = bytearray(os.urandom(2**20) * 80)
    ready.set()
    over.wait(60)
    assert held


class Nvml:
    """The part of `pynvml` that is used, for one GPU."""

    NVMLError = RuntimeError

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
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


def test_the_gpu_is_sampled_while_training_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    found = measured((DataLoader(Numbers(), batch_size=4), True))
    assert metrics_of_measured_run(found)["gpu_percent"] == 85
    assert metrics_of_measured_run(found)["gpu_memory_mib"] == 3 * 1024
    assert found.gpu.startswith("Stand-in: 85 % busy")


def test_no_gpu_is_said_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = measured((DataLoader(Numbers(), batch_size=4), True))
    assert found.gpu == "no GPU: the nvidia-ml-py package is not installed"
    assert metrics_of_measured_run(found)["gpu_percent"] is None


def test_what_varies_and_what_it_is_made_of() -> None:
    base = TensorDataset(torch.rand(8, 1, 6, 5), torch.arange(8))
    augmented = WorkerSafeAugmentedDataset(Subset(base, range(8)), training=True)
    assert augmented_positions(base, default_collate) == set()
    assert augmented_positions(augmented, default_collate) == {"[0]"}
    assert nested_class_names(augmented) == "WorkerSafeAugmentedDataset > Subset > TensorDataset"
    switched = unaugmented_dataset(augmented, default_collate)
    assert switched is not None and switched is not augmented and augmented.training
    assert torch.equal(switched[3][0], base[3][0])
    twice = Holding(Holding(base))
    assert unaugmented_dataset(twice, default_collate) is base
    assert unaugmented_dataset(Numbers(random=True), default_collate) is None


def test_augmentation_is_timed_against_the_same_samples_without_it() -> None:
    slow = Holding(Numbers(24), seconds=2 * MS)
    cost = augmentation_cost(slow, default_collate, 4, batched=False, until=LONG)
    assert len(cost.with_s) == len(cost.without_s) >= 1
    assert min(cost.with_s) >= 4 * 2 * MS
    added, share = seconds_of_augmentation(cost), augmentation_share_of_loading(cost.with_s, cost.without_s)
    assert added is not None and share is not None and share < 1
    within = augmentation_cost(Numbers(random=True), default_collate, 4, batched=False, until=LONG)
    assert within.reason == "Numbers has no version without augmentation that reads the same samples"
    assert (
        seconds_of_augmentation(within) is None
        and augmentation_share_of_loading(within.with_s, within.without_s) is None
    )


@linux
@pytest.mark.parametrize("random", [False, True])
def test_sound_datasets_pass_at_every_number_of_workers(random: bool) -> None:
    trials = check_workers(Numbers(random=random), default_collate, (0, 2, 8), LONG)
    assert [(trial.workers, trial.problem) for trial in trials] == [(0, None), (2, None), (8, None)]
    assert [trial.samples for trial in trials] == [8, 16, 32]
    assert {trial.start_method for trial in trials} == {multiprocessing.get_start_method()}


@linux
@pytest.mark.parametrize(
    ("trouble", "said"),
    [("dies", "exited unexpectedly"), ("confuses", "differs from the dataset's sample in this process")],
)
def test_trouble_in_workers_is_told(trouble: str, said: str) -> None:
    here, there = check_workers(Numbers(8, trouble=trouble), default_collate, (0, 2), LONG)
    assert here.problem is None
    assert there.problem is not None and said in there.problem


def test_what_does_not_fit_in_the_time_is_not_tried() -> None:
    trials = check_workers(Numbers(), default_collate, (0, 2), until=0.0)
    assert [(trial.tried, trial.samples) for trial in trials] == [(False, 0), (False, 0)]
    assert all("not tried" in (trial.problem or "") for trial in trials)
    assert all(
        rate.samples_per_second is None for rate in measure_loader_rates(Numbers(), default_collate, 4, (0,), until=0.0)
    )


@linux
def test_migrated_datasets_are_tried_in_workers_and_timed_alone() -> None:
    found = measured((BatchedDataLoader(Numbers(), batch_size=4), True), counts=(0, 2))
    assert [(trial.dataset, trial.workers, trial.problem) for trial in found.workers] == [
        ("Numbers", 0, None),
        ("Numbers", 2, None),
    ]
    assert [(rate.loader, rate.workers, rate.problem) for rate in found.rates] == [
        ("factory", 0, None),
        ("plain", 0, None),
        ("plain", 2, None),
    ]
    assert all((rate.samples_per_second or 0) > 0 for rate in found.rates)
    assert len(found.entries["entry"].walks) == 1, "what is asked afterwards is no training"


@linux
def test_a_loader_that_lost_its_workers_is_counted(tmp_path: Path) -> None:
    found = measured((BatchedDataLoader(DiesOnce(tmp_path / "died"), batch_size=4, num_workers=1), True))
    assert found.entries["entry"].lost_workers == 1
    assert found.entries["entry"].walks[0].samples == 8, "and no sample is lost"


class DiesOnce(Numbers):
    """Its first worker dies."""

    def __init__(self, mark: Path) -> None:
        super().__init__(8)
        self.mark = mark

    def __getitem__(self, index: int) -> Any:
        if not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return super().__getitem__(index)


class ByName(Dataset[Any]):
    """Samples by name, not by number."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, name: str) -> int:
        return {"a": 1, "b": 2, "c": 3}[name]


class Endless(IterableDataset[int]):
    """Samples without a number or an end that is known."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def test_datasets_that_give_no_samples_by_number_are_listed_and_stop_nothing() -> None:
    by_name = DataLoader(ByName(), sampler=["a", "b", "c"], batch_size=2)
    found = measured((by_name, True), (DataLoader(Endless(), batch_size=2), True), counts=(0,))
    assert [walk.samples for walk in found.entries["entry"].walks] == [3, 4]
    assert found.unread == {"ByName": "KeyError: 0"}
    assert found.workers == [] and found.rates == []
