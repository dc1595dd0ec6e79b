"""Masks in 8-bit images of spectrograms, for a whole batch, with the same values as code that builds such images."""

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
    """Put ``masks`` into images of samples (1, F, T), which become float32 again, divided by ``divisor``.

    The image of a sample is ``((x - min) / (max - min + eps) * 255)``, truncated to integers, whether it is masked or
    not. Samples whose values are all equal, or not all finite, raise an error.
    """

    def __init__(self, masks: SpecAugment, eps: float = 0.0, divisor: float = 1.0) -> None:
        super().__init__()
        self.masks = masks
        self.p = masks.p
        self.eps = eps
        self.divisor = divisor

    def takes(self, dtype: torch.dtype, shape: Sequence[int]) -> bool:
        """Return whether samples are float32 with one channel, and ``squeeze`` would remove only the first axis."""
        return dtype is torch.float32 and len(shape) == 3 and shape[0] == 1 and min(shape[1:]) > 1

    def check(self, samples: Tensor) -> None:
        self._minimum_and_range(samples)

    def _minimum_and_range(self, samples: Tensor) -> tuple[Floats, Floats]:
        """Return the least value and the divisor of each sample, both of shape (B, 1, 1, 1)."""
        if not self.takes(samples.dtype, samples.shape[1:]):
            raise ValueError(f"images need float32 samples (1, F, T), not {samples.dtype} {samples.shape[1:]}")
        values: Floats = samples.numpy()
        low, high = (end(values, axis=(1, 2, 3), keepdims=True) for end in (np.min, np.max))
        with np.errstate(over="ignore", invalid="ignore"):
            spans = high - low
        if not np.isfinite(spans).all() or not spans.all():
            raise ValueError("images need samples with finite values that differ")
        if self.eps:  # with numbers instead of an array: NumPy before 2.0 adds arrays in another precision
            spans = np.array([span + self.eps for span in spans.ravel()], dtype=np.float32).reshape(spans.shape)
        return low, spans

    def transform_rows_(self, batch: Tensor, keys: Keys, rows: Sequence[int]) -> None:
        for row in rows:
            batch[row] = self.transform_batch(batch[row : row + 1], keys[row : row + 1])[0]

    def transform_sample(self, sample: Tensor, keys: Keys) -> Tensor:
        """Transform one sample with its key (1,); the result is the value after the image even if no mask applies."""
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
