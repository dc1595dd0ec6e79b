"""Compute hashes, labels and sums of the samples in a batch, and properties of the batch's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_int
from typing import Any

import torch
import xxhash

from chirp_migrate.doctor.recording import BatchRecord, LoaderPass, ValueSums
from chirp_migrate.training.watch.samples import leaves_by_position, short_hash, tensor_hash

_MOST_COLUMNS = 256
_LEAST_MOVED = 1 << 20


def describe_batch(requested_indices: Any, batch: Any, *, hash_every: int) -> BatchRecord:
    """Return the record of a batch, with hashes of its samples.

    Args:
        requested_indices: the indices of the samples, as the sampler yields them; a single index if the loader does not
            batch.
        batch: the batch that the process read for these indices.
        hash_every: distance between the samples that are hashed. With 1, the function hashes all samples, and also sums
            their values, which is slow. With N > 1, the function hashes only the samples whose index is a multiple of
            N. With 0, the function hashes no samples.
    """
    is_batch = isinstance(requested_indices, (list, tuple))
    indices = _whole_numbers(requested_indices if is_batch else [requested_indices])
    task = BatchRecord(indices=indices)
    chosen = [place for place, index in enumerate(indices) if index % hash_every == 0] if hash_every > 1 else []
    tensors = (
        [leaf for leaf in leaves_by_position(batch).values() if _is_dense(leaf)] if hash_every == 1 or chosen else []
    )
    if not tensors:
        return task
    size = (tensors[0].shape[0] if tensors[0].ndim else 0) if is_batch else 0
    rows = [tensor for tensor in tensors if tensor.ndim and tensor.shape[0] == size and tensor.numel()]
    is_rows = bool(size) and len(rows) == len(tensors) and (not indices or len(indices) == size)
    if hash_every > 1:
        if is_rows:
            task.some = dict(zip((indices[one] for one in chosen), _row_hashes(rows, chosen), strict=True))
        elif not is_batch:
            task.some = {indices[0]: tensor_hash(*tensors)}
        return task
    if not is_rows:  # one sample, or a batch without one row per sample
        task.whole = tensor_hash(*tensors)
        if not is_batch:
            task.samples, task.sample_bytes = [task.whole], sum(tensor.nbytes for tensor in tensors)
        return task
    task.samples = _row_hashes(rows, range(size))
    task.whole = short_hash("".join(task.samples).encode())
    task.sample_bytes = sum(tensor.nbytes for tensor in rows) // size
    task.moments = next((_moments(tensor) for tensor in rows if tensor.is_floating_point()), None)
    classes = [t for t in rows if t.ndim == 1 and not t.is_floating_point() and not t.is_complex()]
    task.labels = classes[-1].tolist() if len(classes) == 1 else []
    return task


def _moments(tensor: torch.Tensor) -> ValueSums | None:
    """Return sums over the values of each column of a table, or of each channel of images and signals."""
    if tensor.ndim < 2 or tensor.shape[1] > _MOST_COLUMNS:
        return None
    others = [axis for axis in range(tensor.ndim) if axis != 1]
    values = tensor.detach().cpu()
    values = values.float() if values.itemsize < 4 else values
    norms = torch.linalg.vector_norm(values, dim=others)
    count = tensor.numel() // tensor.shape[1]
    ends = torch.aminmax(values, dim=0) if tensor.ndim == 2 and tensor.numel() else None
    lows, highs = ([], []) if ends is None else (ends.min.tolist(), ends.max.tolist())
    return ValueSums(count, values.sum(others).tolist(), [norm * norm for norm in norms.tolist()], lows, highs)


def record_tensors(one: LoaderPass, batch: Any) -> None:
    """Add the float64 tensors of a batch, and its CPU tensors of 1 MiB or more, to the recording of a loader pass."""
    leaves = leaves_by_position(batch)
    tensors = {place: leaf for place, leaf in leaves.items() if isinstance(leaf, torch.Tensor)}
    one.doubles = {place: leaf.nbytes for place, leaf in tensors.items() if leaf.dtype == torch.float64}
    large = {
        place: leaf
        for place, leaf in tensors.items()
        if _is_dense(leaf) and leaf.device.type == "cpu" and leaf.nbytes >= _LEAST_MOVED
    }
    one.moved = {place: leaf.nbytes for place, leaf in large.items()}
    one.is_pinned = all(leaf.is_pinned() for leaf in large.values())
    one.strided = [place for place, leaf in large.items() if not _is_in_order(leaf)]


def _is_in_order(tensor: torch.Tensor) -> bool:
    orders = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.is_contiguous() or (tensor.ndim in orders and tensor.is_contiguous(memory_format=orders[tensor.ndim]))


def _row_hashes(tensors: list[torch.Tensor], rows: Sequence[int]) -> list[str]:
    """Return a hash for each row number in ``rows``. This hash covers the row with this number in all tensors.

    The hash of a row in one tensor is the seed for hashing this row in the next tensor, so the last hash covers all
    tensors.
    """
    forms = "".join(f"{tensor.dtype}{tuple(tensor.shape[1:])}" for tensor in tensors)
    hashes = [int(xxhash.xxh3_64_intdigest(forms.encode()))] * len(rows)
    for tensor in tensors:
        values = tensor.detach().cpu().contiguous()
        flat = values.reshape(len(values), -1).view(torch.uint8).numpy()
        hashes = [xxhash.xxh3_64_intdigest(flat[row].data, seed) for row, seed in zip(rows, hashes, strict=True)]
    return [f"{one:016x}" for one in hashes]


def _whole_numbers(indices: Any) -> list[int]:
    try:
        return [as_int(index) for index in indices]
    except TypeError:
        return []


def _is_dense(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not leaf.is_nested
