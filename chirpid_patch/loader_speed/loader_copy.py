"""A copy of a loader for experiments, which do not affect the original."""

from __future__ import annotations

import copy
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from chirpid_patch.loading.limits import TORCH_PREFETCH, worker_processes
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.prefetch_threads import KeptThreads
from chirpid_patch.loading.samplers import copy_sampler


def copy_loader(loader: DataLoader[Any], num_workers: int | None = None) -> DataLoader[Any]:
    """Return a loader of the same class and arguments, with ``num_workers`` (None: the same number).

    Its workers are not started. It reads the same dataset through copies of the samplers. It shares the generators: see
    ``restored_generators``.
    """
    duplicate = copy.copy(loader)
    # The measurement itself shows whether more workers than CPUs help.
    changed: dict[str, Any] = {"_iterator": None, "check_worker_number_rationality": _no_warning, **_samplers(loader)}
    if isinstance(duplicate, BatchedDataLoader):
        changed |= {"_controller": copy.deepcopy(duplicate.overlap), "_threads": KeptThreads()}
        if num_workers:
            changed["in_process"] = False
    if num_workers is not None and num_workers != worker_processes(loader):
        changed |= {
            "num_workers": num_workers,
            "prefetch_factor": (loader.prefetch_factor or TORCH_PREFETCH) if num_workers else None,
            "timeout": loader.timeout if num_workers else 0,
        }
        if not num_workers:
            changed["persistent_workers"] = False
    vars(duplicate).update(changed)  # bypasses DataLoader's check of attribute assignments
    return duplicate


def copy_with_batched_reading(loader: DataLoader[Any]) -> BatchedDataLoader[Any]:
    """Return a loader of this package for the same batches in this process, with batched reading if possible."""
    samplers = _samplers(loader)
    if loader.batch_sampler is None:
        batching: dict[str, Any] = {"batch_size": None, "sampler": samplers["sampler"]}
    else:
        batching = {"batch_sampler": samplers["batch_sampler"]}
    return BatchedDataLoader(
        loader.dataset,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        generator=loader.generator,
        **batching,
    )


def _no_warning() -> None:
    """Replace ``DataLoader.check_worker_number_rationality``, so that the copy prints no warning."""


def _samplers(loader: DataLoader[Any]) -> dict[str, Any]:
    """Return copies of the samplers of ``loader``, so that the state of its own samplers does not change."""
    if isinstance(loader.dataset, IterableDataset):
        return {}
    batches: Any = loader.batch_sampler
    if batches is None:
        return {"sampler": copy_sampler(loader.sampler)}
    duplicate = copy_sampler(batches)
    same = getattr(batches, "sampler", None) is loader.sampler
    return {"batch_sampler": duplicate, "sampler": duplicate.sampler if same else copy_sampler(loader.sampler)}
