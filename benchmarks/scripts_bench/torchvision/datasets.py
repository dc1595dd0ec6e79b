"""Random digits in the form of torchvision's MNIST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

__all__ = ["MNIST"]

_TRAINING, _TEST = 1500, 300


class MNIST(Dataset[Any]):
    """Replacement of ``torchvision.datasets.MNIST`` with fewer samples and no download."""

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        generator = np.random.default_rng(int(train))
        count = _TRAINING if train else _TEST
        self.data = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        self.targets = generator.integers(0, 10, count)
        self.transform, self.target_transform = transform, target_transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image: Any = Image.fromarray(self.data[index])
        target: Any = int(self.targets[index])
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target
