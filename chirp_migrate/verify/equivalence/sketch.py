"""A few values of each batch, so that two batches that differ can be said to differ by how much."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Gap", "gap", "sketch", "values_of"]

_PER_SAMPLE = 16
_LEAST = 8
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Gap:
    """How the values of two batches differ.

    Attributes:
        largest: largest absolute difference.
        compared: number of values that were compared.
        scale, shift: when every value after is ``scale * before + shift``, as with other statistics; else None.
    """

    largest: float
    compared: int
    scale: float | None = None
    shift: float | None = None


def sketch(tensors: Sequence[torch.Tensor]) -> str:
    """Up to 16 values of each sample of the first floating-point tensor (B, ...), as base64 of float32."""
    for tensor in tensors:
        if tensor.is_floating_point() and tensor.ndim > 1:
            rows = tensor.detach().to("cpu", torch.float32).flatten(1)
            step = max(1, rows.shape[1] // _PER_SAMPLE)
            values = rows[:, ::step][:, :_PER_SAMPLE].contiguous().numpy()
            return base64.b64encode(values.astype("<f4").tobytes()).decode()
    return ""


def values_of(text: str) -> NDArray[np.float64]:
    """The values in a :func:`sketch`."""
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float64)


def gap(before: str, after: str) -> Gap | None:
    """How two sketches differ; None when they cannot be compared, or are equal."""
    a, b = map(values_of, (before, after))
    if len(a) != len(b) or not len(a) or np.array_equal(a, b, equal_nan=True):
        return None
    largest = float(np.nanmax(np.abs(b - a)))
    known = np.isfinite(a) & np.isfinite(b)
    if known.sum() < _LEAST or np.ptp(a[known]) == 0:
        return Gap(largest, len(a))
    scale, shift = np.polyfit(a[known], b[known], 1)
    off = np.abs(scale * a[known] + shift - b[known]).max()
    if off > _TOLERANCE * np.ptp(b[known]) or scale <= 0:
        return Gap(largest, len(a))
    return Gap(largest, len(a), float(scale), float(shift))
