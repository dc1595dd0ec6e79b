"""Helpers for batches on another device than the CPU, and for values that are moved to that device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Dtypes to which numbers are rounded once, by NumPy as by PyTorch.
EXACT = (torch.float32, torch.float64)


def is_away(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is on another device than the CPU, which needs few large operations."""
    return tensor.device.type != "cpu"


def send(numbers: Tensor, device: torch.device) -> Tensor:
    """Return a few numbers on ``device``. On CUDA nothing waits for the copy from pinned memory.

    PyTorch reuses the pinned memory only after the copy.
    """
    if device.type == "cuda":
        return numbers.pin_memory().to(device, non_blocking=True)
    return numbers.to(device)


def as_operand(value: Any, batch: Tensor) -> Any:
    """Return ``value`` for arithmetic with ``batch``, on its device.

    Numbers become tensors if that changes no result on the CPU. CUDA multiplies with the reciprocal of a Python number
    instead of dividing, so the last bit would differ.
    """
    if not is_away(batch):
        return value
    if isinstance(value, Tensor):
        if value.device == batch.device:
            return value
        there = torch.full((), value.item(), dtype=value.dtype, device=batch.device) if not value.ndim else None
        return send(value, batch.device) if there is None else there
    exact = batch.dtype in EXACT or not batch.is_floating_point()
    if exact and isinstance(value, float | np.floating):
        return torch.full((), float(value), dtype=torch.result_type(batch, float(value)), device=batch.device)
    return value
