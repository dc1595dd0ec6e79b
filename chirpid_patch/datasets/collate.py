"""Collate functions, and a check whether a collate function permits batched reading.

*Batched reading* means reading all samples of a batch from memory at once, without calling the collate function.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from chirpid_patch.torch_private import default_collate_is_unchanged, default_collate_with

__all__ = ["collate_as_workers", "collate_pairs", "is_stacking_collate", "make_worker_like_collate"]


def collate_pairs(samples: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Stack samples (x, y) into a batch (X, Y); pass this function as ``collate_fn``.

    With this function, loaders of this package can read a whole batch from memory at once.

    Args:
        samples: pairs of tensors, all x of one shape and all y of one shape.

    Returns:
        Tensors X (B, *shape of x) and Y (B, *shape of y).
    """
    return torch.stack([sample[0] for sample in samples]), torch.stack([sample[1] for sample in samples])


def is_stacking_collate(collate: Callable[[Any], Any] | None) -> bool:
    """Return whether batched reading yields the batches that ``collate`` builds from single samples.

    ``collate=None`` stands for ``default_collate``.
    """
    own = (default_collate, collate_as_workers, collate_as_sent_to_workers)
    known = collate is None or any(collate is one for one in own)  # `in` would call __eq__ of the user's object
    return collate is collate_pairs or (known and default_collate_is_unchanged())


def collate_as_workers(samples: Sequence[Any]) -> Any:
    """Collate ``samples`` in this process as ``default_collate`` does in a worker process.

    The batch has the dtype of the first sample, as in a worker. In the main process, ``default_collate`` would choose
    the dtype by type promotion. The batch shares no memory with the samples.

    Raises:
        RuntimeError, TypeError, AttributeError: a sample requires grad, or the dtype of the first sample cannot store
            the values of another sample. PyTorch raises the same error in a worker.
    """
    return default_collate_with(samples, _stack_like_worker, _copy_like_worker)


def collate_as_sent_to_workers(samples: Sequence[Any]) -> Any:
    """Collate ``samples`` like :func:`collate_as_workers`, but as in a worker that is not forked.

    Such a worker gets pickled samples, in which no NumPy array has negative strides. So PyTorch can collate them.
    """
    try:
        return collate_as_workers(samples)
    except ValueError:
        return collate_as_workers(pickle.loads(pickle.dumps(samples)))


def make_worker_like_collate(collate: Callable[[Any], Any], start_method: str) -> Callable[[Any], Any]:
    """Return a function that collates in this process as ``collate`` does in a worker.

    Any ``collate`` other than ``default_collate`` is returned unchanged.

    Args:
        collate: the ``collate_fn`` of a loader.
        start_method: the start method of the workers.
    """
    if collate is not default_collate:
        return collate
    return collate_as_workers if start_method == "fork" else collate_as_sent_to_workers


def _stack_like_worker(samples: Sequence[Any]) -> Tensor:
    first = samples[0]
    count = sum(sample.numel() for sample in samples)  # raises AttributeError for a sample that is not a tensor
    stacked: Tensor = torch.stack(samples, 0, out=first.new(count).resize_(len(samples), *first.size()))  # type: ignore[arg-type]
    return stacked


def _copy_like_worker(values: Any) -> Any:
    """Return a deep copy of ``values``, so that the batch shares no objects with the dataset, like a batch of a worker.

    A list of strings or bytes needs no copy, because its items cannot change.
    """
    return values if all(isinstance(value, str | bytes) for value in values) else copy.deepcopy(values)
