"""Loaders and datasets of this backend, from the chirpid_patch package.

    from utils.dataloader_factory import OptimalDataLoaderFactory
    loader = OptimalDataLoaderFactory.create_training_loader(dataset, batch_size=32)

The factory chooses how to load from the dataset, the CPUs this process may use and the device; every DataLoader
argument can be given instead. `help(OptimalDataLoaderFactory)` lists them.
"""

from chirpid_patch import (
    GaussianNoise,
    OptimalDataLoaderFactory,
    SpecAugment,
    WorkerSafeAugmentedDataset,
    WorkerSafeSequenceDataset,
    WorkerSafeStandardizedDataset,
    worker_init_fn,
)

__all__ = [
    "GaussianNoise",
    "OptimalDataLoaderFactory",
    "SpecAugment",
    "WorkerSafeAugmentedDataset",
    "WorkerSafeSequenceDataset",
    "WorkerSafeStandardizedDataset",
    "worker_init_fn",
]
