"""The original code of the training: datasets, networks and the training loop of the backend before its migration."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

_TREE = Path(__file__).resolve().parents[2] / "fixtures" / "backend"
CLASSES = 4
SMALL, MEDIUM = "small", "medium"


@dataclass(frozen=True)
class Backend:
    """The modules of the backend before its migration."""

    datasets: ModuleType
    augmentation: ModuleType
    models: ModuleType
    synthetic: ModuleType
    training: ModuleType

    @classmethod
    def unmigrated(cls) -> Backend:
        """Import the modules of `fixtures/backend`, and return them."""
        sys.path.insert(0, str(_TREE))
        names = ("dataset_utils", "specaugment", "models", "synthetic", "training_utils")
        return cls(*(importlib.import_module(f"utils.{name}") for name in names))

    def train_epoch(self, model: nn.Module, batches: Iterable[Any], optimizer: Any, device: torch.device) -> float:
        """Train one epoch with the backend's own loop, with `.to(device)` and `.item()`; return the mean loss."""
        loss, _ = self.training.train_epoch(model, batches, nn.CrossEntropyLoss(), optimizer, device)
        return float(loss)

    def make_network(self, size: str) -> nn.Module:
        """Return a network for spectrograms of shape (B, 1, F, T).

        The small network is the fixture backend's own, whose strides skip most of the image so that a CPU can train it.
        The medium network has four blocks at full resolution; a GPU needs a few milliseconds for a batch.
        """
        if size == SMALL:
            network: nn.Module = self.models.BirdCNN(CLASSES)
            return network
        blocks: list[nn.Module] = []
        for inputs, outputs in ((1, 16), (16, 32), (32, 64), (64, 128)):
            convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)
            blocks += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, CLASSES))


class Data:
    """Spectrograms in memory, their statistics, and the parameters of the augmentation.

    Attributes:
        base: TensorDataset of float32 spectrograms in 0…1 and int64 labels.
        mean, std: mean and standard deviation as the backend computes them.
        augmentation: the backend's parameters of SpecAugment and noise for this number of samples.
    """

    def __init__(self, backend: Backend, samples: int, shape: tuple[int, int, int]) -> None:
        self.backend = backend
        self.samples = samples
        self.base, _ = backend.synthetic.make_synthetic_dataset(samples, CLASSES, shape=shape)
        np.random.seed(0)  # NumPy chooses the 1,000 samples of the statistics
        self.mean, self.std = backend.datasets.compute_standardization_stats(self.base, self.indices)
        self.augmentation = backend.augmentation.get_augmentation_params(samples, CLASSES)

    @property
    def indices(self) -> list[int]:
        """Return the indices of all samples."""
        return list(range(self.samples))

    def original(self, *, augmented: bool) -> Any:
        """Return the dataset of the original code, which reads samples one by one."""
        datasets = self.backend.datasets
        subset = datasets.create_standardized_subset(self.base, self.indices, self.mean, self.std)
        return datasets.create_augmented_dataset_wrapper(
            subset,
            use_spec_augment=augmented,
            use_gaussian_noise=augmented,
            augment_params=self.augmentation,
            training=augmented,
        )
