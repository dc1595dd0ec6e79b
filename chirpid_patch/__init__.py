"""Fast, worker-safe data loading for PyTorch training: the runtime that migrated backends import."""

from __future__ import annotations

from chirpid_patch.arrays import WorkerSafeArrayDataset
from chirpid_patch.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.collate import collate_pairs
from chirpid_patch.cpus import usable_cpus
from chirpid_patch.datasets import WorkerSafeSequenceDataset, WorkerSafeStandardizedDataset
from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.fetch import fetch_batch
from chirpid_patch.keyed_random import RandomKey
from chirpid_patch.labels import read_labels
from chirpid_patch.loader import BatchedDataLoader
from chirpid_patch.monitor import DataLoaderPerformanceMonitor
from chirpid_patch.seeding import worker_init_fn
from chirpid_patch.statistics import compute_standardization_stats, streaming_standardization_stats
from chirpid_patch.transforms import GaussianNoise, SpecAugment, Standardize

__version__ = "0.1.0"

__all__ = [
    "BatchedDataLoader",
    "DataLoaderPerformanceMonitor",
    "GaussianNoise",
    "OptimalDataLoaderFactory",
    "RandomKey",
    "SpecAugment",
    "Standardize",
    "WorkerSafeArrayDataset",
    "WorkerSafeAugmentedDataset",
    "WorkerSafeSequenceDataset",
    "WorkerSafeStandardizedDataset",
    "__version__",
    "collate_pairs",
    "compute_standardization_stats",
    "fetch_batch",
    "read_labels",
    "streaming_standardization_stats",
    "usable_cpus",
    "worker_init_fn",
]
