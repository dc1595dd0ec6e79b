"""GPU utilisation and memory through NVIDIA's management library, or why there is none to read (R-000-3.1)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch

from chirpid_patch.machine.visible_gpus import VisibleGpu, VisibleGpus, names_mig

#: The fields of a reading that NVML is asked for.
FIELDS = ("utilization_percent", "memory_used_bytes", "memory_total_bytes")


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment. What cannot be read is None, and ``unreadable`` says why.

    Attributes:
        name, uuid: as NVML says them.
        utilization_percent: the share of NVML's last sampling period (1/6 to 1 second, by model) in which at least one
            kernel ran, 0 to 100.
        memory_used_bytes, memory_total_bytes: the GPU's, not this process's alone.
        unreadable: for each field that is None, why.
    """

    name: str
    uuid: str
    utilization_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    unreadable: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        percent, said = self.utilization_percent, []
        said.append("utilisation not reported" if percent is None else f"{percent:.0f} % busy")
        if self.memory_used_bytes is not None and self.memory_total_bytes is not None:
            used, total = self.memory_used_bytes / 2**30, self.memory_total_bytes / 2**30
            said.append(f"{used:.1f} of {total:.1f} GiB used")
        return f"{self.name}: {', '.join(said)}"


@dataclass(frozen=True)
class GpuStatus:
    """The visible GPUs in CUDA's order, or none and the `reason` in one sentence.

    `notes` says what is not sure about which GPUs these are.
    """

    readings: tuple[GpuReading, ...] = ()
    reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def utilization_percent(self) -> float | None:
        """Mean utilisation of the GPUs that report one, in percent; None when none does."""
        known = [gpu.utilization_percent for gpu in self.readings if gpu.utilization_percent is not None]
        return sum(known) / len(known) if known else None

    @property
    def memory_used_bytes(self) -> int | None:
        """Memory in use on the visible GPUs together, in bytes; None where none reports it."""
        known = [gpu.memory_used_bytes for gpu in self.readings if gpu.memory_used_bytes is not None]
        return sum(known) if known else None

    def __str__(self) -> str:
        if not self.readings:
            return f"no GPU: {self.reason}"
        return "; ".join(map(str, self.readings))


class GpuProbe:
    """Reads the GPUs that CUDA shows this process; never raises because of a missing or failing GPU.

    Args:
        nvml: the NVML binding; by default the `pynvml` module (distribution `nvidia-ml-py`) if it is installed.
        visible: what counts as CUDA_VISIBLE_DEVICES; by default the environment's. As in CUDA, entries are numbers,
            (abbreviated) UUIDs of GPUs, and the first invalid one hides itself and all after it. MIG devices are not
            read.

    Which GPU a number means is asked of CUDA once that is initialised, if `visible` is not given. Before, numbers count
    in NVML's order, that of the PCI bus; where CUDA may count otherwise, `GpuStatus.notes` says so.

    The probe holds NVML open until `close()`, or for the length of a `with` block.
    """

    def __init__(self, nvml: Any | None = None, visible: str | None = None) -> None:
        self._gpus: list[VisibleGpu] = []
        self._notes: tuple[str, ...] = ()
        self._open = False
        self._told_by_cuda = visible is not None  # by the caller, and nobody else is to be asked
        self.reason: str | None = None
        if nvml is None:
            try:
                nvml = importlib.import_module("pynvml")
            except ImportError:
                self.reason = "the nvidia-ml-py package is not installed"
                return
        self._nvml = nvml
        self._visible = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self.reason = f"NVML says: {error}"
            return
        self._open = True
        self._find(ask_cuda=self._may_ask_cuda())

    def _may_ask_cuda(self) -> bool:
        return not self._told_by_cuda and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]

    def _find(self, *, ask_cuda: bool) -> None:
        self._told_by_cuda |= ask_cuda
        try:
            visible = VisibleGpus(self._nvml, self._visible, ask_cuda=ask_cuda)
        except self._nvml.NVMLError as error:
            self._gpus, self.reason = [], f"NVML says: {error}"
            return
        self._gpus, self._notes, self.reason = visible.found, tuple(visible.notes), None
        if not self._gpus:
            self.reason = self._why_none()

    def _why_none(self) -> str:
        if self._visible is None:
            return "NVML finds none"
        named = f"CUDA_VISIBLE_DEVICES={self._visible!r}"
        return (
            f"{named} names a MIG device, which is not read" if names_mig(self._visible) else f"{named} hides every GPU"
        )

    def read(self) -> GpuStatus:
        """One reading of each visible GPU, or the reason why there is none."""
        if self._open and self._may_ask_cuda():
            self._find(ask_cuda=True)
        if not self._gpus:
            return GpuStatus(reason=self.reason)
        readings = tuple(_reading(self._nvml, gpu) for gpu in self._gpus)
        if all(len(reading.unreadable) == len(FIELDS) for reading in readings):
            return GpuStatus(reason=readings[0].unreadable["memory_used_bytes"])
        return GpuStatus(readings, notes=self._notes)

    def close(self) -> None:
        """Let NVML go; further reads say that the probe is closed. Safe to call twice."""
        if not self._open:
            return
        self._open = False
        self._gpus = []
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


def _reading(nvml: Any, gpu: VisibleGpu) -> GpuReading:
    unreadable: dict[str, str] = {}

    def ask(fields: tuple[str, ...], function: Callable[[Any], Any]) -> Any:
        """What ``function`` answers; None if it does not, and then ``fields`` cannot be read."""
        try:
            return function(gpu.handle)
        except nvml.NVMLError as error:  # of this value only: the other is asked for all the same
            unreadable.update(dict.fromkeys(fields, f"NVML says: {error}"))
            return None

    busy = ask(("utilization_percent",), nvml.nvmlDeviceGetUtilizationRates)
    memory = ask(("memory_used_bytes", "memory_total_bytes"), nvml.nvmlDeviceGetMemoryInfo)
    return GpuReading(
        name=gpu.name,
        uuid=gpu.uuid,
        utilization_percent=None if busy is None else float(busy.gpu),
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        unreadable=unreadable,
    )
