"""Memory of a scale, groups of scales that fit a budget, and batches divided into parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def image_bytes(scale: int, *, channels: int = 3, batch_size: int = 1, dtype: torch.dtype = torch.float32) -> int:
    """Return the bytes of ``batch_size`` images (channels, scale, scale) of ``dtype``."""
    return batch_size * channels * scale * scale * dtype.itemsize


def group_scales(scales: Sequence[int], bytes_of: Callable[[int], int], budget: int | None) -> list[list[int]]:
    """Divide ``scales``, in order, into the fewest groups that fit ``budget`` bytes each; None: one scale in a group.

    A scale that exceeds the budget has its own group.
    """
    groups: list[list[int]] = []
    left = 0
    for scale in scales:
        need = bytes_of(scale)
        if groups and budget is not None and need <= left:
            groups[-1].append(scale)
        else:
            groups.append([scale])
            left = budget or 0
        left -= need
    return groups


def step_bytes(model: nn.Module, images: Tensor) -> int:
    """Estimate the bytes of forward and backward pass of ``images`` (B, C, H, W), without the model itself.

    The estimate is the memory that the forward pass keeps for the backward pass (each storage once, without
    parameters), plus twice its largest tensor for gradients, plus the images. The function runs ``model`` once, in its
    current mode and with gradients, and restores the random generators.
    """
    own = {part.untyped_storage().data_ptr() for part in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would keep its own graph alive

    devices = [images.device] if images.device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices=devices),
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(pack, _as_kept),
    ):
        outputs = model(images)
        del outputs
    return images.nbytes + sum(kept.values()) + 2 * max(kept.values(), default=0)


def _as_kept(packed: Any) -> Any:
    return packed


def even_parts(count: int, most: int) -> list[slice]:
    """Divide ``count`` samples into the fewest parts of at most ``most``, whose sizes differ by at most one."""
    parts = max(1, math.ceil(count / max(1, most)))
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def uses_batch_statistics(model: nn.Module) -> bool:
    """Return whether a layer of ``model`` normalises by the whole batch (batch norm while training)."""
    return any(
        isinstance(part, _BATCH_NORMS) and (part.training or part.running_mean is None) for part in model.modules()
    )
