"""Collate functions, and a check whether a collate function permits batched reading.

*Batched reading* means reading all samples of a batch from memory at once, without calling the collate function.
"""

from __future__ import annotations

import copy
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
    known = collate is None or collate is default_collate or collate is collate_as_workers
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


def make_worker_like_collate(collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that collates in this process as ``collate`` does in a worker.

    For ``default_collate``, the result is ``collate_as_workers``. Any other ``collate`` is returned unchanged.
    """
    return collate_as_workers if collate is default_collate else collate


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
