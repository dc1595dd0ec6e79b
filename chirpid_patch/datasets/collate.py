"""Collation that may be done by reading a whole batch at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from chirpid_patch.torch_private import collate_with, collates_as_published

__all__ = ["collate_as_workers", "collate_pairs", "stacks_samples", "worker_collate"]


def collate_pairs(samples: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Stack what samples have first, tensors of equal shape, and what they have second: a tuple (X, Y).

    Under this package's loader a batch is read at once instead, where the dataset allows it.
    """
    return torch.stack([sample[0] for sample in samples]), torch.stack([sample[1] for sample in samples])


def stacks_samples(collate: Callable[[Any], Any] | None) -> bool:
    """Whether ``collate`` (None: PyTorch's own) puts samples together as reading a batch at once would."""
    known = collate is None or collate is default_collate or collate is collate_as_workers
    return collate is collate_pairs or (known and collates_as_published())


def collate_as_workers(samples: Sequence[Any]) -> Any:
    """Collate ``samples`` in this process as ``default_collate`` does in a worker process.

    There a batch has the dtype of its first sample, and samples that cannot be written to such a batch are refused:
    other dtypes that would lose values, and samples that require grad. No batch shares memory with the samples.

    Raises:
        RuntimeError, TypeError, AttributeError: what PyTorch raises in a worker for samples that differ.
    """
    return collate_with(samples, _stack_as_workers, _keep_as_workers)


def worker_collate(collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What ``collate`` does in a worker process, for this one; functions of the user's are returned as they are."""
    return collate_as_workers if collate is default_collate else collate


def _stack_as_workers(samples: Sequence[Any]) -> Tensor:
    first = samples[0]
    count = sum(sample.numel() for sample in samples)  # which the samples after a tensor must have, too
    stacked: Tensor = torch.stack(samples, 0, out=first.new(count).resize_(len(samples), *first.size()))  # type: ignore[arg-type]
    return stacked


def _keep_as_workers(values: Any) -> Any:
    """Text, and what else comes after text, which a worker sends as copies."""
    return values if all(isinstance(value, str | bytes) for value in values) else copy.deepcopy(values)
