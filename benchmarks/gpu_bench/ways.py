"""The loaders that the GPU benchmark compares."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from loader_bench.contenders import Running, guide_settings
from torch.utils.data import DataLoader

from chirpid_patch import OptimalDataLoaderFactory, WorkerSafeAugmentedDataset, WorkerSafeStandardizedDataset
from chirpid_patch.device.move_ahead import DevicePrefetcher

from .original import Data

ORIGINAL, PINNED, RESIDENT, LIMIT = "original", "pinned", "resident", "limit"


@dataclass(frozen=True)
class Loading:
    """What a loader has to do: the samples, the batch size and the device."""

    data: Data
    batch_size: int
    augmented: bool
    device: torch.device


def _original(loading: Loading, detail: str, **settings: Any) -> Running:
    dataset = loading.data.original(augmented=loading.augmented)
    forked = "fork" in multiprocessing.get_all_start_methods()  # the augmented dataset cannot be pickled
    context = "fork" if forked and settings["num_workers"] else None
    loader = DataLoader(dataset, loading.batch_size, shuffle=True, multiprocessing_context=context, **settings)
    return Running(loader, detail)


def _without_workers(loading: Loading) -> Running:
    return _original(loading, "in the process, samples one by one", num_workers=0, pin_memory=False)


def _with_workers(loading: Loading) -> Running:
    return _original(
        loading,
        "4 worker processes that are kept, 2 batches ahead each",
        num_workers=4,
        pin_memory=loading.device.type == "cuda",
        persistent_workers=True,
        prefetch_factor=2,
    )


def _guide(loading: Loading) -> Running:
    settings = guide_settings(loading.data.samples, costly=True)
    detail = f"{settings['num_workers']} worker processes, {settings['prefetch_factor']} batches ahead each"
    return _original(loading, detail, **settings)


def _migrated(loading: Loading, **options: Any) -> Any:
    """Return the loader and dataset that a migrated backend has in place of the original ones."""
    data = loading.data
    dataset: Any = WorkerSafeStandardizedDataset(data.base, data.indices, data.mean, data.std)
    dataset = WorkerSafeAugmentedDataset(dataset, data.augmentation) if loading.augmented else dataset
    return OptimalDataLoaderFactory.create_training_loader(dataset, loading.batch_size, shuffle=True, **options)


def host_loader(loading: Loading) -> Running:
    """Return the migrated loader on the CPU, whose batches are the reference for the batches of all other loaders."""
    loader = _migrated(loading, pin_memory=False)
    return Running(loader, loader.decision)


def pinned_loader(loading: Loading) -> Running:
    """Return the migrated loader on the CPU, which copies batches to the device through pinned memory."""
    loader = _migrated(loading, pin_memory=False)
    # The loader and the training do not share a random generator.
    return Running(loader, loader.decision, DevicePrefetcher(loader, loading.device, lookahead=True))


def resident_loader(loading: Loading) -> Running:
    """Return the migrated loader with its samples on the device, which also makes the batches.

    Raises:
        RuntimeError: the samples are not on the device, so another loader would be measured.
    """
    loader = _migrated(loading, device=loading.device, resident_share=0.5)
    if not loader.placement.is_held:
        raise RuntimeError(f"not resident: {loader.decision}")
    return Running(loader, loader.decision)


def one_batch(loading: Loading) -> Running:
    """Return the same batch on the device as often as an epoch has batches, so that loading takes no time."""
    size, samples = loading.batch_size, loading.data.samples
    x, y = (part[: min(size, samples)].to(loading.device) for part in loading.data.base.tensors)
    whole, rest = divmod(samples, size)
    batches = [(x, y)] * whole + ([(x[:rest], y[:rest])] if rest else [])
    return Running(batches, "the same batch of the device again and again")


#: Name in the results → title in tables, and function that creates the loader.
WAYS: dict[str, tuple[str, Callable[[Loading], Running]]] = {
    ORIGINAL: ("original, 0 workers", _without_workers),
    "original-4": ("original, 4 workers", _with_workers),
    "guide": ("the guide's constants", _guide),
    PINNED: ("pinned path", pinned_loader),
    RESIDENT: ("device-resident", resident_loader),
    LIMIT: ("limit: one batch", one_batch),
}
TITLES = {name: title for name, (title, _) in WAYS.items()}
