"""Run where only PyTorch and NumPy are installed: datasets, the factory, the monitor and tuning, by augmented batches.

Prints as JSON whether the C module is there, and a hash of the batches.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset

import chirpid_patch
from chirpid_patch import (
    DataLoaderPerformanceMonitor,
    OptimalDataLoaderFactory,
    WorkerSafeArrayDataset,
    WorkerSafeAugmentedDataset,
    WorkerSafeStandardizedDataset,
    compute_standardization_stats,
    native,
)

PARAMETERS = {"spec_augment_params": {"p": 1.0}, "gaussian_noise_params": {"p": 1.0}}
#: The tool, what the tool requires, and what the extras of the runtime install.
ABSENT = ("chirp_migrate", "libcst", "click", "rich", "scipy", "tomlkit", "xxhash", "psutil", "pynvml", "cloudpickle")


def main() -> None:
    """Load, measure and tune."""
    present = [name for name in ABSENT if importlib.util.find_spec(name) is not None]
    assert not present, f"{present} can be imported"
    for name in chirpid_patch.__all__:
        getattr(chirpid_patch, name)
    torch.manual_seed(3)
    data = TensorDataset(torch.rand(64, 1, 24, 32), torch.arange(64) % 4)
    mean, deviation = compute_standardization_stats(data, list(range(64)))
    samples = WorkerSafeStandardizedDataset(data, list(range(64)), mean, deviation)
    digest = hashlib.sha256()
    for workers in (0, 2):
        torch.manual_seed(5)
        loader = OptimalDataLoaderFactory.create_training_loader(
            WorkerSafeAugmentedDataset(samples, PARAMETERS), batch_size=16, num_workers=workers
        )
        for _ in range(2):
            for features, labels in loader:
                digest.update(features.numpy().tobytes() + labels.numpy().tobytes())
    figures = DataLoaderPerformanceMonitor().time_batch_loading(loader, num_batches=2)
    assert figures["num_batches"] == 2
    print(json.dumps({"native": native.is_available(), "batches": digest.hexdigest(), "tuned": tuned()}))


def tuned() -> int:
    """Batches of a loader that was chosen by measuring."""
    arrays = WorkerSafeArrayDataset(np.ones((64, 8), np.float32), np.arange(64))
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "profile.json")
        loader = OptimalDataLoaderFactory.create_training_loader(arrays, batch_size=16, tune=profile, tune_seconds=0.5)
        assert profile.is_file()
        return len(list(loader))


if __name__ == "__main__":
    main()
