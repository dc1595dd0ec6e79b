"""GPUs read while training runs: off its thread, at a bounded and stated cost."""

from __future__ import annotations

import threading
import time

import pynvml
import pytest
import torch
from fake_nvml import GIB, FakeNvml, Gpu, two_gpus

from chirpid_patch.device.nvml import GpuProbe
from chirpid_patch.device.nvml_sampler import GpuSampler, GpuUsage


@pytest.fixture(autouse=True)
def every_gpu_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)


def watched(nvml: FakeNvml, readings: int = 3, interval_s: float = 0.001) -> GpuUsage:
    """What is seen until there are so many readings."""
    sampler = GpuSampler(interval_s, probe=GpuProbe(nvml))
    with sampler:
        while sampler.usage().cost.readings < readings:
            time.sleep(0.001)
    return sampler.usage()


def test_each_gpu_is_summed_up_over_the_time() -> None:
    nvml = two_gpus()
    usage = watched(nvml)
    assert [gpu.uuid for gpu in usage.gpus] == ["GPU-1111aaaa-0000", "GPU-2222bbbb-0000"]
    assert usage.mean("utilization_percent") == 65
    memory = usage.gpus[1].fields["memory_used_bytes"]
    assert (memory.mean, memory.lowest, memory.highest) == (3 * GIB, 3 * GIB, 3 * GIB)
    assert memory.readings == usage.cost.readings >= 3
    assert set(usage.gpus[0].fields) == {
        "utilization_percent",
        "memory_used_bytes",
        "sm_clock_mhz",
        "memory_clock_mhz",
        "power_w",
    }


def test_values_between_the_readings_count_in_the_mean() -> None:
    nvml = FakeNvml(Gpu("Model", "GPU-1", busy=0, reasons=4))
    sampler = GpuSampler(0.001, probe=GpuProbe(nvml))
    with sampler:
        for busy, readings in ((0, 2), (100, 4)):
            nvml.gpus[0].busy = busy
            nvml.gpus[0].reasons = 4 if busy else 0
            wanted = sampler.usage().cost.readings + readings
            while sampler.usage().cost.readings < wanted:
                time.sleep(0.001)
    percent = sampler.usage().gpus[0].fields["utilization_percent"]
    assert (percent.lowest, percent.highest) == (0, 100) and 0 < percent.mean < 100
    assert 0 < sampler.usage().throttled["power cap"] < 1


def test_reading_happens_on_a_thread_of_its_own_and_ends_with_the_block() -> None:
    threads: set[str] = set()

    class Noting(FakeNvml):
        def nvmlDeviceGetPowerUsage(self, gpu: Gpu) -> int:
            threads.add(threading.current_thread().name)
            return super().nvmlDeviceGetPowerUsage(gpu)

    nvml = Noting(Gpu("Model", "GPU-1"))
    watched(nvml)
    assert threads == {"chirpid-gpu-sampler"}
    calls = len(nvml.calls)
    time.sleep(0.01)
    assert len(nvml.calls) == calls


def test_slow_readings_come_seldom_and_their_cost_is_told() -> None:
    class Slow(FakeNvml):
        def nvmlDeviceGetPowerUsage(self, gpu: Gpu) -> int:
            time.sleep(0.01)
            return super().nvmlDeviceGetPowerUsage(gpu)

    begun = time.perf_counter()
    cost = watched(Slow(Gpu("Model", "GPU-1")), readings=3).cost
    elapsed = time.perf_counter() - begun
    assert cost.seconds >= cost.readings * 0.01 and cost.longest_s >= 0.01
    assert elapsed >= (cost.readings - 1) * 19 * 0.01  # the pause between two is 19 readings long
    assert cost.seconds / elapsed <= cost.share <= 1
    assert cost.cpu_seconds < cost.seconds
    assert str(cost).startswith(f"{cost.readings} readings of ")


def test_what_could_never_be_read_is_said_and_what_failed_once_is_not() -> None:
    nvml = FakeNvml(Gpu("Model", "GPU-1", raises={"nvmlDeviceGetClockInfo": pynvml.NVML_ERROR_NOT_SUPPORTED}))
    sampler = GpuSampler(0.001, probe=GpuProbe(nvml))
    with sampler:
        for failing in ({}, {"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_TIMEOUT}):
            nvml.gpus[0].raises.update(failing)
            wanted = sampler.usage().cost.readings + 2
            while sampler.usage().cost.readings < wanted:
                time.sleep(0.001)
    gpu = sampler.usage().gpus[0]
    assert set(gpu.unreadable) == {"sm_clock_mhz", "memory_clock_mhz"}
    assert gpu.fields["memory_used_bytes"].readings < gpu.fields["power_w"].readings


def test_without_a_gpu_the_reason_is_told() -> None:
    usage = watched(FakeNvml())
    assert (usage.gpus, usage.reason, usage.mean("utilization_percent")) == ((), "NVML finds none", None)


def test_nothing_is_read_before_the_lead_is_over() -> None:
    sampler = GpuSampler(0.001, lead_s=3600, probe=GpuProbe(two_gpus()))
    with sampler:
        time.sleep(0.02)
    usage = sampler.usage()
    assert (usage.cost.readings, usage.gpus) == (0, ())
    assert usage.reason == "the time watched was too short for a reading"


@pytest.mark.parametrize("wrong", [{"interval_s": 0}, {"lead_s": -1}])
def test_impossible_times_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        GpuSampler(**wrong)  # type: ignore[arg-type]
