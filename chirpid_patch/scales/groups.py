"""How much memory a scale needs, what fits into a budget, and batches cut into parts for it (R-003)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def image_bytes(scale: int, *, channels: int = 3, batch_size: int = 1, dtype: torch.dtype = torch.float32) -> int:
    """Bytes of ``batch_size`` images (channels, scale, scale) of ``dtype``."""
    return batch_size * channels * scale * scale * dtype.itemsize


def group_scales(scales: Sequence[int], bytes_of: Callable[[int], int], budget: int | None) -> list[list[int]]:
    """``scales`` in their order, in as few groups as have room in ``budget`` bytes each; one scale a group without.

    A scale that is larger than the budget has a group to itself.
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
    """About how many bytes forward and backward of ``images`` (B, C, H, W) need beside the model itself.

    That is what the forward pass keeps for the backward pass, each memory once and parameters left out, plus twice the
    largest piece of it, for the gradients on their way through, plus the images. Runs ``model`` once, in its
    present mode and with gradients; random generators are left as they were.
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
    """``count`` samples in as few parts of at most ``most`` as there can be, none more than one larger than another."""
    parts = max(1, math.ceil(count / max(1, most)))
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def uses_batch_statistics(model: nn.Module) -> bool:
    """Whether a layer of ``model`` normalises by the batch as a whole (batch norm while training)."""
    return any(
        isinstance(part, _BATCH_NORMS) and (part.training or part.running_mean is None) for part in model.modules()
    )
