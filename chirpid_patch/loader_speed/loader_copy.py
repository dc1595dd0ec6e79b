"""Copies of a loader for measurements that must not affect the original loader."""

from __future__ import annotations

import copy
from typing import Any

from torch.utils.data import IterableDataset

from chirpid_patch.loading.limits import TORCH_PREFETCH, worker_processes
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.prefetch_threads import ReusedThreads
from chirpid_patch.loading.samplers import copy_sampler
from chirpid_patch.torch_private import DataLoader


def copy_loader(loader: DataLoader[Any], num_workers: int | None = None) -> DataLoader[Any]:
    """Return a loader with the same class and arguments as ``loader``, but another number of workers.

    The copy has no running workers. The copy shares the dataset and the random generators with ``loader``, but has its
    own samplers. Callers should restore the generators with ``restore_generators_after``.

    Args:
        loader: the loader to copy.
        num_workers: number of worker processes of the copy; None: as many as ``loader`` has.
    """
    duplicate = copy.copy(loader)
    # The copy does not warn about more workers than CPUs, because the measurement shows whether more workers help.
    changed: dict[str, Any] = {"_iterator": None, "check_worker_number_rationality": lambda: None, **_samplers(loader)}
    if isinstance(duplicate, BatchedDataLoader):
        changed |= {"_controller": copy.deepcopy(duplicate.overlap), "_threads": ReusedThreads()}
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
    vars(duplicate).update(changed)  # DataLoader would refuse some of these assignments
    return duplicate


def copy_with_batched_reading(loader: DataLoader[Any]) -> BatchedDataLoader[Any]:
    """Return a loader of this package that yields the same batches as ``loader``.

    The result has no worker processes. If possible, the result reads whole batches from memory.
    """
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


def _samplers(loader: DataLoader[Any]) -> dict[str, Any]:
    """Return copies of the samplers of ``loader``, by attribute name."""
    if isinstance(loader.dataset, IterableDataset):
        return {}
    batches: Any = loader.batch_sampler
    if batches is None:
        return {"sampler": copy_sampler(loader.sampler)}
    duplicate = copy_sampler(batches)
    same = getattr(batches, "sampler", None) is loader.sampler
    return {"batch_sampler": duplicate, "sampler": duplicate.sampler if same else copy_sampler(loader.sampler)}
