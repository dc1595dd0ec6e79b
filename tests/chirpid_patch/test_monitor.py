"""What the monitor times, and what it leaves as it was (requirement traps 7, 8, 9, 13)."""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from chirpid_patch import monitor as monitor_module
from chirpid_patch.loader_speed import measure as measure_module
from chirpid_patch.loader_speed.measure import shut_down_workers
from chirpid_patch.loading import batch_timer as batch_timer_module
from chirpid_patch.loading.batch_timer import count_batch_samples
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.machine.nvml import GpuReading, GpuStatus
from chirpid_patch.machine.process_memory import MemoryReading
from chirpid_patch.monitor import DataLoaderPerformanceMonitor


class Clock:
    """A clock that only moves when somebody sleeps on it."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (measure_module, batch_timer_module):
        monkeypatch.setattr(module, "time", clock)
    return clock


class SlowLoader:
    """Batches of 4 samples that take 2 s each to come, the very first one 100 s more."""

    def __init__(self, clock: Clock, batches: int) -> None:
        self.clock = clock
        self.batches = batches
        self.epochs = 0

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        self.epochs += 1
        self.clock.sleep(100 if self.epochs == 1 else 0)
        for _ in range(self.batches):
            self.clock.sleep(2)
            yield [torch.zeros(4, 3), torch.zeros(4)]


@pytest.fixture
def monitor() -> DataLoaderPerformanceMonitor:
    return DataLoaderPerformanceMonitor()


@pytest.fixture
def samples() -> TensorDataset:
    return TensorDataset(torch.rand(50, 1, 8, 8), torch.arange(50))


def test_metrics_start_empty_as_in_the_guide(monitor: DataLoaderPerformanceMonitor) -> None:
    assert monitor.metrics == {"batch_loading_times": [], "gpu_utilization": [], "memory_usage": []}


def test_trap_07_the_wait_for_the_next_batch_is_timed(monitor: DataLoaderPerformanceMonitor, clock: Clock) -> None:
    times = monitor.time_batch_loading(SlowLoader(clock, 20), num_batches=5)
    assert times["mean_batch_time"] == times["p50_batch_time"] == times["p99_batch_time"] == 2
    assert times["std_batch_time"] == 0
    assert times["total_time"] == 10
    assert times["samples_per_second"] == 2
    assert monitor.metrics["batch_loading_times"] == [2] * 5


def test_trap_08_only_batches_that_came_are_counted(monitor: DataLoaderPerformanceMonitor, clock: Clock) -> None:
    times = monitor.time_batch_loading(SlowLoader(clock, 4), num_batches=10)
    assert times["num_batches"] == 3  # of the four, the first is start-up
    assert times["total_time"] == 6
    assert times["samples_per_second"] == 2


def test_trap_09_start_up_is_apart_from_the_rate(monitor: DataLoaderPerformanceMonitor, clock: Clock) -> None:
    times = monitor.time_batch_loading(SlowLoader(clock, 20), num_batches=3)
    assert times["first_batch_time"] == 102
    assert times["total_time"] == 6
    assert times["start_up_included"] is False


def test_no_more_batches_are_asked_for_than_measured(monitor: DataLoaderPerformanceMonitor, clock: Clock) -> None:
    monitor.time_batch_loading(SlowLoader(clock, 20), num_batches=3)
    assert clock.now == 102 + 3 * 2


def test_a_short_loader_can_be_gone_through_several_times(monitor: DataLoaderPerformanceMonitor, clock: Clock) -> None:
    loader = SlowLoader(clock, 3)
    times = monitor.time_batch_loading(loader, num_batches=7, epochs=3)
    assert times["num_batches"] == 7
    assert times["total_time"] == 14
    assert loader.epochs == 3


def test_a_loader_of_one_batch_has_a_rate_without_start_up(monitor: DataLoaderPerformanceMonitor, clock: Clock) -> None:
    times = monitor.time_batch_loading(SlowLoader(clock, 1))
    assert times["num_batches"] == 1
    assert times["mean_batch_time"] == 2
    assert times["start_up_included"] is False


def test_a_loader_of_one_batch_that_starts_workers_each_time_says_so(
    monitor: DataLoaderPerformanceMonitor, samples: TensorDataset
) -> None:
    times = monitor.time_batch_loading(DataLoader(samples, batch_size=50, num_workers=1))
    assert times["start_up_included"] is True


@pytest.mark.parametrize("epochs", [1, 3])
def test_an_empty_loader_is_a_clear_error(monitor: DataLoaderPerformanceMonitor, epochs: int) -> None:
    with pytest.raises(ValueError, match="no batch"):
        monitor.time_batch_loading([], epochs=epochs)


@pytest.mark.parametrize("wrong", [{"num_batches": 0}, {"epochs": 0}])
def test_asking_for_nothing_is_an_error(monitor: DataLoaderPerformanceMonitor, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        monitor.time_batch_loading([torch.zeros(2)], **wrong)


def test_any_iterable_of_batches_is_timed(monitor: DataLoaderPerformanceMonitor) -> None:
    times = monitor.time_batch_loading(iter([{"x": torch.zeros(2)}] * 3))
    assert times["num_batches"] == 2


class Numbers(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(9))


def test_a_loader_without_a_length_is_timed(monitor: DataLoaderPerformanceMonitor) -> None:
    assert monitor.time_batch_loading(DataLoader(Numbers(), batch_size=2))["num_batches"] == 4


def test_batches_under_way_at_the_start_are_left_out_of_the_rate(
    monitor: DataLoaderPerformanceMonitor, samples: TensorDataset
) -> None:
    loader = DataLoader(samples, batch_size=2, num_workers=2, prefetch_factor=3)  # 25 batches, 6 under way
    enough = monitor.time_batch_loading(loader, num_batches=10)
    assert (enough["num_batches"], enough["head_start_batches"]) == (10, 0)
    short = monitor.time_batch_loading(loader, num_batches=20)
    assert (short["num_batches"], short["head_start_batches"]) == (20, 2)


def _random_states() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), kind, keys.tolist(), rest, random.getstate()


class Rolls(Dataset[float]):
    """Draws from every global generator in the loading process."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> float:
        return random.random() + float(np.random.rand()) + float(torch.rand(()))


@pytest.mark.parametrize("workers", [0, 1])
def test_random_states_are_left_as_they_were(monitor: DataLoaderPerformanceMonitor, workers: int) -> None:
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(Rolls(), batch_size=2, shuffle=True, num_workers=workers, generator=generator)
    before, own = _random_states(), generator.get_state().tolist()
    monitor.time_batch_loading(loader, num_batches=3)
    monitor.benchmark_configurations(Rolls(), 2, rounds=1, verbose=False)
    assert _random_states() == before
    assert generator.get_state().tolist() == own


def test_random_states_are_put_back_after_an_error(monitor: DataLoaderPerformanceMonitor) -> None:
    class Broken(Rolls):
        def __getitem__(self, index: int) -> float:
            super().__getitem__(index)
            raise KeyError(index)

    before = _random_states()
    with pytest.raises(KeyError):
        monitor.time_batch_loading(DataLoader(Broken()))
    assert _random_states() == before


def test_usage_is_recorded_beside_the_times(
    monitor: DataLoaderPerformanceMonitor, monkeypatch: pytest.MonkeyPatch, samples: TensorDataset
) -> None:
    gpu = GpuStatus((GpuReading("Model", 71.0, 5, 10),))
    monkeypatch.setattr(monitor_module, "gpu_status", lambda: gpu)
    monitor.time_batch_loading(DataLoader(samples, batch_size=10))
    assert monitor.gpu_status() is gpu
    assert monitor.metrics["gpu_utilization"] == [71.0]
    assert len(monitor.metrics["memory_usage"]) == 1
    assert monitor.metrics["memory_usage"][0] > 2**20


def test_timing_goes_on_where_memory_cannot_be_read(
    monitor: DataLoaderPerformanceMonitor, monkeypatch: pytest.MonkeyPatch, samples: TensorDataset
) -> None:
    def unreadable(*, include_children: bool) -> MemoryReading:
        raise NotImplementedError("install psutil")

    monkeypatch.setattr(monitor_module, "process_memory", unreadable)
    assert monitor.time_batch_loading(DataLoader(samples, batch_size=10))["num_batches"] == 4
    assert monitor.metrics["memory_usage"] == []
    with monitor.watch() as watch:
        pass
    assert watch.peak_memory_bytes is None


def test_watching_samples_until_the_block_ends(monitor: DataLoaderPerformanceMonitor) -> None:
    with monitor.watch(interval_s=0.001) as watch:
        limit = time.monotonic() + 30
        while len(watch.samples) < 3 and time.monotonic() < limit:
            time.sleep(0.005)
    taken = len(watch.samples)
    assert taken >= 4  # the first, at least two on the thread, the last
    assert [s.seconds for s in watch.samples] == sorted(s.seconds for s in watch.samples)
    assert watch.peak_memory_bytes == max(monitor.metrics["memory_usage"])
    assert len(monitor.metrics["memory_usage"]) == taken
    assert "chirpid-usage-watch" not in {thread.name for thread in threading.enumerate()}


def test_watching_ends_when_the_block_fails(monitor: DataLoaderPerformanceMonitor) -> None:
    with pytest.raises(ZeroDivisionError), monitor.watch() as watch:
        _ = 1 / 0
    assert len(watch.samples) == 2
    assert "chirpid-usage-watch" not in {thread.name for thread in threading.enumerate()}


def test_watching_needs_a_pause(monitor: DataLoaderPerformanceMonitor) -> None:
    with pytest.raises(ValueError, match="above 0"), monitor.watch(interval_s=0):
        pass


def test_default_configurations_are_legal_and_fit_the_cpus(
    monitor: DataLoaderPerformanceMonitor,
    samples: TensorDataset,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(monitor_module, "usable_cpus", lambda: 4)
    monkeypatch.setattr(monitor_module, "pinning_device", lambda: None)
    rows = monitor.benchmark_configurations(samples, 10, num_batches=2, rounds=1)
    assert list(rows) == ["config_1", "config_2", "config_3"]
    assert [(row["loader"], row.get("num_workers")) for row in rows.values()] == [
        ("plain", 0),
        ("plain", 4),
        ("factory", None),
    ]
    assert rows["config_2"]["pin_memory"] is False  # nothing to pin for (trap 5)
    for row in rows.values():
        assert row["num_batches"] == 2
        assert row["samples_per_second"] > 0
    printed = capsys.readouterr().out
    assert "12 workers" in printed and "4 CPUs" in printed
    assert "Testing configuration 3/3" in printed


def test_each_round_measures_every_configuration_in_turn(
    monitor: DataLoaderPerformanceMonitor, samples: TensorDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    rates = iter([1.0, 10.0, 30.0, 5.0, 3.0, 20.0])

    def timed(loader: DataLoader[Any], num_batches: int) -> dict[str, float | int]:
        order.append("short" if loader.drop_last else "all")
        return {"samples_per_second": next(rates), "num_batches": num_batches}

    monkeypatch.setattr(monitor, "time_batch_loading", timed)
    rows = monitor.benchmark_configurations(samples, 10, [{}, {"drop_last": True}], verbose=False)
    assert order == ["all", "short", "short", "all", "all", "short"]
    assert rows["config_1"] == {"samples_per_second": 3.0, "num_batches": 10, "rounds": 3}
    assert rows["config_2"] == {
        "drop_last": True,
        "samples_per_second": 20.0,
        "num_batches": 10,
        "rounds": 3,
    }


def test_a_configuration_that_fails_is_a_row_with_its_error(
    monitor: DataLoaderPerformanceMonitor, samples: TensorDataset
) -> None:
    configs = [{"num_workers": 0, "prefetch_factor": 4}, {"num_workers": 0}]
    rows = monitor.benchmark_configurations(samples, 10, configs, rounds=1, verbose=False)
    assert rows["config_1"]["error"].startswith("ValueError: prefetch_factor")
    assert "mean_batch_time" not in rows["config_1"]
    assert rows["config_2"]["num_batches"] == 4


def test_rounds_below_one_are_an_error(monitor: DataLoaderPerformanceMonitor, samples: TensorDataset) -> None:
    with pytest.raises(ValueError, match="rounds"):
        monitor.benchmark_configurations(samples, 10, rounds=0)


def test_trap_13_no_worker_outlives_the_benchmark(
    monitor: DataLoaderPerformanceMonitor, samples: TensorDataset
) -> None:
    before = set(multiprocessing.active_children())
    configs = [{"num_workers": 2, "persistent_workers": True}]
    monitor.benchmark_configurations(samples, 10, configs, rounds=2, verbose=False)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("kind", [DataLoader, BatchedDataLoader])
def test_persistent_workers_can_be_shut_down(kind: type[DataLoader[Any]], samples: TensorDataset) -> None:
    before = set(multiprocessing.active_children())
    loader = kind(samples, batch_size=10, num_workers=1, persistent_workers=True)
    first = [y.tolist() for _, y in loader]
    assert set(multiprocessing.active_children()) > before
    shut_down_workers(loader)
    assert set(multiprocessing.active_children()) <= before
    assert [y.tolist() for _, y in loader] == first  # it starts anew
    shut_down_workers(loader)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (torch.zeros(5, 2), 5),
        (torch.tensor(1.0), 1),
        (np.zeros((3, 2)), 3),
        ([torch.zeros(4, 1), torch.zeros(4)], 4),
        ({"x": torch.zeros(6)}, 6),
        (({"x": torch.zeros(6)}, torch.zeros(6)), 6),
        (["a", "b"], 2),
        ([], 0),
        ({}, 0),
        ("name", 1),
    ],
)
def test_samples_in_a_batch(batch: Any, expected: int) -> None:
    assert count_batch_samples(batch) == expected
