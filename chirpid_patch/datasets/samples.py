"""Functions that read samples, one by one or at once, and collate the samples into a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, default_collate, get_worker_info

from chirpid_patch.datasets.batch_memory import allocate_batch, is_large_batch
from chirpid_patch.datasets.collate import collate_pairs, is_stacking_collate
from chirpid_patch.datasets.gather import (
    Batch,
    fetch_batch,
    gather_batch,
    gather_node,
    is_in_memory,
    is_unmodified_batched_dataset,
    reads_like_class,
)
from chirpid_patch.datasets.rows import SEQUENCES, contiguous_strides, look_up_indices
from chirpid_patch.randomness.keyed_random import RandomKey
from chirpid_patch.torch_private import has_active_torch_modes, sample_fetcher

Collate = Callable[[Any], Any]

_DTYPE = attrgetter("dtype")
_REQUIRES_GRAD = attrgetter("requires_grad")


def _takes_key(dataset: Any) -> bool:
    """Return whether ``dataset`` can compute the random numbers of a single sample from a ``RandomKey``."""
    return _takes_key(dataset.dataset) if reads_like_class(dataset, Subset) else is_unmodified_batched_dataset(dataset)


def fetch_sample(dataset: Any, index: Any, random_key: RandomKey | None = None) -> Any:
    """Return ``dataset[index]``.

    Args:
        dataset: a map-style dataset.
        index: index of the sample.
        random_key: the ``RandomKey`` from which datasets of this package compute the random numbers of the sample;
            None: new random numbers.
    """
    if random_key is not None and _takes_key(dataset):
        if isinstance(dataset, Subset):
            return fetch_sample(dataset.dataset, dataset.indices[index], random_key)
        return dataset.read_sample(index, random_key)
    return dataset[index]


def fetch_samples(
    dataset: Any, indices: Sequence[Any], random_key: RandomKey | None = None, *, own_memory: bool = True
) -> list[Any]:
    """Return the list of the samples at ``indices``, without collating the samples.

    Args:
        dataset: a map-style dataset.
        indices: indices of the samples.
        random_key: the ``RandomKey`` from which the random numbers of the samples are computed; None: new random
            numbers.
        own_memory: whether each sample must have its own memory. With False, samples may share memory, which allows
            faster reading.
    """
    if random_key is not None and _takes_key(dataset):
        if not own_memory and is_unmodified_batched_dataset(dataset):
            together: list[Any] = dataset.read_samples(indices, random_key)
            return together
        return [fetch_sample(dataset, index, random_key.take([place])) for place, index in enumerate(indices)]
    many = getattr(dataset, "__getitems__", None)
    if many:
        samples: list[Any] = many(indices)
        return samples
    return [dataset[index] for index in indices]


def load_batch(dataset: Any, indices: Sequence[Any], random_key: RandomKey | None, collate: Collate) -> Any:
    """Return ``collate([dataset[i] for i in indices])``.

    The samples are read at once if both the collate function and the dataset permit batched reading.
    """
    stacks = is_stacking_collate(collate)
    node = gather_node(dataset) if stacks and not has_active_torch_modes() else None
    if node is not None and (random_key is not None or (type(indices) in SEQUENCES and node.gains(len(indices)))):
        as_pairs = collate is collate_pairs
        fits = not as_pairs or (node.gathers and not node.samples_are_rows)
        batch = gather_batch(node, indices, random_key) if fits else None
        if batch is not None and not as_pairs:
            return batch[0] if node.samples_are_rows else batch
        if batch is not None and len(batch) == 2 and all(isinstance(column, Tensor) for column in batch):
            return tuple(batch)
    if random_key is None or not _takes_key(dataset):
        # PyTorch's own code reads the samples here, so that warnings name the same line as with PyTorch's loader.
        return sample_fetcher(dataset, True, collate, False).fetch(indices)
    return collate(fetch_samples(dataset, indices, random_key, own_memory=not stacks))


def reads_sample_by_sample(dataset: Any) -> bool:
    """Return whether each batch of ``dataset`` is read sample by sample.

    If True, several threads can read a batch together, and each thread reads some of the samples.
    """
    if reads_like_class(dataset, Subset):
        return reads_sample_by_sample(dataset.dataset)
    if is_unmodified_batched_dataset(dataset):
        base = getattr(dataset, "base_dataset", None)
        return not dataset.in_memory and (base is None or reads_sample_by_sample(base))
    return not hasattr(dataset, "__getitems__") and not is_in_memory(dataset)


def fetch_pair_batch(dataset: Any, indices: Sequence[Any], random_key: RandomKey | None) -> tuple[Tensor, Any] | None:
    """Return the batch (X, Y) of the samples (x, y) at ``indices``.

    X is in new memory, so the caller may change X in place. The result is None if the samples cannot be read at once.
    """
    listed = type(dataset) in (list, tuple)
    batch = read_samples_of_list(dataset, indices) if listed else fetch_batch(dataset, indices, random_key)
    if batch is None or len(batch) != 2 or not isinstance(batch[0], Tensor):
        return None
    return batch[0], batch[1]


def read_samples_of_list(samples: Sequence[Any], indices: Sequence[Any]) -> Batch | None:
    """Collate the pairs (x, y) at ``indices`` of the list ``samples`` to a batch [X, Y], with X in new memory.

    The result is None if the batch is so small that PyTorch's own collation is as fast. The result is also None unless
    all x are plain tensors of one shape and dtype, and all y are such tensors, or numbers and text. Workers could
    collate other values differently from the main process.
    """
    chosen = look_up_indices(samples, indices)
    if not chosen or not _is_pair(chosen[0]) or not is_large_batch(len(chosen) * dense_tensor_bytes(chosen[0][0])):
        return None
    if not all(map(_is_pair, chosen)):
        return None
    xs = [x for x, _ in chosen]
    ys: Any = tuple(y for _, y in chosen)  # PyTorch collates text to a tuple
    scalars = all(issubclass(kind, _SCALARS) for kind in set(map(type, ys)))
    if not _may_be_stacked(xs) or not (scalars or _may_be_stacked(ys)):
        return None
    out = allocate_batch((len(xs), *xs[0].shape), xs[0].dtype) if get_worker_info() is None else None
    try:
        return [default_collate(xs) if out is None else torch.stack(xs, out=out), default_collate(ys)]
    except RuntimeError:  # The tensors differ, for example in shape. PyTorch's own code then raises this error again.
        return None


#: Types of values that PyTorch collates in the same way in a worker and in this process.
_SCALARS = (int, float, str, bytes, np.generic)


def _is_pair(sample: Any) -> bool:
    return type(sample) in (list, tuple) and len(sample) == 2


def dense_tensor_bytes(x: Any) -> int:
    """Return the size of a dense tensor in bytes; 0 for any other object."""
    return x.nbytes if type(x) is Tensor and x.layout is torch.strided else 0


def stack_until_layout_differs(
    samples: Iterator[Any], count: int, supports_batch: Callable[[Tensor], bool]
) -> tuple[Tensor | None, list[Any], list[Any]]:
    """Read samples (x, y) one by one, and copy each x into one tensor, until an x differs in layout from the first x.

    The function copies each x before reading the next sample, so the dataset may reuse one buffer for all samples.

    Args:
        samples: iterator over samples. Reading ends at the first sample whose x differs in shape, dtype or layout from
            the first x.
        count: number of rows of the tensor; ``samples`` must not yield more samples.
        supports_batch: function that gets the first x as a batch (1, *shape of x), and returns whether the caller can
            process batches of such samples. If the function returns False, no sample is copied, and the first sample
            is the only one that is read.

    Returns:
        Three values. The first value is the tensor (``count``, *shape of x), or None if no x was copied. The second
        value is the list of the y of all copied samples. The third value is a list with the first sample that differs,
        or an empty list.
    """
    rows: Tensor | None = None
    ys: list[Any] = []
    for x, y in samples:
        alike = (
            have_equal_layout([x]) and supports_batch(x.unsqueeze(0))
            if rows is None
            else have_equal_layout((x, rows[0]))
        )
        if not alike:
            return rows, ys, [(x, y)]
        if rows is None:
            rows = torch.empty((count, *x.shape), dtype=x.dtype)
        rows[len(ys)] = x
        ys.append(y)
    return rows, ys, []


def _may_be_stacked(values: Sequence[Any]) -> bool:
    """Return whether ``torch.stack`` returns a contiguous CPU tensor, or raises ``RuntimeError``.

    The function checks only what ``torch.stack`` does not check, because a check of all values takes about as long as
    to stack small ones.
    """
    return (
        set(map(type, values)) == {Tensor}
        and len(set(map(_DTYPE, values))) == 1
        and not any(map(_REQUIRES_GRAD, values))
        and have_equal_layout(values[:1])
    )


def have_equal_layout(values: Sequence[Any]) -> bool:
    """Return whether all ``values`` are plain contiguous CPU tensors of the same shape and dtype."""
    if set(map(type, values)) != {Tensor} or not all(x.is_cpu and x.layout is torch.strided for x in values):
        return False
    shapes = {(x.dtype, x.shape, x.stride(), x.requires_grad, x.is_conj(), x.is_neg()) for x in values}
    shape = values[0].shape
    plain = {(values[0].dtype, shape, contiguous_strides(shape), False, False, False)}
    return shapes == plain and not values[0].is_quantized
