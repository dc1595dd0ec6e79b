"""What the ranks of a validation found, put together: every sample once, in the dataset's order (R-001)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, SequentialSampler


def gather_predictions(
    batches: Sequence[Any], loader: DataLoader[Any], group: dist.ProcessGroup | None = None
) -> Tensor | np.ndarray[Any, Any] | list[Any]:
    """The outputs for all samples of a validation loader, on every rank, in the order of the dataset.

    ``batches`` has one output for each batch of this rank, as ``loader`` gave them: tensors (B, …), arrays (B, …) or
    sequences of B picklable values; a rank without samples passes none. The result is a tensor on the CPU, an array or
    a list with one row for each sample of ``loader.dataset``. A sample that several ranks had (padding, or a loader
    that was not shared) counts once. It is a collective call: every rank of ``group`` has to make it. With the NCCL
    backend call ``torch.cuda.set_device`` before, as ``torch.distributed.all_gather_object`` needs it.

    Raises, on every rank alike:
        ValueError: the loader shuffles or has a sampler of the caller's own; a rank has more or fewer rows than
            samples; samples are missing (``drop_last``).
        RuntimeError: the loader is one of several ranks, and ``torch.distributed`` is not initialised.
    """
    ranks = _ranks_in_order(loader)
    if ranks > 1 and not _connected():
        raise RuntimeError(
            f"the loader is one of {ranks} ranks: call torch.distributed.init_process_group before gathering"
        )
    outputs = [batch.detach().cpu() if isinstance(batch, Tensor) else batch for batch in batches]
    parts = _exchanged((list(loader.sampler), outputs), group)
    for rank, (indices, found) in enumerate(parts):
        rows = sum(_rows(output) for output in found)
        if rows != len(indices):
            raise ValueError(
                f"rank {rank} has outputs for {rows} of its {len(indices)} samples: pass those of one whole pass"
            )
    indices = np.array([index for indices, _ in parts for index in indices], dtype=np.int64)
    _, first = np.unique(indices, return_index=True)
    samples = len(loader.dataset)  # type: ignore[arg-type]
    if len(first) != samples:
        raise ValueError(
            f"the ranks have {len(first)} of {samples} samples: make the loader with "
            "OptimalDataLoaderFactory.create_validation_loader(…, distributed=True)"
        )
    return _in_order([output for _, found in parts for output in found], first)


def sum_metrics(sums: Mapping[str, float | Tensor], group: dist.ProcessGroup | None = None) -> dict[str, float]:
    """The sums of all ranks' numbers, name by name, the same on every rank; a name that a rank lacks counts 0 there.

    Ranks have different numbers of samples, so sum what adds up, and divide afterwards::

        total = sum_metrics({"loss": loss_sum, "correct": correct, "samples": samples})
        accuracy = total["correct"] / total["samples"]

    It is a collective call. Without ``torch.distributed`` the numbers come back as floats.
    """
    parts = _exchanged({name: float(value) for name, value in sums.items()}, group)
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: math.fsum(part.get(name, 0.0) for part in parts) for name in names}


def _ranks_in_order(loader: DataLoader[Any]) -> int:
    """For how many ranks the loader goes through the dataset in order."""
    sampler, batches = loader.sampler, loader.batch_sampler
    in_batches = batches is None or (type(batches) is BatchSampler and batches.sampler is sampler)
    if in_batches and isinstance(sampler, DistributedSampler) and not sampler.shuffle:
        return sampler.num_replicas
    if in_batches and isinstance(sampler, SequentialSampler):
        return 1
    raise ValueError("outputs are gathered of a loader that goes through its dataset in order: one for validation")


def _connected() -> bool:
    return dist.is_available() and dist.is_initialized()


def _exchanged(own: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """``own`` of every rank, by rank."""
    if not _connected():
        return [own]
    parts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(parts, own, group=group)
    return parts


def _rows(output: Any) -> int:
    try:
        return len(output)
    except TypeError:
        raise ValueError("an output of a batch must have one row for each sample, not a single value") from None


def _in_order(outputs: list[Any], positions: np.ndarray[Any, Any]) -> Tensor | np.ndarray[Any, Any] | list[Any]:
    """The rows of ``outputs`` at ``positions``."""
    if outputs and all(isinstance(output, Tensor) for output in outputs):
        return torch.cat(outputs)[torch.from_numpy(positions)]
    if outputs and all(isinstance(output, np.ndarray) for output in outputs):
        joined: np.ndarray[Any, Any] = np.concatenate(outputs)[positions]
        return joined
    rows = [row for output in outputs for row in output]
    return [rows[position] for position in positions]
