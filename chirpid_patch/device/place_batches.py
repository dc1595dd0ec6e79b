"""Placements, which build the batches of a loader on a device, or move the batches from the CPU to the device.

The class ``loading.placement.Placement`` defines the methods that a loader calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from chirpid_patch.datasets.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.datasets.gather import gather_node
from chirpid_patch.device.move_ahead import DevicePrefetcher, can_prefetch_without_rng_drift
from chirpid_patch.device.moving import device_with_index
from chirpid_patch.device.resident import ResidentPlacement
from chirpid_patch.device.resident_tensors import NotResidentError, readable_size
from chirpid_patch.loading.placement import Placement
from chirpid_patch.transforms.spectrograms import GaussianNoise


class MovingPlacement(Placement):
    """A ``Placement`` that moves batches from the CPU to ``device`` with a ``DevicePrefetcher``.

    The placement requests the next batch while the training uses the current batch, unless such an early request could
    change random numbers of the training or the loader. With early requests, a change of the dataset within an epoch
    takes effect one batch later than without early requests.

    Raises:
        ValueError: ``device`` is a CUDA device, but CUDA is not available.
    """

    def __init__(self, device: str | torch.device) -> None:
        self.device = torch.device(device)
        self._moving = DevicePrefetcher((), self.device)

    def deliver(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        self._moving.lookahead = can_prefetch_without_rng_drift(loader, in_memory=True)
        self._moving.loader = batches
        try:
            return iter(self._moving)
        finally:
            self._moving.loader = ()  # the placement must not keep the batches and their workers alive


def create_moving_placement(device: str | torch.device) -> tuple[Placement, str]:
    """Return a ``Placement`` that moves batches to ``device``, and a description of this placement for the user.

    Raises:
        ValueError: ``device`` is a CUDA device, but CUDA is not available.
    """
    there = device_with_index(device)
    return MovingPlacement(there), f"batches are {'on the CPU already' if there.type == 'cpu' else f'moved to {there}'}"


def create_placement(
    dataset: Any, batching: Mapping[str, Any], device: str | torch.device, resident_share: float | None
) -> tuple[Placement, str]:
    """Return a ``Placement`` that puts batches on ``device``, and a description of this placement for the user.

    If the samples can be stored on the device, the placement builds batches from the stored samples. Otherwise the
    placement moves batches from the CPU. The description becomes a part of ``loader.decision``.

    Args:
        dataset: the dataset of the loader.
        batching: arguments of ``DataLoader`` that determine the batches, such as ``batch_size`` and ``collate_fn``.
        device: the device of the batches.
        resident_share: share of the device's free memory that the samples may take, above 0 and at most 1. None: 0.5 on
            an accelerator. On the CPU, None means that the samples are not copied, because ordinary loading is faster
            on the CPU.

    Raises:
        ValueError: the device does not exist, or ``resident_share`` is 0, negative or above 1.
    """
    there = device_with_index(device)
    if resident_share is None and there.type == "cpu":
        return create_moving_placement(there)
    batches = batching.get("batch_sampler") is not None or batching.get("batch_size") is not None
    try:
        held = ResidentPlacement(there, 0.5 if resident_share is None else resident_share)
        held.hold(dataset, batches=batches, collate=batching.get("collate_fn"))
    except NotResidentError as reason:
        return MovingPlacement(there), f"batches are moved to {there}, and not built on {there}, because {reason}"
    why = f"{readable_size(held.bytes)} of samples are stored on the device, and batches are built from these samples"
    if there.type != "cpu" and _draws_exact_noise(dataset):
        why += "; noise of mode 'exact' has the same distribution as on the CPU, but different values"
    return held, why


def _draws_exact_noise(dataset: Any) -> bool:
    """Return whether ``dataset`` applies ``GaussianNoise(mode="exact")``, whose values depend on the device."""
    node = gather_node(dataset)
    stages = node._stages() if isinstance(node, WorkerSafeAugmentedDataset) and node.training else []
    if any(isinstance(one, GaussianNoise) and one.mode == "exact" for _, one in stages):
        return True
    return any(map(_draws_exact_noise, node.children))
