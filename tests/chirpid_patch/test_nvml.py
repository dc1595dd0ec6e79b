"""GPU readings, with a stand-in for the NVML binding (its functions and errors) and without any GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from chirpid_patch.device.nvml import GpuProbe, gpu_status


class NVMLError(Exception):
    """The binding's base error."""


class FakeNvml:
    """The part of `pynvml` that is used, for two GPUs."""

    NVMLError = NVMLError

    def __init__(self, *, bytes_names: bool = False, fails: tuple[str, ...] = ()) -> None:
        self.uuids = ["GPU-1111aaaa-0000", "GPU-2222bbbb-0000"]
        self.sessions = 0
        self._bytes_names = bytes_names
        self.fails = set(fails)

    def _check(self, function: str) -> None:
        if function in self.fails:
            raise NVMLError(f"{function}: Driver Not Loaded")

    def nvmlInit(self) -> None:
        self._check("init")
        self.sessions += 1

    def nvmlShutdown(self) -> None:
        self._check("shutdown")
        self.sessions -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid != "MIG-3333":
            raise NVMLError("Not Found")
        return 1

    def nvmlDeviceGetUUID(self, handle: int) -> Any:
        return self.uuids[handle].encode() if self._bytes_names else self.uuids[handle]

    def nvmlDeviceGetName(self, handle: int) -> Any:
        name = f"Model {handle}"
        return name.encode() if self._bytes_names else name

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        self._check("utilization")
        return SimpleNamespace(gpu=[40, 90][handle], memory=5)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        self._check("memory")
        return SimpleNamespace(used=[2, 3][handle] * 2**30, total=16 * 2**30, free=0)


@pytest.fixture(autouse=True)
def every_gpu_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize("bytes_names", [False, True], ids=["new bindings", "old bindings"])
def test_reads_utilisation_in_percent_and_memory_in_bytes(bytes_names: bool) -> None:
    status = gpu_status(FakeNvml(bytes_names=bytes_names))
    assert [gpu.name for gpu in status.readings] == ["Model 0", "Model 1"]
    assert status.utilization_percent == 65
    assert status.memory_used_bytes == 5 * 2**30
    assert status.reason is None
    assert str(status) == "Model 0: 40 % busy, 2.0 of 16.0 GiB used; Model 1: 90 % busy, 3.0 of 16.0 GiB used"


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0,1", ["Model 0", "Model 1"]),
        ("1,0", ["Model 1", "Model 0"]),
        (" 1 ", ["Model 1"]),
        ("1,7,0", ["Model 1"]),  # CUDA ignores an invalid entry and all that follow
        ("1,-1,0", ["Model 1"]),
        ("GPU-2222", ["Model 1"]),
        ("GPU-", []),  # fits two GPUs
        ("MIG-3333", ["Model 1"]),
        ("-1", []),
        ("", []),
    ],
)
def test_honours_cuda_visible_devices(visible: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    status = gpu_status(FakeNvml())
    assert [gpu.name for gpu in status.readings] == expected
    if not expected:
        assert str(status) == f"no GPU: CUDA_VISIBLE_DEVICES={visible!r} hides every GPU"


def test_no_driver_is_a_reason_and_not_an_error() -> None:
    status = gpu_status(FakeNvml(fails=("init",)))
    assert status.readings == ()
    assert status.utilization_percent is None
    assert status.memory_used_bytes is None
    assert str(status) == "no GPU: NVML says: init: Driver Not Loaded"


def test_a_gpu_lost_after_the_start_is_a_reason_and_not_an_error() -> None:
    nvml = FakeNvml()
    with GpuProbe(nvml) as probe:
        assert len(probe.read().readings) == 2
        nvml.fails.add("memory")
        assert probe.read().reason == "NVML says: memory: Driver Not Loaded"


def test_memory_is_read_where_utilisation_is_not_reported() -> None:
    status = gpu_status(FakeNvml(fails=("utilization",)))
    assert status.utilization_percent is None
    assert status.memory_used_bytes == 5 * 2**30
    assert "utilisation not reported" in str(status)


def test_an_unknown_mig_slice_is_a_reason() -> None:
    assert gpu_status(FakeNvml(), visible="MIG-other").reason == "NVML says: Not Found"


def test_a_machine_without_gpus_says_so() -> None:
    nvml = FakeNvml()
    nvml.uuids = []
    assert str(gpu_status(nvml)) == "no GPU: NVML finds none"


def test_the_probe_lets_nvml_go_once() -> None:
    nvml = FakeNvml()
    probe = GpuProbe(nvml)
    assert nvml.sessions == 1
    probe.close()
    probe.close()
    assert nvml.sessions == 0
    assert probe.read().reason == "the probe is closed"


def test_a_failing_shutdown_is_a_reason_and_not_an_error() -> None:
    probe = GpuProbe(FakeNvml(fails=("shutdown",)))
    probe.close()
    assert probe.reason == "NVML says: shutdown: Driver Not Loaded"


def test_without_the_binding_the_reason_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_status().reason == "the nvidia-ml-py package is not installed"


def test_this_machine_gives_readings_or_one_reason() -> None:
    status = gpu_status()
    assert bool(status.readings) != bool(status.reason)
    for gpu in status.readings:
        assert 0 <= gpu.memory_used_bytes <= gpu.memory_total_bytes
