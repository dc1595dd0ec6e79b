"""Functions that read GPU utilisation and memory with NVML, NVIDIA's management library."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

#: The attributes of a ``GpuReading`` that are read with NVML.
FIELDS = ("utilization_percent", "memory_used_bytes", "memory_total_bytes")


@dataclass(frozen=True)
class GpuReading:
    """Utilisation and memory of a GPU. A value that cannot be read is None, and ``unreadable`` contains the reason.

    Attributes:
        name: name of the GPU in NVML.
        utilization_percent: percentage of time in the last sampling period during which at least one kernel ran, 0 to
            100. The sampling period is 1/6 to 1 second, depending on the GPU model.
        memory_used_bytes: bytes that all processes together use on the GPU.
        memory_total_bytes: bytes of memory that the GPU has.
        unreadable: maps the name of each attribute that is None to the reason why the value cannot be read.
    """

    name: str
    utilization_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    unreadable: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        percent, parts = self.utilization_percent, []
        parts.append("utilisation not reported" if percent is None else f"{percent:.0f} % busy")
        if self.memory_used_bytes is not None and self.memory_total_bytes is not None:
            used, total = self.memory_used_bytes / 2**30, self.memory_total_bytes / 2**30
            parts.append(f"{used:.1f} of {total:.1f} GiB used")
        return f"{self.name}: {', '.join(parts)}"


@dataclass(frozen=True)
class GpuStatus:
    """The readings of all visible GPUs, in the order of CUDA's device numbers (``GpuProbe`` describes an exception).

    If there are no readings, `reason` explains why; otherwise `reason` is None.
    """

    readings: tuple[GpuReading, ...] = ()
    reason: str | None = None

    @property
    def utilization_percent(self) -> float | None:
        """Return the mean of all reported GPU utilisations, in percent; None if no GPU reports its utilisation."""
        known = [gpu.utilization_percent for gpu in self.readings if gpu.utilization_percent is not None]
        return sum(known) / len(known) if known else None

    @property
    def memory_used_bytes(self) -> int | None:
        """Return the memory in use on all visible GPUs together, in bytes; None if no GPU reports its memory."""
        known = [gpu.memory_used_bytes for gpu in self.readings if gpu.memory_used_bytes is not None]
        return sum(known) if known else None

    def __str__(self) -> str:
        if not self.readings:
            return f"no GPU: {self.reason}"
        return "; ".join(map(str, self.readings))


class GpuProbe:
    """Read the GPUs that are visible to this process.

    If a GPU is missing or fails, ``read`` raises no error, but returns a ``GpuStatus`` with the reason. If CUDA is
    initialised, PyTorch reports the visible GPUs. Otherwise the probe reads the environment variable
    CUDA_VISIBLE_DEVICES. Each entry of the variable is the number of a GPU, its UUID, or the start of its UUID. The
    probe looks up a number in NVML's order, which is the order of the PCI bus. CUDA may list the fastest GPU first. The
    same number then means another GPU for CUDA than for the probe. As in CUDA, all entries of the variable after an
    invalid entry are ignored. For MIG devices, the ``GpuStatus`` contains a reason instead of readings.

    NVML stays open until `close()` is called, or until the `with` block ends.

    Args:
        nvml: module with the functions of NVML; None: the module `pynvml` of the package `nvidia-ml-py`, if it is
            installed.
    """

    def __init__(self, nvml: Any | None = None) -> None:
        self._open = False
        self.reason: str | None = None
        if nvml is None:
            try:
                nvml = importlib.import_module("pynvml")
            except ImportError:
                self.reason = "the nvidia-ml-py package is not installed"
                return
        self._nvml = nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self.reason = f"NVML reports: {error}"
            return
        self._open = True

    def read(self) -> GpuStatus:
        """Read each visible GPU once, and return the readings, or the reason why there are no readings."""
        if not self._open:
            return GpuStatus(reason=self.reason)
        try:
            readings = tuple(_reading(self._nvml, handle) for handle in _visible_gpus(self._nvml))
        except self._nvml.NVMLError as error:
            return GpuStatus(reason=f"NVML reports: {error}")
        if not readings:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            hidden = f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU, or names MIG devices, which are not supported"
            return GpuStatus(reason="NVML finds no GPU" if visible is None else hidden)
        if all(len(reading.unreadable) == len(FIELDS) for reading in readings):
            return GpuStatus(reason=readings[0].unreadable["memory_used_bytes"])
        return GpuStatus(readings)

    def close(self) -> None:
        """Close NVML. Later calls of `read` return no readings. Calling `close` twice is safe."""
        if not self._open:
            return
        self._open = False
        self.reason = "the connection to NVML is closed"
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            self.reason = f"NVML reports: {error}"

    def __enter__(self) -> GpuProbe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def gpu_status(nvml: Any | None = None) -> GpuStatus:
    """Read each visible GPU once, and return the readings, or the reason why there are no readings.

    The argument `nvml` has the same meaning as for `GpuProbe`.
    """
    with GpuProbe(nvml) as probe:
        return probe.read()


def _visible_gpus(nvml: Any) -> list[Any]:
    """Return the NVML handles of the visible GPUs, in the order that ``GpuProbe`` describes."""
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip().startswith("MIG-"):
        return []  # some drivers would report the whole GPU, with the values of other processes
    uuids = [_as_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        shown = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        named = [f"GPU-{getattr(device, 'uuid', None)}" for device in shown]  # torch >= 2.4
        if all(name in uuids for name in named):
            return [handles[uuids.index(name)] for name in named]
    if visible is None:
        return handles
    chosen: list[Any] = []
    for entry in map(str.strip, visible.split(",")):
        fitting = [handle for handle, uuid in zip(handles, uuids, strict=True) if uuid.startswith(entry)]
        if entry.isdecimal() and int(entry) < len(handles):
            chosen.append(handles[int(entry)])
        elif entry.startswith("GPU-") and len(fitting) == 1:
            chosen += fitting
        else:
            break
    return chosen


def _reading(nvml: Any, handle: Any) -> GpuReading:
    unreadable: dict[str, str] = {}

    def read_fields(fields: tuple[str, ...], function: Callable[[Any], Any]) -> Any:
        """Return ``function(handle)``.

        If the call fails, return None and store the reason in ``unreadable`` for all ``fields``.
        """
        try:
            return function(handle)
        except nvml.NVMLError as error:  # other values may be readable
            unreadable.update(dict.fromkeys(fields, f"NVML reports: {error}"))
            return None

    busy = read_fields(("utilization_percent",), nvml.nvmlDeviceGetUtilizationRates)
    memory = read_fields(("memory_used_bytes", "memory_total_bytes"), nvml.nvmlDeviceGetMemoryInfo)
    return GpuReading(
        name=_as_text(nvml.nvmlDeviceGetName(handle)),
        utilization_percent=None if busy is None else float(busy.gpu),
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        unreadable=unreadable,
    )


def _as_text(value: str | bytes) -> str:
    """Return a value from ``pynvml`` as text, because versions before 11.5 return bytes."""
    return value.decode() if isinstance(value, bytes) else value
