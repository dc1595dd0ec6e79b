"""Functions of the best-practice guide for ChirpID that build loaders for training on several ranks."""

from __future__ import annotations

from typing import Any

import torch

from chirpid_patch.factory import create_training_loader, create_validation_loader
from chirpid_patch.machine.cpus import cpus_for_loading, usable_cpus
from chirpid_patch.machine.ranks import ranks_on_this_machine
from chirpid_patch.randomness.seeding import worker_init_fn
from chirpid_patch.torch_private import DataLoader

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
    """Build the loader of a rank. With a single rank, the samples are not divided.

    A loader for training shuffles, and omits the last samples if these samples do not fill a batch on every rank.
    ``seed`` determines the order and the augmentation. Every epoch has another order and augmentation. The loader
    counts its epochs, so the program need not call ``set_epoch`` (see ``distributed.epochs``). A loader for evaluation
    reads the dataset in order, and exactly one rank reads each sample. Neither kind of loader uses a global random
    generator.

    Args:
        dataset: map-style dataset.
        batch_size: number of samples in a batch of each rank.
        is_training: whether the loader is for training. False means evaluation.
        num_workers: largest number of worker processes of this rank. For samples in memory, the loader starts no
            workers. For other samples, the loader starts at most as many workers as this rank has CPUs, minus one CPU
            for the training.
        world_size: number of ranks; None: the number that ``torch.distributed`` or torchrun reports.
        rank: rank of this process; None: the rank that ``torch.distributed`` or torchrun reports.
        seed: seed of order and augmentation.

    Raises:
        TypeError: the dataset is an ``IterableDataset``.
        ValueError: ``world_size`` is negative. If ``world_size`` is above 1 and differs from the number that
            ``torch.distributed`` or torchrun reports, a ``rank`` that is missing or out of range also raises this
            error.
    """
    create = create_training_loader if is_training else create_validation_loader
    workers = min(num_workers, cpus_for_loading())
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
    """Return the recommended number of worker processes for each loader of this rank.

    The number is 4 for each CUDA device of this rank, but at most the number of CPUs of this rank. Each rank has an
    equal share of the machine's CUDA devices, and at least one. If the machine has fewer CPUs than ranks, or the device
    is the CPU, the number is 0.

    Samples in memory load faster without workers, but this function does not consider the dataset.
    ``OptimalDataLoaderFactory`` also considers the dataset.

    Args:
        device_type: type of the device of the training, such as ``"cuda"`` or ``"cpu"``.
    """
    if device_type == "cpu":
        return 0
    ranks = ranks_on_this_machine()
    devices = max(torch.cuda.device_count() // ranks, 1)
    return min(_WORKERS_A_DEVICE * devices, usable_cpus() // ranks)
