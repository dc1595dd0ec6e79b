"""Other loading libraries that do the same work, if they are installed (``pip install -e ".[bench]"``)."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, default_collate

from chirpid_patch import usable_cpus

from .per_sample import Transform
from .workloads import BATCH_SIZE, Workload

LIBRARIES = ("spdl", "torchdata", "tensordict")

_WAITING_THREADS = 16  # for samples that wait for I/O, where threads cost nothing


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def import_all() -> None:
    """Import the installed libraries, so that no timing contains the import."""
    for module in ("spdl.dataloader", "torchdata.nodes", "tensordict"):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def threads_for(workload: Workload) -> int:
    """Return the number of threads for a workload: one per CPU (at least two), or many if reading a sample waits."""
    return _WAITING_THREADS if workload.decoding == "io" else max(2, usable_cpus())


class _Batch:
    """The samples of a batch, read one by one and collated."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __call__(self, indices: Sequence[int]) -> Any:
        return default_collate([self.dataset[index] for index in indices])


class _InThreads:
    """Epochs of a library that reads whole samples in its own threads.

    PyTorch is limited to one thread for each operation, because both libraries are then faster.
    """

    def __init__(self, begin: Callable[[], Iterable[Any]]) -> None:
        self.begin = begin

    def __iter__(self) -> Iterator[Any]:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield from self.begin()
        finally:
            torch.set_num_threads(before)


def spdl_loader(dataset: Any, threads: int, whole: bool) -> Callable[[], Iterable[Any]]:
    """Return a pipeline of SPDL; ``whole`` makes each batch a task, for samples that cost less than a task."""
    from spdl.dataloader import DataLoader as SpdlLoader

    sampler = RandomSampler(dataset)
    options: dict[str, Any] = {"src": sampler, "preprocessor": dataset.__getitem__, "num_threads": threads}
    if whole:
        options["src"] = BatchSampler(sampler, BATCH_SIZE, drop_last=False)
        options["preprocessor"] = _Batch(dataset)
    else:
        options |= {"batch_size": BATCH_SIZE, "aggregator": default_collate}
    return lambda: _InThreads(lambda: SpdlLoader(**options))  # builds a new pipeline for each epoch


def torchdata_loader(dataset: Any, threads: int, whole: bool) -> Callable[[], Iterable[Any]]:
    """Return nodes of torchdata; ``whole`` makes each batch a task, for samples that cost less than a task."""
    from torchdata import nodes

    def make() -> Iterable[Any]:
        sampler = RandomSampler(dataset)
        root: Any
        if whole:
            batches = nodes.SamplerWrapper(BatchSampler(sampler, BATCH_SIZE, drop_last=False))
            root = nodes.ParallelMapper(batches, _Batch(dataset), num_workers=threads, method="thread")
        else:
            indices = nodes.SamplerWrapper(sampler)
            samples = nodes.ParallelMapper(indices, dataset.__getitem__, num_workers=threads, method="thread")
            collated = nodes.Mapper(nodes.Batcher(samples, BATCH_SIZE, drop_last=False), default_collate)
            root = nodes.Prefetcher(collated, prefetch_factor=2)
        loader = nodes.Loader(root)
        return _InThreads(lambda: loader)

    return make


class _CollateTensorDict:
    """Standardise a gathered batch at once, and augment its samples one by one."""

    def __init__(self, mean: float, std: float, transforms: Sequence[Transform]) -> None:
        self.mean = mean
        self.std = std + 1e-8
        self.transforms = list(transforms)

    def __call__(self, batch: Any) -> tuple[Tensor, Tensor]:
        x = batch["x"]
        x = x.float().div_(255) if x.dtype is torch.uint8 else x
        x = x.sub_(self.mean).div_(self.std)
        if self.transforms:
            samples = []
            for sample in x:
                for transform in self.transforms:
                    sample = transform(sample)
                samples.append(sample)
            x = torch.stack(samples)
        return x, batch["y"]


def tensordict_loader(
    images: Tensor, labels: Tensor, mean: float, std: float, transforms: Sequence[Transform]
) -> Callable[[], Iterable[Any]]:
    """Return PyTorch's loader over a TensorDict, which it reads batch by batch."""
    from tensordict import TensorDict

    samples: Any = TensorDict({"x": images, "y": labels}, batch_size=[len(images)])
    collate = _CollateTensorDict(mean, std, transforms)
    return lambda: DataLoader(samples, BATCH_SIZE, shuffle=True, collate_fn=collate)
