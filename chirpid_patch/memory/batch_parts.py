"""Batches cut into parts along their samples, and models that notice it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def even_parts(count: int, most: int) -> list[slice]:
    """``count`` samples in as few parts of at most ``most`` as there can be, none more than one larger than another."""
    parts = max(1, math.ceil(count / max(1, most)))
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def uses_batch_statistics(model: nn.Module) -> bool:
    """Whether a layer of ``model`` normalises by the batch as a whole (batch norm while training)."""
    return any(
        isinstance(part, _BatchNorm) and (part.training or part.running_mean is None) for part in model.modules()
    )


def batch_length(batch: Any) -> int:
    """Samples in a batch: the length of the first tensor or array in it that has an axis.

    Raises ValueError if there is none.
    """
    found = _length(batch)
    if found is None:
        raise ValueError(
            f"no tensor with a batch axis in a batch of {type(batch).__name__}: it cannot be cut into parts"
        )
    return found


def batch_part(batch: Any, part: slice) -> Any:
    """The samples of ``batch`` in ``part``, in the same nesting; tensors and arrays are views.

    Tensors, arrays, and lists or tuples of one plain value (text, number) a sample are cut; what has no batch axis
    (numbers, None, 0-dim tensors) is in every part. Mappings, lists, tuples and named tuples are gone through.

    Raises:
        ValueError: tensors in it differ in length, or there is none.
    """
    return _cut(batch, part, batch_length(batch))


def _length(batch: Any) -> int | None:
    if isinstance(batch, Tensor | np.ndarray):
        return len(batch) if batch.ndim else None
    inside = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((length for length in map(_length, inside) if length is not None), None)


def _cut(batch: Any, part: slice, count: int) -> Any:
    if isinstance(batch, Tensor | np.ndarray):
        if not batch.ndim:
            return batch
        if len(batch) != count:
            raise ValueError(
                f"tensors of {count} and of {len(batch)} samples in one batch: it cannot be cut into parts"
            )
        return batch[part]
    if isinstance(batch, Mapping):
        return {name: _cut(value, part, count) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        if len(batch) == count and all(isinstance(value, str | bytes | int | float) for value in batch):
            return batch[part]
        cut = [_cut(value, part, count) for value in batch]
        if hasattr(batch, "_fields"):
            return type(batch)(*cut)
        return tuple(cut) if isinstance(batch, tuple) else cut
    return batch
