"""Which of the GPUs that NVML knows are the ones CUDA shows this process, in CUDA's order.

NVML counts all GPUs by PCI bus and knows nothing of CUDA_VISIBLE_DEVICES. CUDA counts the visible ones, by default the
fastest first. Once CUDA is initialised PyTorch says which GPU each device is; until then the environment does.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class VisibleGpu:
    """A GPU: NVML's handle of it, and its name and UUID as NVML says them."""

    handle: Any
    name: str
    uuid: str


class VisibleGpus:
    """The GPUs that CUDA shows, found when this is made.

    Attributes:
        found: the GPUs in CUDA's order; none where a MIG device is named, which is not read.
        notes: what is not sure about them, one sentence each.

    Args:
        nvml: the binding, initialised.
        visible: as CUDA_VISIBLE_DEVICES; None for all.
        ask_cuda: ask PyTorch which GPU each CUDA device is; CUDA must be initialised.

    Raises:
        nvml.NVMLError: the GPUs cannot be listed.
    """

    def __init__(self, nvml: Any, visible: str | None, *, ask_cuda: bool = False) -> None:
        self.notes: list[str] = []
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        self._all = [
            VisibleGpu(handle, _as_text(nvml.nvmlDeviceGetName(handle)), _as_text(nvml.nvmlDeviceGetUUID(handle)))
            for handle in handles
        ]
        self.found: list[VisibleGpu] = []
        if names_mig(visible):
            return
        named = self._as_cuda_says() if ask_cuda else None
        self.found = self._as_the_environment_says(visible) if named is None else named

    def _as_cuda_says(self) -> list[VisibleGpu] | None:
        """The GPU of each CUDA device, by UUID; None if one cannot be told."""
        by_uuid = {gpu.uuid: gpu for gpu in self._all}
        named = []
        for index in range(torch.cuda.device_count()):
            bare = getattr(torch.cuda.get_device_properties(index), "uuid", None)  # torch >= 2.4
            gpu = by_uuid.get(f"GPU-{bare}")
            if gpu is None:
                self.notes.append(f"NVML does not tell which GPU cuda:{index} is, so CUDA_VISIBLE_DEVICES was followed")
                return None
            named.append(gpu)
        return named

    def _as_the_environment_says(self, visible: str | None) -> list[VisibleGpu]:
        if visible is not None and visible.strip().startswith("GPU-"):
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
        chosen = []
        for entry in entries:
            fitting = [gpu for gpu in self._all if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
            if len(fitting) != 1:
                break
            chosen += fitting
        return chosen


def names_mig(visible: str | None) -> bool:
    """Whether CUDA_VISIBLE_DEVICES names MIG devices."""
    return visible is not None and visible.strip().startswith("MIG-")


def _leading_number(entry: str) -> int:
    """The number that ``entry`` begins with, as CUDA reads it; -1 without one."""
    found = re.match(r"[+-]?\d+", entry.strip())
    return int(found.group()) if found else -1


def _as_text(value: str | bytes) -> str:
    """What a binding returns as text; before version 11.5 that is bytes."""
    return value.decode() if isinstance(value, bytes) else value
