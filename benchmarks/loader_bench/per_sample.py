"""The original code of a backend: datasets that return single samples and wrap each other.

All loaders of the benchmark must do the same work as this code.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

Transform = Callable[[Tensor], Tensor]

_BLOCK = 1 << 16  # values in a block: few enough for the cache, enough to release the GIL


class ByteSpectrograms(Dataset[Any]):
    """8-bit spectrograms in memory, which are converted when they are read."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index].float() / 255, self.labels[index]


class MappedSpectrograms(Dataset[Any]):
    """Spectrograms in a .npy file, which each process opens."""

    def __init__(self, path: Path, labels: Tensor) -> None:
        self.path = path
        self.labels = labels
        self.array: Any = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.array is None:
            self.array = np.load(self.path, mmap_mode="r")
        return torch.from_numpy(np.array(self.array[index])), self.labels[index]


class Standardized(Dataset[Any]):
    """Samples minus the mean, divided by the standard deviation."""

    def __init__(self, base: Any, mean: float, std: float) -> None:
        self.base = base
        self.mean = torch.tensor(mean)
        self.std = torch.tensor(std)

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        x, y = self.base[index]
        return (x - self.mean) / (self.std + 1e-8), y


class Augmented(Dataset[Any]):
    """Samples with transforms, one after the other."""

    def __init__(self, base: Any, transforms: Sequence[Transform]) -> None:
        self.base = base
        self.transforms = list(transforms)

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        x, y = self.base[index]
        for transform in self.transforms:
            x = transform(x)
        return x, y


@dataclass(frozen=True)
class Masks:
    """SpecAugment with one mask in time and one in frequency."""

    widest_time: int
    widest_freq: int
    p: float

    def __call__(self, spec: Tensor) -> Tensor:
        if random.random() > self.p:
            return spec
        spec = spec.clone()
        n_freq, n_time = spec.shape[-2:]
        width = random.randint(0, min(self.widest_time, n_time))
        start = random.randint(0, n_time - width)
        spec[..., start : start + width] = 0.0
        height = random.randint(0, min(self.widest_freq, n_freq))
        start = random.randint(0, n_freq - height)
        spec[..., start : start + height, :] = 0.0
        return spec


@dataclass(frozen=True)
class Noise:
    """Normal noise, and then clamping to 0…1."""

    std: float
    p: float

    def __call__(self, x: Tensor) -> Tensor:
        if random.random() > self.p:
            return x
        return torch.clamp(x + torch.randn_like(x) * self.std, 0, 1)


def spin(turns: int) -> int:
    """Compute in pure Python, which holds the GIL."""
    total = 0
    for turn in range(turns):
        total += turn * turn & 7
    return total


def crunch(turns: int) -> float:
    """Compute in NumPy, on blocks that are large enough for NumPy to release the GIL."""
    block = np.linspace(0.0, 1.0, _BLOCK, dtype=np.float32)
    for _ in range(turns):
        np.sin(block, out=block)
    return float(block[-1])


@dataclass(frozen=True)
class Decoding:
    """The cost of reading a sample: ``amount`` turns of a loop (python, numpy), or seconds of waiting (io)."""

    kind: str
    amount: float

    def __call__(self) -> None:
        if self.kind == "io":
            time.sleep(self.amount)
        elif self.kind == "numpy":
            crunch(int(self.amount))
        else:
            spin(int(self.amount))


class Decoded(Dataset[Any]):
    """A user's dataset whose samples take long to read."""

    def __init__(self, images: Tensor, labels: Tensor, decoding: Decoding) -> None:
        self.images = images
        self.labels = labels
        self.decoding = decoding

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.decoding()
        return self.images[index].clone(), self.labels[index]


def calibrated(kind: str, seconds: float = 0.005) -> Decoding:
    """Return decoding that takes ``seconds`` on one idle core of this machine."""
    if kind == "io":
        return Decoding(kind, seconds)
    turns = 64
    while (taken := _quickest(Decoding(kind, turns))) < seconds:
        turns = min(int(turns * seconds / taken * 1.01) + 1, 4 * turns)
    return Decoding(kind, turns)


def _quickest(work: Decoding, tries: int = 5) -> float:
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
