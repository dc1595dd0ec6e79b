"""The workloads: samples, their storage, and their transforms."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from . import per_sample
from .per_sample import Decoded, Decoding, Masks, Noise, Transform, calibrated

SHAPE = (1, 224, 313)
BATCH_SIZE = 32
MASKS = Masks(widest_time=40, widest_freq=15, p=0.8)
NOISE = Noise(std=0.02, p=0.8)


@dataclass(frozen=True)
class Workload:
    """Work that all loaders do.

    Attributes:
        name: name for the command line.
        title: title for tables.
        storage: float32, uint8 or mapped (a .npy file); decoded for a user's dataset of expensive samples.
        masks, noise: whether the samples are augmented with masks and with noise.
        pooled: whether the loader of `chirpid_patch` takes its noise from a pool.
        decoding: kind of work that an expensive sample needs: python, numpy or io.
        step_s: seconds that the consumer works after each batch.
        quick: whether the workload is part of a quick run.
    """

    name: str
    title: str
    storage: str = "float32"
    masks: bool = False
    noise: bool = False
    pooled: bool = False
    decoding: str | None = None
    step_s: float = 0.0
    quick: bool = False

    @property
    def in_memory(self) -> bool:
        """Return whether reading a sample is only a copy, and the consumer does no work."""
        return self.decoding is None and not self.step_s

    @property
    def transforms(self) -> list[Transform]:
        """Return the augmentation of single samples."""
        return [*([MASKS] if self.masks else []), *([NOISE] if self.noise else [])]


def _in_memory() -> list[Workload]:
    stages: list[tuple[str, str, dict[str, Any]]] = [
        ("standardise", "standardise", {}),
        ("spec", "+ SpecAugment", {"masks": True}),
        ("noise", "+ noise", {"masks": True, "noise": True}),
        ("pooled", "+ pooled noise", {"masks": True, "noise": True, "pooled": True}),
    ]
    storages = [("", "float32", "float32"), ("-uint8", "uint8", "uint8"), ("-mapped", "mapped", "memory-mapped .npy")]
    quick = {"standardise", "spec", "noise", "pooled", "standardise-uint8", "noise-mapped"}
    return [
        Workload(stage + suffix, f"{stored}, {title}", storage, quick=stage + suffix in quick, **options)
        for suffix, storage, stored in storages
        for stage, title, options in stages
    ]


WORKLOADS: tuple[Workload, ...] = (
    *_in_memory(),
    Workload("decode-python", "5 ms of pure Python a sample", "decoded", decoding="python", quick=True),
    Workload("decode-numpy", "5 ms of NumPy a sample, GIL released", "decoded", decoding="numpy", quick=True),
    Workload("decode-io", "5 ms of waiting for I/O a sample", "decoded", decoding="io", quick=True),
    Workload(
        "consumer",
        "simulated device step of 8 ms, + noise",
        masks=True,
        noise=True,
        step_s=0.008,
        quick=True,
    ),
)


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the ``names`` that match any of the shell patterns; commas may join several patterns.

    Raises:
        ValueError: a pattern matches no name.
    """
    wanted: set[str] = set()
    for pattern in (part.strip() for joined in patterns for part in joined.split(",")):
        found = fnmatch.filter(names, pattern)
        if not found:
            raise ValueError(f"no name matches {pattern!r}; the names are {', '.join(names)}")
        wanted.update(found)
    return [name for name in names if name in wanted]


class Data:
    """The samples, equal in every storage; each storage is created when it is first used."""

    def __init__(self, samples: int, folder: Path) -> None:
        self.samples = samples
        self.folder = folder
        self.decodings: dict[str, Decoding] = {}

    @property
    def decoded_samples(self) -> int:
        """Return the number of expensive samples: only a part of all samples, but if possible 8 batches or more."""
        fewer = math.ceil(self.samples * 0.375 / BATCH_SIZE) * BATCH_SIZE
        return min(self.samples, max(fewer, 8 * BATCH_SIZE))

    @cached_property
    def labels(self) -> Tensor:
        """Return the labels; the label of a sample is its number, so that an epoch can be checked."""
        return torch.arange(self.samples)

    @cached_property
    def eight_bit(self) -> Tensor:
        """Return the samples as 8-bit values."""
        generator = torch.Generator().manual_seed(0)
        return torch.randint(0, 256, (self.samples, *SHAPE), dtype=torch.uint8, generator=generator)

    @cached_property
    def floats(self) -> Tensor:
        """Return the samples as values in 0…1."""
        return self.eight_bit.float().div_(255)

    @cached_property
    def path(self) -> Path:
        """Write the samples in 0…1 to a file, and return its path."""
        path = self.folder / "samples.npy"
        np.save(path, self.floats.numpy())
        return path

    @cached_property
    def mapped(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the file as a memory map (copy-on-write, so that tensors on it lead to no warning)."""
        array: np.ndarray[Any, np.dtype[np.float32]] = np.load(self.path, mmap_mode="c")
        return array

    @cached_property
    def mean(self) -> float:
        """Return the mean of all values."""
        return float(self.floats.mean())

    @cached_property
    def std(self) -> float:
        """Return the standard deviation of all values."""
        return float(self.floats.std())

    def decoding(self, kind: str) -> Decoding:
        """Return decoding that takes 5 ms."""
        if kind not in self.decodings:
            self.decodings[kind] = calibrated(kind)
        return self.decodings[kind]

    def prepare(self, workload: Workload) -> None:
        """Create the storage that the workload reads."""
        self.original(workload)

    def count(self, workload: Workload) -> int:
        """Return the number of samples in an epoch."""
        return self.samples if workload.decoding is None else self.decoded_samples

    def tensor(self, workload: Workload) -> Tensor:
        """Return the samples of an in-memory workload as one tensor, without conversion."""
        if workload.storage == "mapped":
            return torch.from_numpy(self.mapped)
        return self.eight_bit if workload.storage == "uint8" else self.floats

    def original(self, workload: Workload) -> Any:
        """Return the per-sample dataset that defines the workload."""
        if workload.decoding is not None:
            count = self.decoded_samples
            return Decoded(self.floats[:count], self.labels[:count], self.decoding(workload.decoding))
        stored: Any = TensorDataset(self.floats, self.labels)
        if workload.storage == "uint8":
            stored = per_sample.ByteSpectrograms(self.eight_bit, self.labels)
        elif workload.storage == "mapped":
            stored = per_sample.MappedSpectrograms(self.path, self.labels)
        dataset: Any = per_sample.Standardized(stored, self.mean, self.std)
        return per_sample.Augmented(dataset, workload.transforms) if workload.transforms else dataset
