"""Fast, worker-safe data loading for PyTorch training: the runtime that migrated backends import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chirpid_patch.datasets.arrays import WorkerSafeArrayDataset
from chirpid_patch.datasets.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.datasets.collate import collate_pairs
from chirpid_patch.datasets.declared import augments, augments_images, lists, standardizes
from chirpid_patch.datasets.gather import fetch_batch
from chirpid_patch.datasets.labels import read_labels
from chirpid_patch.datasets.stacking import stack_samples, standardized_samples
from chirpid_patch.datasets.standardized import WorkerSafeSequenceDataset, WorkerSafeStandardizedDataset
from chirpid_patch.datasets.statistics import compute_standardization_stats, streaming_standardization_stats
from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.machine.cpus import usable_cpus
from chirpid_patch.monitor import DataLoaderPerformanceMonitor
from chirpid_patch.randomness.keyed_random import RandomKey
from chirpid_patch.randomness.seeding import worker_init_fn
from chirpid_patch.transforms.composition import Compose, Lambda
from chirpid_patch.transforms.declared import adds_noise, masks, masks_images
from chirpid_patch.transforms.transforms import GaussianNoise, SpecAugment, Standardize

if TYPE_CHECKING:
    from chirpid_patch.device.precision import autocast_for, grad_scaler_for, setup_mixed_precision
    from chirpid_patch.device.prefetch import DevicePrefetcher, move_batch
    from chirpid_patch.device.resident import ResidentDataLoader
    from chirpid_patch.device.resident_tensors import NotResidentError
    from chirpid_patch.distributed.gather import gather_predictions, sum_metrics
    from chirpid_patch.distributed.loader import DistributedDataLoader
    from chirpid_patch.hooks.lightning import lightning_callback
    from chirpid_patch.hooks.profiling import DataLoaderProfilingHook
    from chirpid_patch.hooks.trainer import HookManager, TrainerHooks
    from chirpid_patch.machine.nvml import gpu_status
    from chirpid_patch.machine.usable_memory import usable_memory
    from chirpid_patch.memory.batch_size import calculate_optimal_batch_size, largest_batch_size
    from chirpid_patch.memory.dynamic_batch import DynamicBatchStep
    from chirpid_patch.memory.watch import MemoryAlert, MemoryPressure, MemoryWatch
    from chirpid_patch.multi.multi_loader import LoaderBatch, MultiDataLoader, MultiDataLoaderConfig, SamplingStrategy
    from chirpid_patch.multi.worker_budget import create_multi_dataloaders, share_workers
    from chirpid_patch.recipes.image_folder import ImageFolderDataset
    from chirpid_patch.recipes.optimized_loader import create_optimized_dataloader, get_optimal_num_workers
    from chirpid_patch.recipes.reproducible import (
        ensure_deterministic_dataloader,
        seed_worker,
        set_reproducible_training,
    )
    from chirpid_patch.recipes.split_loaders import create_dataloaders
    from chirpid_patch.recipes.wrapped_loader import WrappedDataLoader
    from chirpid_patch.scales.dataset import MultiScaleDataset
    from chirpid_patch.scales.ensemble import ensemble_batches, ensemble_inference
    from chirpid_patch.scales.scaling import each_scale, scale_images
    from chirpid_patch.scales.step import MultiScaleStep
    from chirpid_patch.transforms.symmetries import FlipsAndTurns
    from chirpid_patch.tune.adjusting import AdjustingDataLoader
    from chirpid_patch.tune.advice import handle_oom_errors
    from chirpid_patch.tune.diagnosis import diagnose_dataloader_speed

__version__ = "0.1.0"

#: Names whose module is imported when they are first asked for: most trainings need few of them.
_LATER = {
    "AdjustingDataLoader": "tune.adjusting",
    "handle_oom_errors": "tune.advice",
    "calculate_optimal_batch_size": "memory.batch_size",
    "largest_batch_size": "memory.batch_size",
    "DevicePrefetcher": "device.prefetch",
    "move_batch": "device.prefetch",
    "diagnose_dataloader_speed": "tune.diagnosis",
    "create_optimized_dataloader": "recipes.optimized_loader",
    "get_optimal_num_workers": "recipes.optimized_loader",
    "gather_predictions": "distributed.gather",
    "sum_metrics": "distributed.gather",
    "DistributedDataLoader": "distributed.loader",
    "DynamicBatchStep": "memory.dynamic_batch",
    "ensemble_batches": "scales.ensemble",
    "ensemble_inference": "scales.ensemble",
    "HookManager": "hooks.trainer",
    "TrainerHooks": "hooks.trainer",
    "ImageFolderDataset": "recipes.image_folder",
    "lightning_callback": "hooks.lightning",
    "usable_memory": "machine.usable_memory",
    "gpu_status": "machine.nvml",
    "ResidentDataLoader": "device.resident",
    "NotResidentError": "device.resident_tensors",
    "MemoryAlert": "memory.watch",
    "MemoryPressure": "memory.watch",
    "MemoryWatch": "memory.watch",
    "LoaderBatch": "multi.multi_loader",
    "MultiDataLoader": "multi.multi_loader",
    "MultiDataLoaderConfig": "multi.multi_loader",
    "SamplingStrategy": "multi.multi_loader",
    "MultiScaleDataset": "scales.dataset",
    "MultiScaleStep": "scales.step",
    "autocast_for": "device.precision",
    "grad_scaler_for": "device.precision",
    "setup_mixed_precision": "device.precision",
    "DataLoaderProfilingHook": "hooks.profiling",
    "ensure_deterministic_dataloader": "recipes.reproducible",
    "seed_worker": "recipes.reproducible",
    "set_reproducible_training": "recipes.reproducible",
    "each_scale": "scales.scaling",
    "scale_images": "scales.scaling",
    "create_dataloaders": "recipes.split_loaders",
    "FlipsAndTurns": "transforms.symmetries",
    "create_multi_dataloaders": "multi.worker_budget",
    "share_workers": "multi.worker_budget",
    "WrappedDataLoader": "recipes.wrapped_loader",
}

__all__ = [
    "AdjustingDataLoader",
    "BatchedDataLoader",
    "Compose",
    "DataLoaderPerformanceMonitor",
    "DataLoaderProfilingHook",
    "DevicePrefetcher",
    "DistributedDataLoader",
    "DynamicBatchStep",
    "FlipsAndTurns",
    "GaussianNoise",
    "HookManager",
    "ImageFolderDataset",
    "Lambda",
    "LoaderBatch",
    "MemoryAlert",
    "MemoryPressure",
    "MemoryWatch",
    "MultiDataLoader",
    "MultiDataLoaderConfig",
    "MultiScaleDataset",
    "MultiScaleStep",
    "NotResidentError",
    "OptimalDataLoaderFactory",
    "RandomKey",
    "ResidentDataLoader",
    "SamplingStrategy",
    "SpecAugment",
    "Standardize",
    "TrainerHooks",
    "WorkerSafeArrayDataset",
    "WorkerSafeAugmentedDataset",
    "WorkerSafeSequenceDataset",
    "WorkerSafeStandardizedDataset",
    "WrappedDataLoader",
    "__version__",
    "adds_noise",
    "augments",
    "augments_images",
    "autocast_for",
    "calculate_optimal_batch_size",
    "collate_pairs",
    "compute_standardization_stats",
    "create_dataloaders",
    "create_multi_dataloaders",
    "create_optimized_dataloader",
    "diagnose_dataloader_speed",
    "each_scale",
    "ensemble_batches",
    "ensemble_inference",
    "ensure_deterministic_dataloader",
    "fetch_batch",
    "gather_predictions",
    "get_optimal_num_workers",
    "gpu_status",
    "grad_scaler_for",
    "handle_oom_errors",
    "largest_batch_size",
    "lightning_callback",
    "lists",
    "masks",
    "masks_images",
    "move_batch",
    "read_labels",
    "scale_images",
    "seed_worker",
    "set_reproducible_training",
    "setup_mixed_precision",
    "share_workers",
    "stack_samples",
    "standardized_samples",
    "standardizes",
    "streaming_standardization_stats",
    "sum_metrics",
    "usable_cpus",
    "usable_memory",
    "worker_init_fn",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
