"""Functions for arithmetic with batches on a device other than the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Dtypes for which NumPy and PyTorch round a Python number in the same way.
EXACT = (torch.float32, torch.float64)


def is_off_cpu(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is on a device other than the CPU."""
    return tensor.device.type != "cpu"


def send_to_device(numbers: Tensor, device: torch.device) -> Tensor:
    """Return ``numbers``, a small CPU tensor, on ``device``.

    The copy to CUDA uses pinned memory, so the CPU does not wait for the copy.
    """
    if device.type == "cuda":
        return numbers.pin_memory().to(device, non_blocking=True)
    return numbers.to(device)


def as_exact_operand(value: Any, batch: Tensor) -> Any:
    """Convert ``value`` so that arithmetic with ``batch`` on its device yields the same bits as on the CPU.

    A tensor is copied to the device of ``batch``. A Python float becomes a tensor, because with a Python float as
    divisor, CUDA would multiply by the reciprocal of the float, so the last bit could differ. If ``batch`` has a
    half-precision dtype, the float is returned unchanged, because a half-precision tensor would round the float.
    """
    if not is_off_cpu(batch):
        return value
    if isinstance(value, Tensor):
        if value.device == batch.device:
            return value
        there = torch.full((), value.item(), dtype=value.dtype, device=batch.device) if not value.ndim else None
        return send_to_device(value, batch.device) if there is None else there
    exact = batch.dtype in EXACT or not batch.is_floating_point()
    if exact and isinstance(value, float | np.floating):
        return torch.full((), float(value), dtype=torch.result_type(batch, float(value)), device=batch.device)
    return value
