"""GPU utilisation and memory through NVIDIA's management library, or the reason why there is none to read."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment.

    `utilization_percent` is NVML's: the share of its last sampling period (1/6 to 1 second, by model) in
    which at least one kernel ran, 0 to 100; None where the device does not report it (a MIG slice, for
    example). Memory is in bytes and is the whole device's, not this process's alone.
    """

    name: str
    uuid: str
    utilization_percent: float | None
    memory_used_bytes: int
    memory_total_bytes: int


@dataclass(frozen=True)
class GpuStatus:
    """The visible GPUs in CUDA's order, or none and the `reason` in one sentence."""

    readings: tuple[GpuReading, ...] = ()
    reason: str | None = None

    @property
    def utilization_percent(self) -> float | None:
        """Mean utilisation of the GPUs that report one, in percent; None when none does."""
        known = [gpu.utilization_percent for gpu in self.readings if gpu.utilization_percent is not None]
        return sum(known) / len(known) if known else None

    @property
    def memory_used_bytes(self) -> int | None:
        """Memory in use on the visible GPUs together, in bytes; None without a GPU."""
        return sum(gpu.memory_used_bytes for gpu in self.readings) if self.readings else None

    def __str__(self) -> str:
        if not self.readings:
            return f"no GPU: {self.reason}"
        return "; ".join(_line(gpu) for gpu in self.readings)


def _line(gpu: GpuReading) -> str:
    percent = gpu.utilization_percent
    busy = "utilisation not reported" if percent is None else f"{percent:.0f} % busy"
    used, total = gpu.memory_used_bytes / 2**30, gpu.memory_total_bytes / 2**30
    return f"{gpu.name}: {busy}, {used:.1f} of {total:.1f} GiB used"


def _text(value: str | bytes) -> str:
    # Bindings before version 11.5 return bytes.
    return value.decode() if isinstance(value, bytes) else value


class GpuProbe:
    """Reads the GPUs that CUDA_VISIBLE_DEVICES leaves visible; never raises because of a missing or failing
    GPU.

    Args:
        nvml: the NVML binding; by default the `pynvml` module (distribution `nvidia-ml-py`) if it is
        installed.
        visible: the value of CUDA_VISIBLE_DEVICES; by default the environment's. None means every GPU. As in
            CUDA, entries are numbers or (abbreviated) UUIDs, and the first invalid one hides itself and all
            after it.

    Numbers count in NVML's order, that of the PCI bus. With GPUs of different models CUDA counts so only
    under CUDA_DEVICE_ORDER=PCI_BUS_ID; name the GPUs by UUID where that matters.

    The probe holds NVML open until `close()`, or for the length of a `with` block.
    """

    def __init__(self, nvml: Any | None = None, visible: str | None = None) -> None:
        self._handles: list[Any] = []
        self._open = False
        self.reason: str | None = None
        if nvml is None:
            try:
                nvml = importlib.import_module("pynvml")
            except ImportError:
                self.reason = "the nvidia-ml-py package is not installed"
                return
        self._nvml = nvml
        if visible is None:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        try:
            nvml.nvmlInit()
            self._open = True
            self._handles = self._visible_handles(visible)
        except nvml.NVMLError as error:
            self.reason = f"NVML says: {error}"
            return
        if not self._handles:
            hidden = visible is not None
            self.reason = f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU" if hidden else "NVML finds none"

    def _visible_handles(self, visible: str | None) -> list[Any]:
        nvml = self._nvml
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        if visible is None:
            return handles
        uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        chosen: list[Any] = []
        for entry in (part.strip() for part in visible.split(",")):
            if entry.isdecimal():
                matches = handles[int(entry) : int(entry) + 1]
            elif entry.startswith("MIG-"):
                matches = [nvml.nvmlDeviceGetHandleByUUID(entry)]
            else:
                same = [handle for handle, uuid in zip(handles, uuids, strict=True) if uuid.startswith(entry)]
                matches = same if entry and len(same) == 1 else []
            if not matches:
                break
            chosen += matches
        return chosen

    def read(self) -> GpuStatus:
        """One reading of each visible GPU, or the reason why there is none."""
        if not self._handles:
            return GpuStatus(reason=self.reason)
        try:
            return GpuStatus(tuple(self._reading(handle) for handle in self._handles))
        except self._nvml.NVMLError as error:
            return GpuStatus(reason=f"NVML says: {error}")

    def _reading(self, handle: Any) -> GpuReading:
        nvml = self._nvml
        try:
            busy: float | None = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except nvml.NVMLError:  # not supported on this device; its memory still is
            busy = None
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return GpuReading(
            name=_text(nvml.nvmlDeviceGetName(handle)),
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            utilization_percent=busy,
            memory_used_bytes=int(memory.used),
            memory_total_bytes=int(memory.total),
        )

    def close(self) -> None:
        """Let NVML go; further reads say that the probe is closed. Safe to call twice."""
        if not self._open:
            return
        self._open = False
        self._handles = []
        self.reason = "the probe is closed"
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            self.reason = f"NVML says: {error}"

    def __enter__(self) -> GpuProbe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def gpu_status(nvml: Any | None = None, visible: str | None = None) -> GpuStatus:
    """One reading of the visible GPUs (arguments as for `GpuProbe`), or the reason why there is none."""
    with GpuProbe(nvml, visible) as probe:
        return probe.read()
