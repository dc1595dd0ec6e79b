"""A transform for whole batches, which converts spectrograms to 8-bit images and masks the images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chirpid_patch.randomness.keyed_random import Keys
from chirpid_patch.transforms.spectrograms import BatchTransform, SpecAugment

Floats = npt.NDArray[np.float32]


class ImageMasks(BatchTransform):
    """Convert samples (1, F, T) to 8-bit images, mask the images, and convert the masked images back to float32.

    The image of a sample is ``(x - min) / (max - min + eps) * 255``, truncated to integers. Samples that are not masked
    are also converted to images and back. If the values of a sample are all equal, or not all finite, the transform
    raises an error.

    Args:
        masks: the ``SpecAugment`` that masks the images.
        eps: number that is added to ``max - min``.
        divisor: number by which the values of the image are divided at the end.
    """

    def __init__(self, masks: SpecAugment, eps: float = 0.0, divisor: float = 1.0) -> None:
        super().__init__()
        self.masks = masks
        self.p = masks.p
        self.eps = eps
        self.divisor = divisor

    def supports(self, dtype: torch.dtype, shape: Sequence[int]) -> bool:
        """Return whether ``dtype`` is float32 and ``shape`` is (1, F, T), with F and T above 1."""
        return dtype is torch.float32 and len(shape) == 3 and shape[0] == 1 and min(shape[1:]) > 1

    def check(self, samples: Tensor) -> None:
        self._minimum_and_range(samples)

    def _minimum_and_range(self, samples: Tensor) -> tuple[Floats, Floats]:
        """Return ``min`` and ``max - min + eps`` of each sample, both of shape (B, 1, 1, 1)."""
        if not self.supports(samples.dtype, samples.shape[1:]):
            raise ValueError(f"ImageMasks needs float32 samples (1, F, T), not {samples.dtype} {samples.shape[1:]}")
        values: Floats = samples.numpy()
        low, high = (end(values, axis=(1, 2, 3), keepdims=True) for end in (np.min, np.max))
        with np.errstate(over="ignore", invalid="ignore"):
            spans = high - low
        if not np.isfinite(spans).all() or not spans.all():
            raise ValueError("ImageMasks needs samples whose values are finite and not all equal")
        if self.eps:  # one number at a time, because NumPy before 2.0 adds arrays in another precision
            spans = np.array([span + self.eps for span in spans.ravel()], dtype=np.float32).reshape(spans.shape)
        return low, spans

    def transform_rows_(self, batch: Tensor, keys: Keys, rows: Sequence[int]) -> None:
        for row in rows:
            batch[row] = self.transform_batch(batch[row : row + 1], keys[row : row + 1])[0]

    def transform_sample(self, sample: Tensor, keys: Keys) -> Tensor:
        """Return the transformed sample; ``keys`` is the key of the sample, of shape (1,)."""
        return self.transform_batch(sample.unsqueeze(0), keys)[0]

    def transform_batch(self, batch: Tensor, keys: Keys) -> Tensor:
        low, spans = self._minimum_and_range(batch)
        values: Any = batch.numpy() - low
        values /= spans
        values *= np.float32(255)
        images = torch.from_numpy(values.astype(np.uint8))
        self.masks.transform_batch_(images, keys)
        floats = images.to(torch.float32)
        return floats if self.divisor == 1.0 else floats.div_(self.divisor)
