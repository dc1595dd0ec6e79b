"""Functions that run compiled C code on the rows of a batch.

If the C code was compiled during the installation, and supports the arguments, each function computes its result and
returns True. Otherwise the function changes nothing and returns False, and the caller must compute the same result with
PyTorch or NumPy. The functions support only tensors on the CPU.
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
except ImportError:  # the installation had no compiler, or the package was copied into a project
    _native = None


def is_available() -> bool:
    """Return whether the compiled C code exists."""
    return _native is not None


def _is_plain(tensor: Tensor) -> bool:
    kind = type(tensor) is Tensor and tensor.dtype is torch.float32 and tensor.device.type == "cpu"
    values = kind and tensor.layout is torch.strided and not tensor.requires_grad and not tensor.is_neg()
    return values and tensor.ndim > 0 and tensor.is_contiguous()


def standardize_rows(batch: Tensor, source: Tensor, rows: Tensor, mean: float, deviation: float) -> bool:
    """Compute ``batch[:] = (source[rows] - mean) / deviation`` for float32 tensors and int64 ``rows``.

    Returns:
        True if the C code has computed the result. False if the C code does not support these tensors.

    Raises:
        IndexError: ``rows`` contains an index that is negative or too large.
        TypeError: the dtype of ``rows`` is not int64.
        ValueError: ``batch`` and ``rows`` have different lengths, or a row of ``batch`` has more or fewer values than a
            row of ``source``.
    """
    if _native is None or not (_is_plain(batch) and _is_plain(source)):
        return False
    _native.standardize_rows(batch.numpy(), source.numpy(), rows.contiguous().numpy(), mean, deviation)
    return True


def add_noise(
    batch: Tensor, rows: npt.NDArray[np.int64], keys: npt.NDArray[np.uint64], table: npt.NDArray[np.float32]
) -> bool:
    """Add noise from ``table`` to the given rows of ``batch``, and clamp these rows to [0, 1].

    The key of a row determines which values of the table are added to the row.

    Args:
        batch: float32 tensor (B, …), which is changed in place.
        rows: indices of the rows that get noise.
        keys: random key of each row in ``rows``.
        table: 65,536 values of noise.

    Returns:
        True if the C code has added the noise. False if the C code does not support ``batch``.

    Raises:
        IndexError: ``rows`` contains an index that is negative or too large.
        TypeError: an array does not have the dtype in the signature.
        ValueError: ``rows`` and ``keys`` have different lengths, ``table`` has more or fewer than 65,536 values, or
            ``rows`` or ``table`` is not contiguous.
    """
    if _native is None or not _is_plain(batch):
        return False
    _native.add_noise(batch.numpy(), rows, np.ascontiguousarray(keys), table)
    return True


def add_noise_slices(
    batch: Tensor, rows: npt.NDArray[np.int64], pool: npt.NDArray[np.float32], starts: npt.NDArray[np.uint64]
) -> bool:
    """Add a slice of ``pool``, as long as a row, to each given row of ``batch``, and clamp these rows to [0, 1].

    Args:
        batch: float32 tensor (B, …), which is changed in place.
        rows: indices of the rows that get noise.
        pool: random values.
        starts: for each row in ``rows``, the position in ``pool`` at which the slice for this row starts.

    Returns:
        True if the C code has added the noise. False if the C code does not support ``batch``.

    Raises:
        IndexError: ``rows`` contains an index that is negative or too large.
        TypeError: an array does not have the dtype in the signature.
        ValueError: ``rows`` and ``starts`` have different lengths, a slice reaches beyond the end of ``pool``, or
            ``rows`` or ``pool`` is not contiguous.
    """
    if _native is None or not _is_plain(batch):
        return False
    _native.add_rows(batch.numpy(), rows, np.ascontiguousarray(starts), pool)
    return True
