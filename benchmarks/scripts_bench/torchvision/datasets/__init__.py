"""Datasets of torchvision with random samples, so that no data is downloaded.

The environment variable ``MADE_UP_SAMPLES`` is the number of training samples. The test data has a fifth of this
number.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pkgutil import extend_path
from typing import Any

import numpy as np
import torch

__path__ = extend_path(__path__, __name__)

from torchvision.datasets import cifar, mnist
from torchvision.datasets.fakedata import FakeData
from torchvision.datasets.vision import VisionDataset

__all__ = ["CIFAR10", "MNIST", "FakeData"]


def _made_up(train: bool, *shape: int) -> tuple[Any, Any]:
    """Return random images of a shape, and the class of each image."""
    generator = np.random.default_rng(int(train))
    count = int(os.environ["MADE_UP_SAMPLES"]) // (1 if train else 5)
    return generator.integers(0, 256, (count, *shape), dtype=np.uint8), generator.integers(0, 10, count)


class MNIST(mnist.MNIST):
    """Replace ``torchvision.datasets.MNIST``."""

    def _check_exists(self) -> bool:
        return True

    def _load_data(self) -> tuple[Any, Any]:
        images, classes = _made_up(self.train, 28, 28)
        return torch.from_numpy(images), torch.from_numpy(classes)


class CIFAR10(cifar.CIFAR10):
    """Replace ``torchvision.datasets.CIFAR10``."""

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        VisionDataset.__init__(self, root, transform=transform, target_transform=target_transform)
        self.train = train
        self.data, classes = _made_up(train, 32, 32, 3)
        self.targets = classes.tolist()
