"""Compiled functions on the rows of a batch, if they could be compiled.

Each function does its work and returns True, or changes nothing and returns False. After False, the caller does the
work with PyTorch or NumPy. All tensors are on the CPU.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

try:
    _native: Any = import_module("chirpid_patch._native")
except ImportError:  # no compiler when this package was installed, or copied into a backend
    _native = None


def is_available() -> bool:
    """Return whether the module could be compiled."""
    return _native is not None


def _is_plain(tensor: Tensor) -> bool:
    kind = type(tensor) is Tensor and tensor.dtype is torch.float32 and tensor.device.type == "cpu"
    values = kind and tensor.layout is torch.strided and not tensor.requires_grad and not tensor.is_neg()
    return values and tensor.ndim > 0 and tensor.is_contiguous()


def standardize_rows(batch: Tensor, source: Tensor, rows: Tensor, mean: float, deviation: float) -> bool:
    """Compute ``batch[:] = (source[rows] - mean) / deviation`` for float32 tensors and int64 ``rows``.

    Raises:
        IndexError: a row is out of range.
        ValueError: the shapes do not fit.
    """
    if _native is None or not (_is_plain(batch) and _is_plain(source)):
        return False
    _native.standardize_rows(batch.numpy(), source.numpy(), rows.contiguous().numpy(), mean, deviation)
    return True


def add_noise(
    batch: Tensor, rows: npt.NDArray[np.int64], keys: npt.NDArray[np.uint64], table: npt.NDArray[np.float32]
) -> bool:
    """Add values of a table of 65,536 at the positions of each row's key, and clamp to [0, 1]."""
    if _native is None or not _is_plain(batch):
        return False
    _native.add_noise(batch.numpy(), rows, np.ascontiguousarray(keys), table)
    return True


def add_rows(
    batch: Tensor, rows: npt.NDArray[np.int64], pool: npt.NDArray[np.float32], starts: npt.NDArray[np.uint64]
) -> bool:
    """Add to each row the part of ``pool`` from its start on, and clamp to [0, 1]."""
    if _native is None or not _is_plain(batch):
        return False
    _native.add_rows(batch.numpy(), rows, np.ascontiguousarray(starts), pool)
    return True
