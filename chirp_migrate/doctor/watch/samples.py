"""Hashes and labels of the samples of a batch."""

from __future__ import annotations

from operator import index as as_int
from typing import Any

import torch

from chirp_migrate.doctor.recording import Moments, Task
from chirp_migrate.training.watch.samples import contents
from chirp_migrate.verify.equivalence.fingerprint import Hash, add_tensor

__all__ = ["bytes_of_doubles", "describe_batch"]

_MOST_COLUMNS = 256


def describe_batch(requested: Any, batch: Any, *, hashes: bool) -> Task:
    """The samples of a batch, by hash.

    Args:
        requested: what the sampler asked for: the indices of the batch, or one index where batches are not collated.
        batch: what the process read.
        hashes: whether its tensors are hashed and summed, which takes most of the time.
    """
    is_batch = isinstance(requested, (list, tuple))
    indices = _whole_numbers(requested if is_batch else [requested])
    tensors = [leaf for leaf in contents(batch).values() if _is_dense(leaf)]
    task = Task(indices=indices)
    if not tensors or not hashes:
        return task
    whole = Hash()
    for tensor in tensors:
        add_tensor(whole, tensor)
    task.whole = str(whole.hexdigest())[:16]
    if not is_batch:
        task.samples, task.sample_bytes = [task.whole], sum(tensor.nbytes for tensor in tensors)
        return task
    size = tensors[0].shape[0] if tensors[0].ndim else 0
    rows = [tensor for tensor in tensors if tensor.ndim and tensor.shape[0] == size and tensor.numel()]
    if not size or len(rows) < len(tensors) or (indices and len(indices) != size):
        return task  # the batch is not one row for each sample
    task.samples = _row_hashes(rows, size)
    task.sample_bytes = sum(tensor.nbytes for tensor in rows) // size
    task.moments = next((_moments(tensor) for tensor in rows if tensor.is_floating_point()), None)
    classes = [t for t in rows if t.ndim == 1 and not t.is_floating_point() and not t.is_complex()]
    task.labels = classes[-1].tolist() if len(classes) == 1 else []
    return task


def _moments(tensor: torch.Tensor) -> Moments | None:
    """Sums for each column, of images and signals for each channel."""
    if tensor.ndim < 2 or tensor.shape[1] > _MOST_COLUMNS:
        return None
    others = [axis for axis in range(tensor.ndim) if axis != 1]
    values = tensor.detach().cpu()
    values = values.float() if values.itemsize < 4 else values
    norms = torch.linalg.vector_norm(values, dim=others)
    count = tensor.numel() // tensor.shape[1]
    return Moments(count, values.sum(others).tolist(), [norm * norm for norm in norms.tolist()])


def bytes_of_doubles(batch: Any) -> dict[str, int]:
    """Bytes of each float64 tensor of a batch, by its place."""
    return {
        place: leaf.nbytes
        for place, leaf in contents(batch).items()
        if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64
    }


def _row_hashes(tensors: list[torch.Tensor], size: int) -> list[str]:
    hashes = [Hash() for _ in range(size)]
    for tensor in tensors:
        form = f"{tensor.dtype}{tuple(tensor.shape[1:])}".encode()
        flat = tensor.detach().cpu().contiguous().reshape(size, -1).view(torch.uint8).numpy()
        for one, row in zip(hashes, flat, strict=True):
            one.update(form)
            one.update(row.data)
    return [str(one.hexdigest())[:16] for one in hashes]


def _whole_numbers(indices: Any) -> list[int]:
    try:
        return [as_int(index) for index in indices]
    except TypeError:
        return []


def _is_dense(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not leaf.is_nested
