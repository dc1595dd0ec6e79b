"""The transforms that scripts on MNIST use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

__all__ = ["Compose", "Normalize", "ToTensor"]


class Compose:
    """Applies one transform after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, value: Any) -> Any:
        for transform in self.transforms:
            value = transform(value)
        return value


class ToTensor:
    """Converts a grey-scale image (H, W) to float32 (1, H, W) in [0, 1]."""

    def __call__(self, image: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(image)).unsqueeze(0).float().div(255)


class Normalize:
    """Subtracts the mean of one channel, and divides by its standard deviation."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = mean[0], std[0]

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        return (tensor - self.mean) / self.std
