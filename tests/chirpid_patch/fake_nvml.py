"""A machine's GPUs as NVIDIA's binding shows them: its functions, its values and its exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 2**30


@dataclass
class Gpu:
    """One GPU, or MIG device; ``raises`` has the error of each function that fails on it."""

    name: str
    uuid: str
    busy: int = 40
    used: int = 2 * GIB
    bus: int = 1
    migs: list[Gpu] = field(default_factory=list)
    whole: Gpu | None = None
    reasons: int = 0
    raises: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for mig in self.migs:
            mig.whole = self


class FakeNvml:
    """The part of ``pynvml`` that is used. What is not redefined here (constants, exceptions) is the real module's."""

    def __init__(self, *gpus: Gpu, bytes_names: bool = False, fails: dict[str, int] | None = None) -> None:
        self.gpus = list(gpus)
        self.sessions = 0
        self.calls: list[str] = []
        self._bytes_names = bytes_names
        self._fails = fails or {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml"):
            raise AttributeError(name)  # a function that is not stood in for must not reach a driver
        return getattr(pynvml, name)

    def _check(self, function: str, gpu: Gpu | None = None) -> None:
        self.calls.append(function)
        code = self._fails.get(function) or (gpu.raises.get(function) or gpu.raises.get("all") if gpu else None)
        if code:
            raise pynvml.NVMLError(code)

    def _every(self) -> Iterator[Gpu]:
        for gpu in self.gpus:
            yield gpu
            yield from gpu.migs

    def nvmlInit(self) -> None:
        self._check("nvmlInit")
        self.sessions += 1

    def nvmlShutdown(self) -> None:
        self._check("nvmlShutdown")
        self.sessions -= 1

    def nvmlDeviceGetCount(self) -> int:
        self._check("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Gpu:
        self._check("nvmlDeviceGetHandleByUUID")
        found = [gpu for gpu in self._every() if gpu.uuid == uuid]
        if not found:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return found[0]

    def nvmlDeviceGetUUID(self, gpu: Gpu) -> Any:
        return gpu.uuid.encode() if self._bytes_names else gpu.uuid

    def nvmlDeviceGetName(self, gpu: Gpu) -> Any:
        return gpu.name.encode() if self._bytes_names else gpu.name

    def nvmlDeviceGetMigMode(self, gpu: Gpu) -> list[int]:
        self._check("nvmlDeviceGetMigMode", gpu)
        if not gpu.migs:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Gpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int) -> Gpu:
        number = index - 1  # number 0 is not in use, as after a division was changed
        if not 0 <= number < len(gpu.migs):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return gpu.migs[number]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, mig: Gpu) -> Gpu:
        assert mig.whole is not None
        return mig.whole

    def nvmlDeviceGetPciInfo(self, gpu: Gpu) -> Any:
        return SimpleNamespace(domain=0, bus=gpu.bus, device=0)

    def nvmlDeviceGetUtilizationRates(self, gpu: Gpu) -> Any:
        self._check("nvmlDeviceGetUtilizationRates", gpu)
        if gpu.whole is not None or gpu.migs:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=gpu.busy, memory=5)

    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu) -> Any:
        self._check("nvmlDeviceGetMemoryInfo", gpu)
        return SimpleNamespace(used=gpu.used, total=16 * GIB, free=16 * GIB - gpu.used)

    def nvmlDeviceGetClockInfo(self, gpu: Gpu, kind: int) -> int:
        self._check("nvmlDeviceGetClockInfo", gpu)
        self._whole_only(gpu)
        return {pynvml.NVML_CLOCK_SM: 1950, pynvml.NVML_CLOCK_MEM: 10501}[kind]

    def nvmlDeviceGetPowerUsage(self, gpu: Gpu) -> int:
        self._check("nvmlDeviceGetPowerUsage", gpu)
        self._whole_only(gpu)
        return 210_500

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: Gpu) -> int:
        self._check("nvmlDeviceGetEnforcedPowerLimit", gpu)
        self._whole_only(gpu)
        return 300_000

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: Gpu) -> int:
        self._check("nvmlDeviceGetCurrentClocksEventReasons", gpu)
        self._whole_only(gpu)
        return gpu.reasons

    @staticmethod
    def _whole_only(gpu: Gpu) -> None:
        if gpu.whole is not None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)


def two_gpus(**options: Any) -> FakeNvml:
    """A machine with two GPUs of one model, the second busier."""
    return FakeNvml(
        Gpu("Model", "GPU-1111aaaa-0000"), Gpu("Model", "GPU-2222bbbb-0000", busy=90, used=3 * GIB, bus=2), **options
    )
