"""The ways to load: loaders that give a training its batches, epoch by epoch."""

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
    """What is asked of a way: the samples, in batches of this size, for a training on this device."""

    data: Data
    batch_size: int
    augmented: bool
    device: torch.device


class Batches:
    """A loader that is set up: iterate it once an epoch, close it at the end."""

    def __init__(self, batches: Any, loader: Any = None, detail: str = "") -> None:
        self._batches = batches
        self._loader = batches if loader is None else loader
        self.detail = detail

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)

    def close(self) -> None:
        """End its worker processes and threads, and let its memory go."""
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
    """What a migrated backend has in the place of the original's dataset."""
    data = loading.data
    dataset = WorkerSafeStandardizedDataset(data.base, data.indices, data.mean, data.std)
    return WorkerSafeAugmentedDataset(dataset, data.augmentation) if loading.augmented else dataset


def pinned_loader(loading: Loading, *, shuffle: bool = True) -> Batches:
    """The migrated loader on the CPU, its batches copied beside the training by way of pinned memory."""
    create = OptimalDataLoaderFactory.create_training_loader
    loader: Any = create(migrated(loading), loading.batch_size, shuffle=shuffle, pin_memory=False)
    # Neither the loader nor the training draws from a generator that the other one uses.
    return Batches(DevicePrefetcher(loader, loading.device, lookahead=True), loader, loader.decision)


def resident_loader(loading: Loading, *, shuffle: bool = True) -> Batches:
    """The migrated loader with the samples on the device, where batches are made.

    Raises:
        RuntimeError: they are not held there; what would be measured is another way.
    """
    create = OptimalDataLoaderFactory.create_training_loader
    options: dict[str, Any] = {"shuffle": shuffle, "device": loading.device, "resident_share": 0.5}
    loader: Any = create(migrated(loading), loading.batch_size, **options)
    if not loader.placement.is_held:
        raise RuntimeError(f"not resident: {loader.decision}")
    return Batches(loader, detail=loader.decision)


def host_loader(loading: Loading, *, shuffle: bool = True) -> Batches:
    """The migrated loader on the CPU, with nothing around it: what the others must equal."""
    create = OptimalDataLoaderFactory.create_training_loader
    loader: Any = create(migrated(loading), loading.batch_size, shuffle=shuffle, pin_memory=False)
    return Batches(loader, detail=loader.decision)


def one_batch(loading: Loading) -> Batches:
    """One batch on the device, as often as an epoch has batches: no loading at all."""
    size, samples = loading.batch_size, loading.data.samples
    x, y = (part[: min(size, samples)].to(loading.device) for part in loading.data.base.tensors)
    whole, rest = divmod(samples, size)
    batches = [(x, y)] * whole + ([(x[:rest], y[:rest])] if rest else [])
    return Batches(batches, detail="the same batch of the device again and again")


@dataclass(frozen=True)
class Way:
    """One way to load: its name in the results, what it is called in tables, and what sets it up."""

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
