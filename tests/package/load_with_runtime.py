"""Run where nothing but PyTorch and NumPy is installed: every public name, and two epochs of augmented batches.

Prints as JSON whether the C module is there, and a hash of the batches.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys

import torch
from torch.utils.data import TensorDataset

import chirpid_patch
from chirpid_patch import (
    DataLoaderPerformanceMonitor,
    OptimalDataLoaderFactory,
    WorkerSafeAugmentedDataset,
    WorkerSafeStandardizedDataset,
    native,
)

PARAMETERS = {"spec_augment_params": {"p": 1.0}, "gaussian_noise_params": {"p": 1.0}}


def main() -> None:
    """Load, and say what came."""
    for absent in ("libcst", "click", "psutil", "pynvml", "xxhash"):
        assert importlib.util.find_spec(absent) is None, f"{absent} is here"
    for name in chirpid_patch.__all__:
        getattr(chirpid_patch, name)
    assert "chirp_migrate" not in sys.modules
    torch.manual_seed(3)
    data = TensorDataset(torch.rand(64, 1, 24, 32), torch.arange(64) % 4)
    samples = WorkerSafeStandardizedDataset(data, list(range(64)), 0.5, 0.25)
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
    print(json.dumps({"native": native.is_available(), "batches": digest.hexdigest()}))


if __name__ == "__main__":
    main()
