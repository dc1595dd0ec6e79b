"""Samples read one by one, as PyTorch's loader reads them, and put together to a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset, default_collate, get_worker_info

from chirpid_patch.datasets.buffers import batch_memory
from chirpid_patch.datasets.collate import collate_pairs, stacks_samples
from chirpid_patch.datasets.gather import fetch_batch, is_exactly, is_in_memory, node_of, uses_package_read
from chirpid_patch.declaration import served
from chirpid_patch.randomness.keyed_random import RandomKey

Collate = Callable[[Any], Any]


def _takes_key(dataset: Any) -> bool:
    """Whether single samples of ``dataset`` can be read with a key."""
    return _takes_key(dataset.dataset) if is_exactly(dataset, Subset) else uses_package_read(dataset)


def fetch_sample(dataset: Any, index: Any, key: RandomKey | None = None) -> Any:
    """``dataset[index]``, its randomness fixed by ``key`` (of one sample) where the dataset is ours."""
    if key is not None and _takes_key(dataset):
        if isinstance(dataset, Subset):
            return fetch_sample(dataset.dataset, dataset.indices[index], key)
        return dataset.read_sample(index, key)
    return dataset[index]


def fetch_each(dataset: Any, indices: Sequence[Any], key: RandomKey | None) -> list[Any]:
    """``[dataset[i] for i in indices]``, as ``fetch_sample`` reads them."""
    return [
        fetch_sample(dataset, index, None if key is None else key.take([place])) for place, index in enumerate(indices)
    ]


def fetch_samples(dataset: Any, indices: Sequence[Any], key: RandomKey | None = None) -> list[Any]:
    """The samples at ``indices``, one by one, as PyTorch's own loader reads them."""
    if key is not None and _takes_key(dataset):
        return fetch_each(dataset, indices, key)
    many = getattr(dataset, "__getitems__", None)
    if many:
        samples: list[Any] = many(indices)
        return samples
    return [dataset[index] for index in indices]


def load_batch(dataset: Any, indices: Sequence[Any], key: RandomKey | None, collate: Collate) -> Any:
    """``collate([dataset[i] for i in indices])``, read at once where collation and dataset allow it."""
    if stacks_samples(collate):
        batch = fetch_batch(dataset, indices, key)
        if batch is not None and collate is not collate_pairs:
            return batch
        if batch is not None and len(batch) == 2 and all(isinstance(column, Tensor) for column in batch):
            return tuple(batch)
    return collate(fetch_samples(dataset, indices, key))


def reads_singly(dataset: Any) -> bool:
    """Whether a batch of ``dataset`` is read as single samples anyway, so that these may be read apart."""
    if is_exactly(dataset, Subset):
        return reads_singly(dataset.dataset)
    if uses_package_read(dataset):
        base = getattr(dataset, "base_dataset", None)
        return not dataset.in_memory and (base is None or reads_singly(base))
    return not hasattr(dataset, "__getitems__") and not is_in_memory(dataset)


def fetch_pairs(dataset: Any, indices: Sequence[Any], key: RandomKey | None) -> tuple[Tensor, Any] | None:
    """The batch of (x, y) samples as (X, Y), X a fresh tensor; None where it cannot be read at once.

    A batch put together from samples that may differ has the dtype of none of them: it is not one to compute on.
    """
    if uses_package_read(served(dataset)) and not node_of(dataset).gathers:
        return None
    batch = fetch_batch(dataset, indices, key)
    if batch is None or len(batch) != 2 or not isinstance(batch[0], Tensor):
        return None
    return batch[0], batch[1]


def stack_pairs(samples: Sequence[Any]) -> tuple[Tensor, Any] | None:
    """(x, y) samples collated as (X, Y), X a fresh tensor; None unless all x agree in shape and dtype."""
    if not all(isinstance(sample, tuple | list) and len(sample) == 2 for sample in samples):
        return None
    xs = [x for x, _ in samples]
    if set(map(type, xs)) != {Tensor} or not _are_plain_samples(xs):
        return None
    first = xs[0]
    # Other layouts, such as channels_last, are the batch's, too.
    lent = get_worker_info() is None and all(x.is_contiguous() for x in xs)
    stacked = torch.stack(xs, out=batch_memory((len(xs), *first.shape), first.dtype)) if lent else default_collate(xs)
    labels: Any = tuple(y for _, y in samples)  # which PyTorch gives as they are, where they are text
    return stacked, default_collate(labels)


def _are_plain_samples(xs: Sequence[Tensor]) -> bool:
    alike = len({x.dtype for x in xs}) == len({x.shape for x in xs}) == 1
    kinds = alike and all(x.is_cpu and x.layout is torch.strided and not x.requires_grad for x in xs)
    return kinds and not xs[0].is_quantized
