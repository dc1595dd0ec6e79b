"""GPU readings, with a stand-in for NVIDIA's binding (its functions, values and exceptions) and without any GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch
from fake_nvml import GIB, FakeNvml, Gpu, two_gpus

from chirpid_patch import DataLoaderPerformanceMonitor, MemoryPressure, MemoryWatch
from chirpid_patch.device.nvml import FIELDS, GpuProbe, gpu_status


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


def divided() -> FakeNvml:
    """A GPU that MIG divides in two, beside a whole one."""
    slices = [
        Gpu("Model MIG 1g", "MIG-aaaa-1", used=1 * GIB),
        Gpu("Model MIG 1g", "MIG-bbbb-2", used=3 * GIB),
    ]
    return FakeNvml(Gpu("Model", "GPU-1111aaaa-0000", migs=slices), Gpu("Model", "GPU-2222bbbb-0000", bus=2))


# --- what is read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_names", [False, True], ids=["new bindings", "old bindings"])
def test_every_field_is_read_in_the_units_that_are_documented(bytes_names: bool) -> None:
    status = gpu_status(two_gpus(bytes_names=bytes_names))
    first = status.readings[0]
    assert (first.name, first.uuid) == ("Model", "GPU-1111aaaa-0000")
    assert {name: getattr(first, name) for name in FIELDS} == {
        "utilization_percent": 40,
        "memory_used_bytes": 2 * GIB,
        "memory_total_bytes": 16 * GIB,
        "sm_clock_mhz": 1950,
        "memory_clock_mhz": 10501,
        "power_w": 210.5,
        "power_limit_w": 300.0,
        "throttling": (),
    }
    assert first.unreadable == {}
    assert (status.utilization_percent, status.memory_used_bytes, status.reason, status.notes) == (
        65,
        5 * GIB,
        None,
        (),
    )
    assert str(status) == (
        "Model: 40 % busy, 2.0 of 16.0 GiB used, 1950 MHz, 210 of 300 W; "
        "Model: 90 % busy, 3.0 of 16.0 GiB used, 1950 MHz, 210 of 300 W"
    )


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (pynvml.nvmlClocksEventReasonGpuIdle, ()),
        (pynvml.nvmlClocksEventReasonApplicationsClocksSetting, ()),
        (pynvml.nvmlClocksEventReasonSwPowerCap, ("power cap",)),
        (pynvml.nvmlClocksEventReasonSwThermalSlowdown, ("heat (driver)",)),
        (
            pynvml.nvmlClocksEventReasonHwSlowdown | pynvml.nvmlClocksEventReasonHwThermalSlowdown,
            ("hardware slowdown", "heat (hardware)"),
        ),
        (pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown, ("power brake",)),
    ],
)
def test_power_and_heat_that_lower_the_clocks_are_named(bits: int, expected: tuple[str, ...]) -> None:
    status = gpu_status(FakeNvml(Gpu("Model", "GPU-1", reasons=bits)))
    assert status.readings[0].throttling == status.throttling == expected
    assert ("slowed by" in str(status)) == bool(expected)


def test_the_older_name_for_what_lowers_the_clocks_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(Gpu("Model", "GPU-1", reasons=4))
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = nvml.nvmlDeviceGetCurrentClocksEventReasons  # type: ignore[attr-defined]
    monkeypatch.delattr(FakeNvml, "nvmlDeviceGetCurrentClocksEventReasons")
    assert gpu_status(nvml).readings[0].throttling == ("power cap",)


def test_the_monitor_tells_how_often_the_clocks_were_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(Gpu("Model", "GPU-1", reasons=pynvml.nvmlClocksEventReasonSwPowerCap))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with DataLoaderPerformanceMonitor().watch(3600) as usage:
        nvml.gpus[0].reasons = 0  # one sample before, one at the end
    assert usage.gpu_throttling == {"power cap": 0.5}


# --- what cannot be read, by field --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetUtilizationRates", {"utilization_percent"}),
        ("nvmlDeviceGetMemoryInfo", {"memory_used_bytes", "memory_total_bytes"}),
        ("nvmlDeviceGetClockInfo", {"sm_clock_mhz", "memory_clock_mhz"}),
        ("nvmlDeviceGetPowerUsage", {"power_w"}),
        ("nvmlDeviceGetEnforcedPowerLimit", {"power_limit_w"}),
        ("nvmlDeviceGetCurrentClocksEventReasons", {"throttling"}),
    ],
)
def test_what_a_gpu_does_not_report_is_said_and_the_rest_is_read(function: str, fields: set[str]) -> None:
    gpu = Gpu("Model", "GPU-1", raises={function: pynvml.NVML_ERROR_NOT_SUPPORTED})
    (reading,) = gpu_status(FakeNvml(gpu)).readings
    assert reading.unreadable == dict.fromkeys(fields, "NVML says: Not Supported")
    assert {name for name in FIELDS if getattr(reading, name) is None} == fields
    assert str(reading).startswith("Model: ")


def test_a_watch_of_memory_leaves_out_gpus_that_do_not_tell_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Gpu("Unified", "GPU-1", raises={"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED})
    full = Gpu("Model", "GPU-2", used=15 * GIB)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(silent, full))
    alerts = MemoryWatch(soft=None, hard=None, gpu_hard=None).check()
    assert [(alert.use.source, alert.pressure) for alert in alerts] == [("gpu 1", MemoryPressure.SOFT)]


def test_what_the_binding_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FakeNvml, "nvmlDeviceGetPowerUsage")
    (reading,) = gpu_status(FakeNvml(Gpu("Model", "GPU-1"))).readings
    assert reading.unreadable == {"power_w": "the installed nvidia-ml-py has no nvmlDeviceGetPowerUsage"}


def test_no_driver_is_a_reason_and_not_an_error() -> None:
    status = gpu_status(two_gpus(fails={"nvmlInit": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}))
    assert status.readings == ()
    assert status.utilization_percent is None
    assert status.memory_used_bytes is None
    assert str(status) == "no GPU: NVML says: NVML Shared Library Not Found"


def test_gpus_that_cannot_be_listed_are_a_reason() -> None:
    status = gpu_status(two_gpus(fails={"nvmlDeviceGetCount": pynvml.NVML_ERROR_NO_PERMISSION}))
    assert status.reason == "NVML says: Insufficient Permissions"


def test_a_gpu_lost_after_the_start_is_a_reason_and_not_an_error() -> None:
    nvml = two_gpus()
    with GpuProbe(nvml) as probe:
        nvml.gpus[0].raises["all"] = pynvml.NVML_ERROR_GPU_IS_LOST
        one_left = probe.read()
        assert one_left.utilization_percent == 90
        assert set(one_left.readings[0].unreadable) == set(FIELDS)
        nvml.gpus[1].raises["all"] = pynvml.NVML_ERROR_GPU_IS_LOST
        assert probe.read().reason == "NVML says: GPU is lost"


def test_a_machine_without_gpus_says_so() -> None:
    assert str(gpu_status(FakeNvml())) == "no GPU: NVML finds none"


def test_without_the_binding_the_reason_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_status().reason == "the nvidia-ml-py package is not installed"


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
        ("1gpu,0", [90, 40]),  # CUDA reads as far as there are digits
        ("1,1", []),  # a repeated entry hides everything
        ("GPU-2222", [90]),
        ("GPU-2222bbbb-0000,GPU-1111", [90, 40]),
        ("GPU-2222,1", [90]),  # kinds are not mixed
        ("GPU-9999,GPU-1111", []),
        ("GPU-2222,GPU-2222", []),
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
        assert str(status) == f"no GPU: CUDA_VISIBLE_DEVICES={visible!r} hides every GPU"


@pytest.mark.parametrize("second", ["Model", "Other model"])
@pytest.mark.parametrize("order", [None, "FASTEST_FIRST", "PCI_BUS_ID"])
def test_it_says_where_numbers_may_mean_other_gpus_to_cuda(
    second: str, order: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if order is not None:
        monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
    nvml = FakeNvml(Gpu("Model", "GPU-1111"), Gpu(second, "GPU-2222"))
    unsure = second != "Model" and order != "PCI_BUS_ID"
    assert bool(gpu_status(nvml, visible="1").notes) == unsure
    assert bool(gpu_status(nvml).notes) == unsure
    assert not gpu_status(nvml, visible="GPU-2222").notes


# --- which GPUs: what CUDA says, once it is initialised -----------------------------------------------------


@pytest.mark.parametrize(
    "devices",
    [
        [{"uuid": "2222bbbb-0000"}, {"uuid": "1111aaaa-0000"}],
        [{"pci_domain_id": 0, "pci_bus_id": 2, "pci_device_id": 0}, {"uuid": "1111aaaa-0000"}],
    ],
    ids=["UUIDs", "PCI"],
)
def test_gpus_come_in_the_order_that_cuda_has_them_in(
    devices: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda_shows(monkeypatch, *devices)
    status = gpu_status(two_gpus())
    assert [gpu.utilization_percent for gpu in status.readings] == [90, 40]
    assert status.notes == ()


def test_a_probe_made_before_cuda_was_initialised_asks_it_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with GpuProbe(two_gpus()) as probe:
        assert [gpu.utilization_percent for gpu in probe.read().readings] == [40, 90]
        cuda_shows(monkeypatch, {"uuid": "2222bbbb-0000"})
        for _ in range(2):
            assert [gpu.utilization_percent for gpu in probe.read().readings] == [90]


def test_a_device_that_nvml_cannot_tell_is_said_and_the_environment_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_shows(monkeypatch, {"name": "old PyTorch says no UUID"})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    status = gpu_status(two_gpus())
    assert [gpu.utilization_percent for gpu in status.readings] == [90]
    assert status.notes == ("NVML does not tell which GPU cuda:0 is, so CUDA_VISIBLE_DEVICES was followed",)


# --- MIG ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["MIG-bbbb-2"])
def test_a_mig_device_has_its_own_memory_no_utilisation_and_the_clocks_of_its_gpu(named: str) -> None:
    (reading,) = gpu_status(divided(), visible=named).readings
    assert (reading.uuid, reading.name, reading.memory_used_bytes) == (named, "Model MIG 1g", 3 * GIB)
    assert reading.unreadable == {"utilization_percent": "a MIG device has no utilisation rates"}
    assert (reading.sm_clock_mhz, reading.power_w, reading.throttling) == (1950, 210.5, ())
    assert "utilisation not reported" in str(reading)


def test_of_a_divided_gpu_the_device_that_cuda_uses_is_read_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    status = gpu_status(divided(), visible="0")
    assert [gpu.uuid for gpu in status.readings] == ["MIG-aaaa-1"]
    (note,) = status.notes
    assert note.startswith("Model is divided by MIG: read is its first device, MIG-aaaa-1;")
    cuda_shows(monkeypatch, {"uuid": "bbbb-2"})
    exact = gpu_status(divided())
    assert ([gpu.uuid for gpu in exact.readings], exact.notes) == (["MIG-bbbb-2"], ())


def test_a_named_mig_device_is_read_whatever_uuid_cuda_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-bbbb-2")
    cuda_shows(monkeypatch, {"uuid": "1111aaaa-0000"})  # older drivers say the whole GPU's
    assert [gpu.uuid for gpu in gpu_status(divided()).readings] == ["MIG-bbbb-2"]


def test_an_unknown_mig_device_is_a_reason() -> None:
    assert gpu_status(divided(), visible="MIG-other").reason == "NVML says: Not Found"


# --- its life -----------------------------------------------------------------------------------------------


def test_the_probe_lets_nvml_go_once() -> None:
    nvml = two_gpus()
    probe = GpuProbe(nvml)
    assert nvml.sessions == 1
    probe.close()
    probe.close()
    assert nvml.sessions == 0
    assert probe.read().reason == "the probe is closed"


def test_a_failing_shutdown_is_a_reason_and_not_an_error() -> None:
    probe = GpuProbe(two_gpus(fails={"nvmlShutdown": pynvml.NVML_ERROR_UNKNOWN}))
    probe.close()
    assert probe.reason == "NVML says: Unknown Error"
