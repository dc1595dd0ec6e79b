"""A machine's GPUs as NVIDIA's binding shows them: its functions, its values and its exceptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 2**30


@dataclass
class Gpu:
    """One GPU; ``raises`` has the error of each function that fails on it."""

    name: str
    uuid: str
    busy: int = 40
    used: int = 2 * GIB
    raises: dict[str, int] = field(default_factory=dict)


class FakeNvml:
    """The part of ``pynvml`` that is used. What is not redefined here (constants, exceptions) is the real module's."""

    def __init__(self, *gpus: Gpu, bytes_names: bool = False, fails: dict[str, int] | None = None) -> None:
        self.gpus = list(gpus)
        self.sessions = 0
        self._bytes_names = bytes_names
        self._fails = fails or {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml"):
            raise AttributeError(name)  # a function that is not stood in for must not reach a driver
        return getattr(pynvml, name)

    def _check(self, function: str, gpu: Gpu | None = None) -> None:
        code = self._fails.get(function) or (gpu.raises.get(function) or gpu.raises.get("all") if gpu else None)
        if code:
            raise pynvml.NVMLError(code)

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

    def nvmlDeviceGetUUID(self, gpu: Gpu) -> Any:
        return gpu.uuid.encode() if self._bytes_names else gpu.uuid

    def nvmlDeviceGetName(self, gpu: Gpu) -> Any:
        return gpu.name.encode() if self._bytes_names else gpu.name

    def nvmlDeviceGetUtilizationRates(self, gpu: Gpu) -> Any:
        self._check("nvmlDeviceGetUtilizationRates", gpu)
        return SimpleNamespace(gpu=gpu.busy, memory=5)

    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu) -> Any:
        self._check("nvmlDeviceGetMemoryInfo", gpu)
        return SimpleNamespace(used=gpu.used, total=16 * GIB, free=16 * GIB - gpu.used)


def two_gpus(**options: Any) -> FakeNvml:
    """A machine with two GPUs of one model, the second busier."""
    return FakeNvml(
        Gpu("Model", "GPU-1111aaaa-0000"), Gpu("Model", "GPU-2222bbbb-0000", busy=90, used=3 * GIB), **options
    )
