"""Loaders and datasets of this backend, from the chirpid_patch package.

    from utils.dataloader_factory import OptimalDataLoaderFactory
    loader = OptimalDataLoaderFactory.create_training_loader(dataset, batch_size=32)

The factory chooses how to load, depending on the dataset, the device and the CPUs that this process may use. Every
argument of DataLoader can be passed to override its choice. `help(OptimalDataLoaderFactory)` lists the arguments.
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
