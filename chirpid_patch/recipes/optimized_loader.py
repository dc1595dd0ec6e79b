"""Loaders for training on several ranks, with the names of the best-practice guide."""

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
    """Build a loader for one rank of ``world_size``; with one rank or none, an ordinary loader.

    Training loaders shuffle and omit samples that do not fill a batch on every rank. Order and augmentation repeat with
    ``seed``, and differ between epochs even without ``set_epoch``; a call of ``set_epoch`` takes precedence (see
    ``distributed.epochs``). Other loaders iterate over the dataset in order, with every sample on exactly one rank. The
    loader does not draw from the global random generators.

    Args:
        dataset: map-style dataset.
        batch_size: samples in a batch, on each rank.
        is_training: whether the loader is for training.
        num_workers: largest number of worker processes of this rank: none for samples in memory, and never more than
            its share of the CPUs.
        world_size: number of ranks; None takes that of ``torch.distributed`` if it is initialised, else torchrun's.
        rank: rank of this process; None takes that of ``torch.distributed`` or torchrun.
        seed: seed of order and augmentation.

    Raises:
        TypeError: the dataset is iterable.
        ValueError: ``world_size`` differs from the launcher's and there is no rank, or the rank is out of range.
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
    """Return the number of worker processes for each loader of this rank.

    It is 4 for each device, at most its share of the usable CPUs, and 0 for ``"cpu"`` or if the node has fewer CPUs
    than ranks. ``OptimalDataLoaderFactory`` decides by the dataset, which this function does not have: samples in
    memory load faster without workers.
    """
    if device_type == "cpu":
        return 0
    ranks = local_ranks()
    devices = max(torch.cuda.device_count() // ranks, 1)
    return min(_WORKERS_A_DEVICE * devices, usable_cpus() // ranks)
