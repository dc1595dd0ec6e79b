"""Where the batches of a loader are made, for the factory: on the device, or on the CPU and then moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from chirpid_patch.datasets.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.datasets.gather import node_of
from chirpid_patch.device.moved import (
    MovedAdjustingDataLoader,
    MovedDataLoader,
    MovedDistributedDataLoader,
    MovedPlainDataLoader,
)
from chirpid_patch.device.resident import (
    ResidentDataLoader,
    ResidentDistributedDataLoader,
    numbered_device,
    rows_to_hold,
)
from chirpid_patch.device.resident_tensors import NotResidentError, ResidentTensors, readable_size
from chirpid_patch.distributed.loader import DistributedDataLoader
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.transforms.transforms import GaussianNoise
from chirpid_patch.tune.adjusting import AdjustingDataLoader

_MOVED: dict[type[BatchedDataLoader[Any]], type[BatchedDataLoader[Any]]] = {
    BatchedDataLoader: MovedDataLoader,
    DistributedDataLoader: MovedDistributedDataLoader,
    AdjustingDataLoader: MovedAdjustingDataLoader,
}


class Placement:
    """Puts the batches of one loader on ``device``.

    Args:
        device: where they come.
        share: how much of its free memory samples may take; None is 0.5, but nothing on the CPU, where ordinary
            loading is faster than what is made for devices.

    Raises:
        ValueError: the device is not there, or ``share`` is not above 0 and at most 1.
    """

    def __init__(self, device: str | torch.device, share: float | None) -> None:
        self.device = numbered_device(device)
        self._holds = share is not None or self.device.type != "cpu"
        self._share = 0.5 if share is None else share
        self._held: ResidentTensors | None = None
        #: What was decided and why, in words.
        self.why = f"batches are moved to {self.device}" if self._holds else "batches are on the CPU already"

    def holds(self, dataset: Any, options: Mapping[str, Any]) -> bool:
        """Upload the samples of a loader with these ``options``, if they can be held on the device."""
        if not self._holds:
            return False
        batches = options.get("batch_sampler") is not None or options.get("batch_size") is not None
        try:
            held = ResidentTensors(self.device, self._share)
            held.hold(rows_to_hold(dataset, batches=batches, collate=options.get("collate_fn")))
        except NotResidentError as reason:
            self.why = f"batches are moved to {self.device}, where they are not made because {reason}"
            return False
        self._held = held
        self.why = f"{readable_size(held.bytes)} of samples are held there, and batches made from them"
        if self.device.type != "cpu" and _draws_exact_noise(dataset):
            self.why += "; noise of mode 'exact' has the same distribution as on the CPU, and other values"
        return True

    @property
    def is_held(self) -> bool:
        """Whether samples are held on the device."""
        return self._held is not None

    def loader(self, kind: type[BatchedDataLoader[Any]]) -> Callable[..., BatchedDataLoader[Any]]:
        """What makes the loader in the place of ``kind``: one that shares the upload, if there is one."""
        if self._held is None:
            return partial(_MOVED[kind], device=self.device)
        resident = ResidentDistributedDataLoader if kind is DistributedDataLoader else ResidentDataLoader
        return partial(resident, device=self.device, resident_share=self._share)

    def plain_loader(self, *, benchmark: bool) -> Callable[..., DataLoader[Any]]:
        """What makes PyTorch's loader, its batches moved."""
        return partial(MovedPlainDataLoader, device=self.device, benchmark=benchmark)


def _draws_exact_noise(dataset: Any) -> bool:
    """Whether a dataset that can be resident has noise that another device computes otherwise."""
    node = node_of(dataset)
    stages = node._stages() if isinstance(node, WorkerSafeAugmentedDataset) and node.training else []
    if any(isinstance(one, GaussianNoise) and one.mode == "exact" for _, one in stages):
        return True
    return node is not None and any(map(_draws_exact_noise, node.children))
