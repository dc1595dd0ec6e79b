"""Loaders for training on several ranks, by the names of the best-practice guide (R-001)."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader

from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.machine.cpus import spare_cpus, usable_cpus
from chirpid_patch.machine.ranks import local_ranks
from chirpid_patch.randomness.seeding import worker_init_fn

_WORKERS_A_DEVICE = 4


def create_optimized_dataloader(
    dataset: Any,
    batch_size: int,
    is_training: bool = True,
    num_workers: int = 4,
    world_size: int | None = None,
    rank: int | None = None,
    seed: int = 42,
) -> DataLoader[Any]:
    """A loader for one rank of ``world_size``; an ordinary one where there is one rank, or none.

    ``rank`` and ``world_size`` are those of ``torch.distributed`` where it is initialised, else torchrun's. Training
    loaders shuffle and leave out what does not fill a batch on every rank; order and augmentation repeat with
    ``seed`` and differ between epochs without ``set_epoch``, which is obeyed where it is called (see
    ``distributed.epochs``). Others iterate over the dataset in order, every sample on exactly one rank.

    ``num_workers`` is the most there may be on this rank: none for samples in memory, and no more than its part of the
    CPUs. Nothing is drawn from the global random generators.

    Raises:
        TypeError: an iterable dataset.
        ValueError: a ``world_size`` other than the launcher's without a rank, or a rank outside of it.
    """
    create = (
        OptimalDataLoaderFactory.create_training_loader
        if is_training
        else OptimalDataLoaderFactory.create_validation_loader
    )
    workers = min(num_workers, spare_cpus())
    return create(
        dataset,
        batch_size,
        num_workers=workers,
        persistent_workers=workers > 0,
        drop_last=is_training,
        worker_init_fn=worker_init_fn,
        distributed=True,
        world_size=world_size,
        rank=rank,
        seed=seed,
    )


def get_optimal_num_workers(device_type: str = "cuda") -> int:
    """Worker processes for each loader of this rank: 4 for each device it has, within its part of the usable CPUs.

    0 for ``"cpu"``, and where the node has fewer CPUs than ranks. ``OptimalDataLoaderFactory`` decides for the dataset
    at hand, which this does not know: samples in memory are loaded faster without workers.
    """
    if device_type == "cpu":
        return 0
    ranks = local_ranks()
    devices = max(torch.cuda.device_count() // ranks, 1)
    return min(_WORKERS_A_DEVICE * devices, usable_cpus() // ranks)
