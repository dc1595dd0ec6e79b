"""GPU readings, with a stand-in for NVIDIA's binding (its functions, values and exceptions) and without any GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch
from fake_nvml import GIB, FakeNvml, Gpu, two_gpus

from chirpid_patch.machine.nvml import FIELDS, GpuProbe, gpu_status
from chirpid_patch.memory.watch import MemoryPressure, MemoryWatch


@pytest.fixture(autouse=True)
def every_gpu_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)


def cuda_shows(monkeypatch: pytest.MonkeyPatch, *devices: dict[str, Any]) -> None:
    """CUDA is initialised, and has these devices."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(devices))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(**devices[index]))


# --- what is read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_names", [False, True], ids=["new bindings", "old bindings"])
def test_every_field_is_read_in_the_units_that_are_documented(bytes_names: bool) -> None:
    status = gpu_status(two_gpus(bytes_names=bytes_names))
    first = status.readings[0]
    assert first.name == "Model"
    assert {name: getattr(first, name) for name in FIELDS} == {
        "utilization_percent": 40,
        "memory_used_bytes": 2 * GIB,
        "memory_total_bytes": 16 * GIB,
    }
    assert first.unreadable == {}
    assert (status.utilization_percent, status.memory_used_bytes, status.reason) == (65, 5 * GIB, None)
    assert str(status) == "Model: 40 % busy, 2.0 of 16.0 GiB used; Model: 90 % busy, 3.0 of 16.0 GiB used"


# --- what cannot be read, by field --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetUtilizationRates", {"utilization_percent"}),
        ("nvmlDeviceGetMemoryInfo", {"memory_used_bytes", "memory_total_bytes"}),
    ],
)
def test_what_a_gpu_does_not_report_is_said_and_the_rest_is_read(function: str, fields: set[str]) -> None:
    gpu = Gpu("Model", "GPU-1", raises={function: pynvml.NVML_ERROR_NOT_SUPPORTED})
    (reading,) = gpu_status(FakeNvml(gpu)).readings
    assert reading.unreadable == dict.fromkeys(fields, "NVML reports: Not Supported")
    assert {name for name in FIELDS if getattr(reading, name) is None} == fields
    assert str(reading).startswith("Model: ")


def test_a_watch_of_memory_leaves_out_gpus_that_do_not_tell_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Gpu("Unified", "GPU-1", raises={"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED})
    full = Gpu("Model", "GPU-2", used=15 * GIB)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(silent, full))
    alerts = [alert for alert in MemoryWatch().check() if alert.use.source != "process"]
    assert [(alert.use.source, alert.pressure) for alert in alerts] == [("gpu 1", MemoryPressure.SOFT)]


def test_no_driver_is_a_reason_and_not_an_error() -> None:
    status = gpu_status(two_gpus(fails={"nvmlInit": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}))
    assert status.readings == ()
    assert status.utilization_percent is None
    assert status.memory_used_bytes is None
    assert "NVML Shared Library Not Found" in str(status)


def test_gpus_that_cannot_be_listed_are_a_reason() -> None:
    status = gpu_status(two_gpus(fails={"nvmlDeviceGetCount": pynvml.NVML_ERROR_NO_PERMISSION}))
    assert status.reason == "NVML reports: Insufficient Permissions"


def test_a_gpu_lost_after_the_start_is_a_reason_and_not_an_error() -> None:
    nvml = two_gpus()
    with GpuProbe(nvml) as probe:
        nvml.gpus[0].raises["all"] = pynvml.NVML_ERROR_GPU_IS_LOST
        one_left = probe.read()
        assert one_left.utilization_percent == 90
        assert set(one_left.readings[0].unreadable) == set(FIELDS)
        nvml.gpus[1].raises["all"] = pynvml.NVML_ERROR_GPU_IS_LOST
        assert probe.read().reason == "NVML reports: GPU is lost"


def test_a_machine_without_gpus_says_so() -> None:
    assert str(gpu_status(FakeNvml())) == "no GPU: NVML finds no GPU"


def test_without_the_binding_the_reason_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in str(gpu_status().reason)


def test_this_machine_gives_readings_or_one_reason() -> None:
    status = gpu_status()
    assert bool(status.readings) != bool(status.reason)
    for gpu in status.readings:
        assert all((getattr(gpu, name) is None) == (name in gpu.unreadable) for name in FIELDS)


# --- which GPUs: the environment ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0,1", [40, 90]),
        ("1,0", [90, 40]),
        (" 1 ", [90]),
        ("1,7,0", [90]),  # CUDA ignores an invalid entry and all that follow
        ("1,-1,0", [90]),
        ("GPU-2222", [90]),
        ("GPU-2222bbbb-0000,GPU-1111", [90, 40]),
        ("GPU-9999,GPU-1111", []),
        ("GPU-", []),  # fits two GPUs
        ("-1", []),
        ("none", []),
        ("", []),
    ],
)
def test_honours_cuda_visible_devices(visible: str, expected: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    status = gpu_status(two_gpus())
    assert [gpu.utilization_percent for gpu in status.readings] == expected
    if not expected:
        assert str(status).startswith(f"no GPU: CUDA_VISIBLE_DEVICES={visible!r} hides every GPU")


# --- which GPUs: what CUDA says, once it is initialised -----------------------------------------------------


def test_gpus_come_in_the_order_that_cuda_has_them_in(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_shows(monkeypatch, {"uuid": "2222bbbb-0000"}, {"uuid": "1111aaaa-0000"})
    status = gpu_status(two_gpus())
    assert [gpu.utilization_percent for gpu in status.readings] == [90, 40]


def test_a_probe_made_before_cuda_was_initialised_asks_it_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with GpuProbe(two_gpus()) as probe:
        assert [gpu.utilization_percent for gpu in probe.read().readings] == [40, 90]
        cuda_shows(monkeypatch, {"uuid": "2222bbbb-0000"})
        for _ in range(2):
            assert [gpu.utilization_percent for gpu in probe.read().readings] == [90]


def test_where_pytorch_says_no_uuid_the_environment_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_shows(monkeypatch, {"name": "old PyTorch says no UUID"})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    status = gpu_status(two_gpus())
    assert [gpu.utilization_percent for gpu in status.readings] == [90]


def test_a_mig_device_is_said_not_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-bbbb-2")
    cuda_shows(monkeypatch, {"uuid": "1111aaaa-0000"})  # some drivers say the whole GPU's, whose memory others use too
    assert "MIG-bbbb-2" in str(gpu_status(two_gpus()))


# --- its life -----------------------------------------------------------------------------------------------


def test_the_probe_lets_nvml_go_once() -> None:
    nvml = two_gpus()
    probe = GpuProbe(nvml)
    assert nvml.sessions == 1
    probe.close()
    probe.close()
    assert nvml.sessions == 0
    assert "closed" in str(probe.read().reason)


def test_a_failing_shutdown_is_a_reason_and_not_an_error() -> None:
    probe = GpuProbe(two_gpus(fails={"nvmlShutdown": pynvml.NVML_ERROR_UNKNOWN}))
    probe.close()
    assert probe.reason == "NVML reports: Unknown Error"
