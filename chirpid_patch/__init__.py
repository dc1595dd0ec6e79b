"""Fast, worker-safe data loading for PyTorch training: the runtime that migrated backends import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from chirpid_patch.adjusting import AdjustingDataLoader
    from chirpid_patch.advice import handle_oom_errors
    from chirpid_patch.batch_size import calculate_optimal_batch_size, largest_batch_size
    from chirpid_patch.device_prefetch import DevicePrefetcher, move_batch
    from chirpid_patch.diagnosis import diagnose_dataloader_speed
    from chirpid_patch.distributed import create_optimized_dataloader, get_optimal_num_workers
    from chirpid_patch.distributed_gather import gather_predictions, sum_metrics
    from chirpid_patch.distributed_loader import DistributedDataLoader
    from chirpid_patch.dynamic_batch import DynamicBatchStep
    from chirpid_patch.ensemble import ensemble_batches, ensemble_inference
    from chirpid_patch.hooks import HookManager, TrainerHooks
    from chirpid_patch.image_folder import ImageFolderDataset
    from chirpid_patch.lightning_hooks import lightning_callback
    from chirpid_patch.memory_limit import usable_memory
    from chirpid_patch.memory_watch import MemoryAlert, MemoryPressure, MemoryWatch
    from chirpid_patch.multi_loader import LoaderBatch, MultiDataLoader, MultiDataLoaderConfig, SamplingStrategy
    from chirpid_patch.multi_scale import MultiScaleDataset
    from chirpid_patch.multi_scale_step import MultiScaleStep
    from chirpid_patch.precision import autocast_for, grad_scaler_for, setup_mixed_precision
    from chirpid_patch.profiling_hook import DataLoaderProfilingHook
    from chirpid_patch.reproducible import ensure_deterministic_dataloader, seed_worker, set_reproducible_training
    from chirpid_patch.scaling import each_scale, scale_images
    from chirpid_patch.split_loaders import create_dataloaders
    from chirpid_patch.symmetries import FlipsAndTurns
    from chirpid_patch.worker_budget import create_multi_dataloaders, share_workers
    from chirpid_patch.wrapped_loader import WrappedDataLoader

__version__ = "0.1.0"

#: Names whose module is imported when they are first asked for: most trainings need few of them.
_LATER = {
    "AdjustingDataLoader": "adjusting",
    "handle_oom_errors": "advice",
    "calculate_optimal_batch_size": "batch_size",
    "largest_batch_size": "batch_size",
    "DevicePrefetcher": "device_prefetch",
    "move_batch": "device_prefetch",
    "diagnose_dataloader_speed": "diagnosis",
    "create_optimized_dataloader": "distributed",
    "get_optimal_num_workers": "distributed",
    "gather_predictions": "distributed_gather",
    "sum_metrics": "distributed_gather",
    "DistributedDataLoader": "distributed_loader",
    "DynamicBatchStep": "dynamic_batch",
    "ensemble_batches": "ensemble",
    "ensemble_inference": "ensemble",
    "HookManager": "hooks",
    "TrainerHooks": "hooks",
    "ImageFolderDataset": "image_folder",
    "lightning_callback": "lightning_hooks",
    "usable_memory": "memory_limit",
    "MemoryAlert": "memory_watch",
    "MemoryPressure": "memory_watch",
    "MemoryWatch": "memory_watch",
    "LoaderBatch": "multi_loader",
    "MultiDataLoader": "multi_loader",
    "MultiDataLoaderConfig": "multi_loader",
    "SamplingStrategy": "multi_loader",
    "MultiScaleDataset": "multi_scale",
    "MultiScaleStep": "multi_scale_step",
    "autocast_for": "precision",
    "grad_scaler_for": "precision",
    "setup_mixed_precision": "precision",
    "DataLoaderProfilingHook": "profiling_hook",
    "ensure_deterministic_dataloader": "reproducible",
    "seed_worker": "reproducible",
    "set_reproducible_training": "reproducible",
    "each_scale": "scaling",
    "scale_images": "scaling",
    "create_dataloaders": "split_loaders",
    "FlipsAndTurns": "symmetries",
    "create_multi_dataloaders": "worker_budget",
    "share_workers": "worker_budget",
    "WrappedDataLoader": "wrapped_loader",
}

__all__ = [
    "AdjustingDataLoader",
    "BatchedDataLoader",
    "DataLoaderPerformanceMonitor",
    "DataLoaderProfilingHook",
    "DevicePrefetcher",
    "DistributedDataLoader",
    "DynamicBatchStep",
    "FlipsAndTurns",
    "GaussianNoise",
    "HookManager",
    "ImageFolderDataset",
    "LoaderBatch",
    "MemoryAlert",
    "MemoryPressure",
    "MemoryWatch",
    "MultiDataLoader",
    "MultiDataLoaderConfig",
    "MultiScaleDataset",
    "MultiScaleStep",
    "OptimalDataLoaderFactory",
    "RandomKey",
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
    "grad_scaler_for",
    "handle_oom_errors",
    "largest_batch_size",
    "lightning_callback",
    "move_batch",
    "read_labels",
    "scale_images",
    "seed_worker",
    "set_reproducible_training",
    "setup_mixed_precision",
    "share_workers",
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
