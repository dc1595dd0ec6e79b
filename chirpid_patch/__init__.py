"""Fast data loading for PyTorch training, with datasets that can be pickled for worker processes.

Code that ``chirp-migrate apply`` has rewritten imports this package. This module exports the names that most training
code needs. All other names are in the sub-packages.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chirpid_patch.datasets.arrays import WorkerSafeArrayDataset
from chirpid_patch.datasets.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.datasets.collate import collate_pairs
from chirpid_patch.datasets.declared import augments_images, augments_samples, lists_samples, standardizes_samples
from chirpid_patch.datasets.labels import iterate_labels, read_labels
from chirpid_patch.datasets.sequence import WorkerSafeSequenceDataset
from chirpid_patch.datasets.stacking import stack_samples, standardized_samples
from chirpid_patch.datasets.standardized import WorkerSafeStandardizedDataset
from chirpid_patch.datasets.statistics import compute_standardization_stats, streaming_standardization_stats
from chirpid_patch.factory import (
    OptimalDataLoaderFactory,
    create_loader,
    create_test_loader,
    create_training_loader,
    create_validation_loader,
)
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.machine.cpus import usable_cpus
from chirpid_patch.monitor import DataLoaderPerformanceMonitor
from chirpid_patch.randomness.seeding import worker_init_fn
from chirpid_patch.transforms.composition import Compose, Lambda
from chirpid_patch.transforms.declared import (
    adds_noise,
    applies_transform,
    composes_transforms,
    masks_images,
    masks_spectrograms,
)
from chirpid_patch.transforms.spectrograms import GaussianNoise, SpecAugment, Standardize

if TYPE_CHECKING:
    from chirpid_patch.device.move_ahead import DevicePrefetcher
    from chirpid_patch.device.precision import setup_mixed_precision
    from chirpid_patch.hooks.profiling import DataLoaderProfilingHook
    from chirpid_patch.loader_speed.advice import handle_oom_errors
    from chirpid_patch.loader_speed.diagnosis import diagnose_dataloader_speed
    from chirpid_patch.memory.batch_size import calculate_optimal_batch_size
    from chirpid_patch.memory.freed import keep_freed_memory
    from chirpid_patch.multi.multi_loader import MultiDataLoader, MultiDataLoaderConfig, SamplingStrategy
    from chirpid_patch.multi.worker_budget import create_multi_dataloaders
    from chirpid_patch.recipes.optimized_loader import create_optimized_dataloader
    from chirpid_patch.recipes.reproducible import ensure_deterministic_dataloader, set_reproducible_training
    from chirpid_patch.recipes.split_loaders import create_dataloaders
    from chirpid_patch.recipes.wrapped_loader import WrappedDataLoader
    from chirpid_patch.scales.dataset import MultiScaleDataset

__version__ = "0.1.0"

#: Maps names to their modules. Each module is imported at the first use of its name, because most training code uses
#: few of these names.
_LAZY_MODULES = {
    "DataLoaderProfilingHook": "hooks.profiling",
    "DevicePrefetcher": "device.move_ahead",
    "MultiDataLoader": "multi.multi_loader",
    "MultiDataLoaderConfig": "multi.multi_loader",
    "MultiScaleDataset": "scales.dataset",
    "SamplingStrategy": "multi.multi_loader",
    "WrappedDataLoader": "recipes.wrapped_loader",
    "calculate_optimal_batch_size": "memory.batch_size",
    "create_dataloaders": "recipes.split_loaders",
    "create_multi_dataloaders": "multi.worker_budget",
    "create_optimized_dataloader": "recipes.optimized_loader",
    "diagnose_dataloader_speed": "loader_speed.diagnosis",
    "ensure_deterministic_dataloader": "recipes.reproducible",
    "handle_oom_errors": "loader_speed.advice",
    "keep_freed_memory": "memory.freed",
    "set_reproducible_training": "recipes.reproducible",
    "setup_mixed_precision": "device.precision",
}

__all__ = [
    "BatchedDataLoader",
    "Compose",
    "DataLoaderPerformanceMonitor",
    "DataLoaderProfilingHook",
    "DevicePrefetcher",
    "GaussianNoise",
    "Lambda",
    "MultiDataLoader",
    "MultiDataLoaderConfig",
    "MultiScaleDataset",
    "OptimalDataLoaderFactory",
    "SamplingStrategy",
    "SpecAugment",
    "Standardize",
    "WorkerSafeArrayDataset",
    "WorkerSafeAugmentedDataset",
    "WorkerSafeSequenceDataset",
    "WorkerSafeStandardizedDataset",
    "WrappedDataLoader",
    "__version__",
    "adds_noise",
    "applies_transform",
    "augments_images",
    "augments_samples",
    "calculate_optimal_batch_size",
    "collate_pairs",
    "composes_transforms",
    "compute_standardization_stats",
    "create_dataloaders",
    "create_loader",
    "create_multi_dataloaders",
    "create_optimized_dataloader",
    "create_test_loader",
    "create_training_loader",
    "create_validation_loader",
    "diagnose_dataloader_speed",
    "ensure_deterministic_dataloader",
    "handle_oom_errors",
    "iterate_labels",
    "keep_freed_memory",
    "lists_samples",
    "masks_images",
    "masks_spectrograms",
    "read_labels",
    "set_reproducible_training",
    "setup_mixed_precision",
    "stack_samples",
    "standardized_samples",
    "standardizes_samples",
    "streaming_standardization_stats",
    "usable_cpus",
    "worker_init_fn",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LAZY_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_MODULES})
