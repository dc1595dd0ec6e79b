"""Functions that estimate how much memory a scale needs, group scales by memory, and divide batches into parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def image_bytes(scale: int, *, channels: int = 3, batch_size: int = 1, dtype: torch.dtype = torch.float32) -> int:
    """Return the size in bytes of ``batch_size`` images of shape (channels, scale, scale)."""
    return batch_size * channels * scale * scale * dtype.itemsize


def group_scales(scales: Sequence[int], bytes_of: Callable[[int], int], budget: int | None) -> list[list[int]]:
    """Divide ``scales`` into as few groups as possible, and return the groups.

    The order of the scales does not change. Each group needs at most ``budget`` bytes. A scale that needs more than
    ``budget`` bytes forms a group of its own.

    Args:
        scales: the scales in pixels.
        bytes_of: function that returns how many bytes a scale needs.
        budget: largest number of bytes of a group; None: each scale forms a group of its own.
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


def estimate_step_bytes(model: nn.Module, images: Tensor) -> int:
    """Estimate how many bytes a training step with ``images`` (B, C, H, W) needs, in addition to the model.

    The estimate is the sum of three sizes:

    * the size of the images
    * the size of all tensors that the forward pass saves for the backward pass, except the parameters
    * twice the size of the largest of these tensors, for gradients

    The function runs ``model`` once, in its current mode and with gradients, and restores the random generators.
    """
    own = {part.untyped_storage().data_ptr() for part in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # without detach, the tensor would keep the graph alive

    devices = [images.device] if images.device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices=devices),
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed),
    ):
        outputs = model(images)
        del outputs
    return images.nbytes + sum(kept.values()) + 2 * max(kept.values(), default=0)


def even_slices(count: int, max_size: int) -> list[slice]:
    """Divide ``count`` samples into as few parts as possible, each of at most ``max_size`` samples.

    The sizes of the parts differ by at most one.
    """
    parts = max(1, math.ceil(count / max(1, max_size)))
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def uses_batch_statistics(model: nn.Module) -> bool:
    """Return whether a layer of ``model`` computes statistics over the whole batch.

    Such a layer is a batch norm in training mode, or a batch norm without running statistics.
    """
    return any(
        isinstance(part, _BATCH_NORMS) and (part.training or part.running_mean is None) for part in model.modules()
    )
