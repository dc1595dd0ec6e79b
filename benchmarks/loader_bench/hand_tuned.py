"""Hand-tuned code for the same work: whole batches, one pass over the values, no workers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from .per_sample import Masks, Noise


class HandTuned(Dataset[Any]):
    """Batches that are computed in place: no temporary tensors, and one call for a whole batch.

    ``pool`` contains noise that was generated before, and batches use random parts of it. None generates new noise.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        mean: float,
        std: float,
        masks: Masks | None,
        noise: Noise | None,
        pool: Tensor | None = None,
    ) -> None:
        self.images = images
        self.labels = labels
        scale = 255 if images.dtype is torch.uint8 else 1
        self.factor = 1 / (scale * (std + 1e-8))
        self.offset = mean / (std + 1e-8)
        self.masks = masks
        self.noise = noise
        self.pool = pool

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        x = torch.empty((len(indices), *self.images.shape[1:]))
        for sample, index in zip(x, indices, strict=True):
            # Copying and standardising in one pass is faster than two passes.
            torch.mul(self.images[index], self.factor, out=sample).sub_(self.offset)
            if self.masks is not None:
                self._mask_(sample, self.masks)
            if self.noise is not None:
                self._disturb_(sample, self.noise)
        return x, self.labels[torch.tensor(indices)]

    def _mask_(self, sample: Tensor, masks: Masks) -> None:
        if random.random() > masks.p:
            return
        n_freq, n_time = sample.shape[-2:]
        width, height = random.randint(0, masks.widest_time), random.randint(0, masks.widest_freq)
        left, top = random.randint(0, n_time - width), random.randint(0, n_freq - height)
        sample[..., left : left + width] = 0.0
        sample[..., top : top + height, :] = 0.0

    def _disturb_(self, sample: Tensor, noise: Noise) -> None:
        if random.random() > noise.p:
            return
        if self.pool is None:
            drawn = torch.empty_like(sample).normal_(0, noise.std)
        else:
            start = random.randrange(len(self.pool) - sample.numel() + 1)
            drawn = self.pool[start : start + sample.numel()].view(sample.shape)
        sample.add_(drawn).clamp_(0, 1)


class ReadInThreads(Dataset[Any]):
    """A dataset whose samples a pool of threads reads, for decoding that releases the GIL."""

    def __init__(self, base: Any, threads: int) -> None:
        self.base = base
        self.threads = ThreadPoolExecutor(threads)

    def __len__(self) -> int:
        return len(self.base)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return list(default_collate(list(self.threads.map(self.base.__getitem__, indices))))


def as_it_is(batch: Any) -> Any:
    """Return the batch itself, as ``collate_fn`` of datasets that return whole batches."""
    return batch
