"""Which of the GPUs that NVML knows are the ones CUDA shows this process, in CUDA's order.

NVML counts all GPUs by PCI bus and knows nothing of CUDA_VISIBLE_DEVICES. CUDA counts the visible ones, by default the
fastest first. Once CUDA is initialised PyTorch says which GPU each device is; until then the environment does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

_MIG_ON = 1


@dataclass(frozen=True)
class VisibleGpu:
    """A GPU, or a MIG device of one.

    Attributes:
        handle: NVML's handle of it.
        whole: the handle of the GPU it is part of; of a whole GPU, ``handle``.
        name, uuid: as NVML says them.
        mig: whether it is a MIG device.
    """

    handle: Any
    whole: Any
    name: str
    uuid: str
    mig: bool


class VisibleGpus:
    """The GPUs that CUDA shows, found when this is made.

    Attributes:
        found: the GPUs in CUDA's order.
        notes: what is not sure about them, one sentence each.

    Args:
        nvml: the binding, initialised.
        visible: as CUDA_VISIBLE_DEVICES; None for all.
        ask_cuda: ask PyTorch which GPU each CUDA device is; CUDA must be initialised.

    Raises:
        nvml.NVMLError: the GPUs cannot be listed.
    """

    def __init__(self, nvml: Any, visible: str | None, *, ask_cuda: bool = False) -> None:
        self._nvml = nvml
        self.notes: list[str] = []
        self._all = [self._gpu(nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(nvml.nvmlDeviceGetCount())]
        mig_named = visible is not None and visible.strip().startswith("MIG-")  # exact, whatever CUDA's order
        named = self._as_cuda_says() if ask_cuda and not mig_named else None
        if named is None:
            named = self._as_the_environment_says(visible)
        self.found = [self._cuda_uses(gpu) for gpu in named]

    def _gpu(self, handle: Any, whole: Any = None) -> VisibleGpu:
        nvml = self._nvml
        name, uuid = as_text(nvml.nvmlDeviceGetName(handle)), as_text(nvml.nvmlDeviceGetUUID(handle))
        return VisibleGpu(handle, handle if whole is None else whole, name, uuid, mig=whole is not None)

    def _as_cuda_says(self) -> list[VisibleGpu] | None:
        """The GPU of each CUDA device, by UUID or place on the PCI bus; None if one cannot be told."""
        named = []
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            gpu = self._with_uuid(str(getattr(about, "uuid", ""))) or self._at(about)
            if gpu is None:
                self.notes.append(f"NVML does not tell which GPU cuda:{index} is, so CUDA_VISIBLE_DEVICES was followed")
                return None
            named.append(gpu)
        return named

    def _with_uuid(self, bare: str) -> VisibleGpu | None:
        """The GPU or MIG device whose UUID is ``bare`` behind "GPU-" or "MIG-"."""
        everything = (one for gpu in self._all for one in (gpu, *self._mig_devices(gpu)))
        return next((gpu for gpu in everything if bare and gpu.uuid.partition("-")[2] == bare), None)

    def _at(self, about: Any) -> VisibleGpu | None:
        place = tuple(getattr(about, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id"))
        if None in place or not hasattr(self._nvml, "nvmlDeviceGetPciInfo"):
            return None
        places = [(gpu, self._nvml.nvmlDeviceGetPciInfo(gpu.handle)) for gpu in self._all]
        return next((gpu for gpu, pci in places if (pci.domain, pci.bus, pci.device) == place), None)

    def _as_the_environment_says(self, visible: str | None) -> list[VisibleGpu]:
        if visible is not None and visible.strip().startswith(("GPU-", "MIG-")):
            return self._by_uuids(visible)
        if len({gpu.name for gpu in self._all}) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
            self.notes.append(
                "GPUs of several models are counted in NVML's order here, and by CUDA the fastest first, until CUDA is "
                "initialised: set CUDA_DEVICE_ORDER=PCI_BUS_ID to have one order"
            )
        if visible is None:
            return self._all
        chosen: list[int] = []
        for entry in visible.split(","):
            number = _leading_number(entry)
            if number in chosen:
                return []  # as CUDA has it
            if not 0 <= number < len(self._all):
                break  # the first invalid entry hides itself and all behind it
            chosen.append(number)
        return [self._all[number] for number in chosen]

    def _by_uuids(self, visible: str) -> list[VisibleGpu]:
        entries = [entry.strip() for entry in visible.split(",")]
        if len(set(entries)) < len(entries):
            return []
        kind, chosen = entries[0][:4], []
        for entry in entries:
            if not entry.startswith(kind):
                break
            if kind == "MIG-":
                chosen.append(self._mig_device(entry))
                continue
            fitting = [gpu for gpu in self._all if gpu.uuid.startswith(entry)]
            if len(fitting) != 1:
                break
            chosen += fitting
        return chosen

    def _mig_device(self, uuid: str) -> VisibleGpu:
        known = (device for gpu in self._all for device in self._mig_devices(gpu) if device.uuid == uuid)
        device = next(known, None)
        if device is not None:
            return device
        handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)  # also MIG-GPU-<uuid>/<instance>/<instance>
        return self._gpu(handle, self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))

    def _mig_devices(self, gpu: VisibleGpu) -> Iterator[VisibleGpu]:
        if not self._has_mig(gpu):
            return
        nvml = self._nvml
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, number)
            except nvml.NVMLError_NotFound:  # numbers need not follow one another
                continue
            yield self._gpu(handle, gpu.handle)

    def _has_mig(self, gpu: VisibleGpu) -> bool:
        nvml = self._nvml
        if gpu.mig or not hasattr(nvml, "nvmlDeviceGetMigMode"):
            return False
        try:
            return bool(nvml.nvmlDeviceGetMigMode(gpu.handle)[0] == _MIG_ON)
        except nvml.NVMLError:  # no MIG on this model
            return False

    def _cuda_uses(self, gpu: VisibleGpu) -> VisibleGpu:
        """``gpu``, or the MIG device that CUDA uses of it."""
        first = next(self._mig_devices(gpu), None)
        if first is None:
            return gpu
        self.notes.append(
            f"{gpu.name} is divided by MIG: read is its first device, {first.uuid}; to use and read another, name it "
            "in CUDA_VISIBLE_DEVICES"
        )
        return first


def _leading_number(entry: str) -> int:
    """The number that ``entry`` begins with, as CUDA reads it; -1 without one."""
    found = re.match(r"[+-]?\d+", entry.strip())
    return int(found.group()) if found else -1


def as_text(value: str | bytes) -> str:
    """What a binding returns as text; before version 11.5 that is bytes."""
    return value.decode() if isinstance(value, bytes) else value
