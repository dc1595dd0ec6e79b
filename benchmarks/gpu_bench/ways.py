"""The loaders that the GPU benchmark compares."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from loader_bench.contenders import guide_settings
from torch.utils.data import DataLoader

from chirpid_patch import OptimalDataLoaderFactory, WorkerSafeAugmentedDataset, WorkerSafeStandardizedDataset
from chirpid_patch.device.move_ahead import DevicePrefetcher
from chirpid_patch.loader_speed.measure import shut_down_workers

from .original import Data

ORIGINAL, ORIGINAL_4, GUIDE, PINNED, RESIDENT, LIMIT = "original", "original-4", "guide", "pinned", "resident", "limit"


@dataclass(frozen=True)
class Loading:
    """What a loader has to do: the samples, the batch size and the device."""

    data: Data
    batch_size: int
    augmented: bool
    device: torch.device


class Batches:
    """A loader that is ready: iterate over it once for each epoch, and close it at the end."""

    def __init__(self, batches: Any, loader: Any = None, detail: str = "") -> None:
        self._batches = batches
        self._loader = batches if loader is None else loader
        self.detail = detail

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)

    def close(self) -> None:
        """End the worker processes and threads, and free the memory."""
        if isinstance(self._loader, DataLoader):
            shut_down_workers(self._loader)
        self._batches = self._loader = None
        gc.collect()


def _original(loading: Loading) -> Batches:
    dataset = loading.data.original(augmented=loading.augmented)
    loader = DataLoader(dataset, loading.batch_size, shuffle=True, num_workers=0, pin_memory=False)
    return Batches(loader, detail="in the process, samples one by one")


def _with_workers(loading: Loading, detail: str, **settings: Any) -> Batches:
    dataset = loading.data.original(augmented=loading.augmented)
    forked = "fork" in multiprocessing.get_all_start_methods()  # the augmented dataset cannot be pickled
    context = "fork" if forked and settings["num_workers"] else None
    loader = DataLoader(dataset, loading.batch_size, shuffle=True, multiprocessing_context=context, **settings)
    return Batches(loader, detail=detail)


def _original_4(loading: Loading) -> Batches:
    return _with_workers(
        loading,
        "4 worker processes that are kept, 2 batches ahead each",
        num_workers=4,
        pin_memory=loading.device.type == "cuda",
        persistent_workers=True,
        prefetch_factor=2,
    )


def _guide(loading: Loading) -> Batches:
    settings = guide_settings(loading.data.samples, costly=True)
    detail = f"{settings['num_workers']} worker processes, {settings['prefetch_factor']} batches ahead each"
    return _with_workers(loading, detail, **settings)


def migrated(loading: Loading) -> Any:
    """Return the dataset that a migrated backend has in place of the original dataset."""
    data = loading.data
    dataset = WorkerSafeStandardizedDataset(data.base, data.indices, data.mean, data.std)
    return WorkerSafeAugmentedDataset(dataset, data.augmentation) if loading.augmented else dataset


def pinned_loader(loading: Loading, *, shuffle: bool = True) -> Batches:
    """Return the migrated loader on the CPU, which copies batches to the device through pinned memory."""
    create = OptimalDataLoaderFactory.create_training_loader
    loader: Any = create(migrated(loading), loading.batch_size, shuffle=shuffle, pin_memory=False)
    # The loader and the training do not share a random generator.
    return Batches(DevicePrefetcher(loader, loading.device, lookahead=True), loader, loader.decision)


def resident_loader(loading: Loading, *, shuffle: bool = True) -> Batches:
    """Return the migrated loader with its samples on the device, which also makes the batches.

    Raises:
        RuntimeError: the samples are not on the device, so another loader would be measured.
    """
    create = OptimalDataLoaderFactory.create_training_loader
    options: dict[str, Any] = {"shuffle": shuffle, "device": loading.device, "resident_share": 0.5}
    loader: Any = create(migrated(loading), loading.batch_size, **options)
    if not loader.placement.is_held:
        raise RuntimeError(f"not resident: {loader.decision}")
    return Batches(loader, detail=loader.decision)


def host_loader(loading: Loading, *, shuffle: bool = True) -> Batches:
    """Return the migrated loader on the CPU, whose batches are the reference for the batches of all other loaders."""
    create = OptimalDataLoaderFactory.create_training_loader
    loader: Any = create(migrated(loading), loading.batch_size, shuffle=shuffle, pin_memory=False)
    return Batches(loader, detail=loader.decision)


def one_batch(loading: Loading) -> Batches:
    """Return the same batch on the device as often as an epoch has batches, so that loading takes no time."""
    size, samples = loading.batch_size, loading.data.samples
    x, y = (part[: min(size, samples)].to(loading.device) for part in loading.data.base.tensors)
    whole, rest = divmod(samples, size)
    batches = [(x, y)] * whole + ([(x[:rest], y[:rest])] if rest else [])
    return Batches(batches, detail="the same batch of the device again and again")


@dataclass(frozen=True)
class Way:
    """One loader of the comparison: its name in the results, its title in tables, and the function that creates it."""

    name: str
    title: str
    make: Callable[[Loading], Batches]


WAYS = (
    Way(ORIGINAL, "original, 0 workers", _original),
    Way(ORIGINAL_4, "original, 4 workers", _original_4),
    Way(GUIDE, "the guide's constants", _guide),
    Way(PINNED, "pinned path", pinned_loader),
    Way(RESIDENT, "device-resident", resident_loader),
    Way(LIMIT, "limit: one batch", one_batch),
)
TITLES = {way.name: way.title for way in WAYS}
