"""Functions that build several loaders, and divide a number of worker processes among these loaders."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from chirpid_patch.datasets.collate import is_stacking_collate
from chirpid_patch.datasets.gather import is_in_memory
from chirpid_patch.factory import create_training_loader, create_validation_loader
from chirpid_patch.loader_arguments import DatasetIndependentArguments
from chirpid_patch.machine.cpus import cpus_for_loading
from chirpid_patch.multi.interleave import MultiDataLoaderConfig, SamplingStrategy
from chirpid_patch.torch_private import DataLoader

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger("chirpid_patch")


def divide_workers(needs: Sequence[float], workers: int, limits: Sequence[int] | None = None) -> list[int]:
    """Divide ``workers`` worker processes among loaders, and return the number for each loader.

    First, each loader gets one worker, because the training process itself must load the batches of a loader without
    workers, so the training waits. If there are fewer workers than loaders, the loaders with the largest needs get one
    worker each. Each further worker goes to the loader with the largest value of
    ``need / (workers of this loader + 1)``.

    Args:
        needs: how much work each loader has, such as its number of samples in a step. A loader with the need 0 gets no
            workers.
        workers: number of worker processes to divide.
        limits: largest number of workers of each loader; None: no limit.

    Raises:
        ValueError: a need or ``workers`` is negative.
    """
    if workers < 0 or any(need < 0 for need in needs):
        raise ValueError("`workers` and each number in `needs` must be 0 or more")
    given = [0] * len(needs)
    for _ in range(workers):
        candidates = [i for i, need in enumerate(needs) if need > 0 and (limits is None or given[i] < limits[i])]
        if not candidates:
            break
        given[max(candidates, key=lambda i: (given[i] == 0, needs[i] / (given[i] + 1)))] += 1
    return given


def create_multi_dataloaders(
    datasets_dict: Mapping[str, Any],
    batch_sizes: int | Sequence[int] | Mapping[str, int] | None = None,
    num_workers: int = 4,
    *,
    is_training: bool = True,
    seed: int | None = None,
    **options: Unpack[DatasetIndependentArguments],
) -> tuple[list[DataLoader[Any]], MultiDataLoaderConfig]:
    """Build a loader for each dataset, and the configuration with which ``MultiDataLoader`` reads all loaders.

        loaders, config = create_multi_dataloaders({"day": (day, 32), "night": (night, 16)}, num_workers=4)
        for dataloader_idx, dataloader_name, batch in MultiDataLoader(loaders, config):
            ...

    Args:
        datasets_dict: maps the name of each dataset to the dataset, or to a tuple (dataset, batch size).
        batch_sizes: batch sizes of the datasets that have no batch size in ``datasets_dict``. Pass an int for all
            datasets, a dictionary from name to batch size, or a sequence in the order of ``datasets_dict``. None:
            ``datasets_dict`` contains all batch sizes.
        num_workers: largest number of worker processes of all loaders together. The number is also limited so that one
            CPU of this rank remains for the training. ``divide_workers`` divides the workers, with the batch sizes as
            needs. A dataset in memory gets no workers, unless ``collate_fn`` is a custom function. An iterable dataset
            gets at most one worker, because each further worker would iterate over another copy of the dataset.
        is_training: whether the loaders are for training. If True, the loaders shuffle, and omit incomplete batches.
            Only a dataset with fewer samples than a batch yields an incomplete batch. The loaders take turns in random
            order with equal weights, and short loaders start again. If False, each loader reads every sample in order,
            and the loaders are read one after the other.
        seed: seed of the random orders and turns. With a seed, each loader has its own generator. None: the loaders use
            the global generators, and the seed of the turns is 0.
        options: further arguments for every loader, which ``create_loader`` documents.

    Returns:
        The loaders in the order of ``datasets_dict``, and their ``MultiDataLoaderConfig``.

    Raises:
        ValueError: there are no datasets, a dataset has no batch size, or ``num_workers`` is negative.
    """
    if not datasets_dict:
        raise ValueError("datasets_dict is empty: pass at least one dataset")
    names = list(datasets_dict)
    datasets = {name: value[0] if _is_sized_pair(value) else value for name, value in datasets_dict.items()}
    sizes = {name: _batch_size(name, names, datasets_dict[name], batch_sizes) for name in names}
    stacked = is_stacking_collate(options.get("collate_fn"))  # if True, data in memory needs no workers
    needs = [0 if stacked and is_in_memory(datasets[name]) else sizes[name] for name in names]
    most = [1 if isinstance(datasets[name], IterableDataset) else num_workers for name in names]
    shares = divide_workers(needs, min(num_workers, cpus_for_loading()), most)
    logger.info(
        "the loaders use %d worker processes in total (num_workers=%d): %s",
        sum(shares),
        num_workers,
        ", ".join(f"{name} {share}" for name, share in zip(names, shares, strict=True)),
    )
    create: Callable[..., DataLoader[Any]] = create_training_loader if is_training else create_validation_loader
    loaders = []
    for number, (name, share) in enumerate(zip(names, shares, strict=True)):
        own: dict[str, Any] = {"num_workers": share, "persistent_workers": share > 0}
        if is_training:
            own["drop_last"] = isinstance(datasets[name], IterableDataset) or len(datasets[name]) >= sizes[name]
        if seed is not None and options.get("distributed"):
            own["seed"] = _seed_of(seed, number)
        elif seed is not None:
            own["generator"] = torch.Generator().manual_seed(_seed_of(seed, number))
        loaders.append(create(datasets[name], sizes[name], **{**own, **options}))
    config = MultiDataLoaderConfig(
        sampling_strategy=SamplingStrategy.WEIGHTED if is_training else SamplingStrategy.SEQUENTIAL,
        dataloader_weights=[1.0] * len(loaders),
        dataloader_names=names,
        cycle_short_loaders=is_training,
        seed=seed or 0,
    )
    return loaders, config


def _is_sized_pair(value: Any) -> bool:
    """Return whether ``value`` is a tuple (dataset, batch size)."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int)


def _batch_size(
    name: str, names: Sequence[str], value: Any, batch_sizes: int | Sequence[int] | Mapping[str, int] | None
) -> int:
    if _is_sized_pair(value):
        return int(value[1])
    if isinstance(batch_sizes, int):
        return batch_sizes
    if isinstance(batch_sizes, Mapping) and name in batch_sizes:
        return int(batch_sizes[name])
    if isinstance(batch_sizes, Sequence) and len(batch_sizes) == len(names):
        return int(batch_sizes[names.index(name)])
    raise ValueError(
        f"the dataset {name!r} has no batch size: pass (dataset, batch size) in datasets_dict, or pass batch_sizes"
    )


def _seed_of(seed: int, number: int) -> int:
    """Return a seed for the generator of the loader ``number``. Loaders have different seeds."""
    return int(np.random.SeedSequence([abs(seed), int(seed < 0), number]).generate_state(1)[0])
