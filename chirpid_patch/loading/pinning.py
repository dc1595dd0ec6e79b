"""Functions that copy the batches of a loader to pinned memory.

The functions raise no error if memory cannot be pinned, because the user has not requested pinned memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def pin_dense_tensors(batch: Any) -> Any:
    """Return ``batch`` with all its dense CPU tensors in pinned memory, and all other objects unchanged.

    The function searches lists, tuples, named tuples and dictionaries, which default collation creates.
    """
    kind = type(batch)
    if kind is Tensor:
        return _pin_tensor(batch)
    if kind is dict:
        return {name: pin_dense_tensors(part) for name, part in batch.items()}
    if kind in (list, tuple):
        return kind(map(pin_dense_tensors, batch))
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return kind(*map(pin_dense_tensors, batch))
    return batch


def _pin_tensor(tensor: Tensor) -> Tensor:
    dense = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_nested
    if not dense or tensor.is_quantized or tensor.requires_grad:
        return tensor
    try:
        return tensor.pin_memory()
    except RuntimeError:  # pinned memory is used up, so the copy to the device is only slower
        return tensor


class PinnableBatch:
    """A batch from a worker process, with the method that PyTorch's pinning thread calls."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def pin_memory(self) -> PinnableBatch:
        """Return this batch with its dense tensors in pinned memory."""
        return PinnableBatch(pin_dense_tensors(self.batch))


def collate_pinnable(collate: Callable[[Any], Any], samples: Any) -> PinnableBatch:
    """Return the batch that ``collate`` builds from ``samples``, as a ``PinnableBatch``."""
    return PinnableBatch(collate(samples))
