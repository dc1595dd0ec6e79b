"""Batches cut into parts along their samples, and models that notice it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from chirpid_patch.device.moving import mapped

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def even_parts(count: int, most: int) -> list[slice]:
    """``count`` samples in as few parts of at most ``most`` as there can be, none more than one larger than another."""
    parts = max(1, math.ceil(count / max(1, most)))
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def uses_batch_statistics(model: nn.Module) -> bool:
    """Whether a layer of ``model`` normalises by the batch as a whole (batch norm while training)."""
    return any(
        isinstance(part, _BATCH_NORMS) and (part.training or part.running_mean is None) for part in model.modules()
    )


def batch_part(batch: Any, part: slice) -> Any:
    """``batch`` with each of its tensors cut to the samples in ``part``; all else, and 0-dim tensors, stay whole."""

    def cut(value: Any) -> Any:
        return value[part] if isinstance(value, Tensor) and value.ndim else value

    return mapped(batch, cut)
