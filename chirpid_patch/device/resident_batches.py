"""Batches of datasets whose tensors are on a device, gathered, standardised and augmented there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from chirpid_patch.datasets.arrays import WorkerSafeArrayDataset
from chirpid_patch.datasets.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.datasets.gather import Batch, Part, have_one_kind, is_exactly, is_shipped, joint_of
from chirpid_patch.datasets.rows import map_indices, positions_of
from chirpid_patch.datasets.sequence import WorkerSafeSequenceDataset
from chirpid_patch.datasets.standardized import WorkerSafeStandardizedDataset
from chirpid_patch.declaration import served
from chirpid_patch.device.resident_tensors import NotResidentError, ResidentTensors
from chirpid_patch.device.resident_transforms import on_device, standardized
from chirpid_patch.device.same_code import runs_code_of
from chirpid_patch.randomness.keyed_random import RandomKey, derive


def _reads_as(dataset: Any, kind: type) -> bool:
    return is_shipped(dataset) and runs_code_of(type(dataset), kind)


def base_tensors(dataset: Any) -> list[Tensor]:
    """The tensors that all samples of ``dataset`` are rows of.

    Raises NotResidentError, which names what is in the way, if batches could not be made from these on a device.
    """
    if is_exactly(dataset, TensorDataset):
        return list(dataset.tensors)
    joint = joint_of(dataset)
    if joint is not None:
        return list(chain.from_iterable(map(base_tensors, joint.children)))
    dataset = served(dataset)
    if _reads_as(dataset, WorkerSafeArrayDataset):
        return [dataset.x, dataset.y]
    if _reads_as(dataset, WorkerSafeSequenceDataset):
        return base_tensors(dataset.data_list)
    if _reads_as(dataset, WorkerSafeStandardizedDataset):
        return base_tensors(dataset.base_dataset)
    if _reads_as(dataset, WorkerSafeAugmentedDataset):
        others = [one for _, one in dataset._stages() if on_device(one) is None] if dataset.training else []
        if others:
            raise NotResidentError(f"{_name(others[0])} is augmentation that only works on single samples")
        return base_tensors(dataset.base_dataset)
    what = "samples are a list" if isinstance(dataset, list | tuple) else f"{_name(dataset)} reads its samples itself"
    raise NotResidentError(f"{what}: only rows of tensors and arrays can be held")


def _name(thing: Any) -> str:
    return str(getattr(thing, "__name__", type(thing).__name__))


class ResidentBatches:
    """Reads batches from tensors that are on a device.

    What ``fetch_batch`` does on the CPU, with the same keys; to the last bit where the device computes as the CPU.
    """

    def __init__(self, resident: ResidentTensors) -> None:
        self._resident = resident
        self._readers: dict[type, Callable[[Any, Sequence[Any], RandomKey | None], Batch | None]] = {
            WorkerSafeArrayDataset: self._of_arrays,
            WorkerSafeSequenceDataset: self._of_sequence,
            WorkerSafeStandardizedDataset: self._standardized,
            WorkerSafeAugmentedDataset: self._augmented,
        }

    def read(self, dataset: Any, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        """The collated samples at ``indices``, on the device; None where only the CPU can read them, or refuses to."""
        if len(indices) == 0:
            return None
        if is_exactly(dataset, TensorDataset):
            return self._gather(dataset.tensors, positions_of(indices, len(dataset)))
        joint = joint_of(dataset)
        if joint is not None:
            return self._joined(joint.resolve(indices), key)
        dataset = served(dataset)
        for kind, read in self._readers.items():
            if _reads_as(dataset, kind):
                return read(dataset, indices, key)
        return None

    def _gather(self, tensors: Sequence[Tensor], positions: list[int] | None) -> Batch | None:
        if positions is None:
            return None
        there = [self._resident.get(tensor) for tensor in tensors]
        rows = self._resident.send(np.array(positions, dtype=np.int64))
        batch = [values.index_select(0, rows) for values in there if values is not None]
        return batch if len(batch) == len(there) else None

    def _pairs(self, dataset: Any, indices: Sequence[Any], key: RandomKey | None) -> Batch | None:
        batch = self.read(dataset, indices, key)
        return batch if batch is not None and len(batch) == 2 else None

    def _of_arrays(
        self, dataset: WorkerSafeArrayDataset, indices: Sequence[Any], key: RandomKey | None
    ) -> Batch | None:
        batch = self._gather((dataset.x, dataset.y), positions_of(indices, len(dataset)))
        if batch is None:
            return None
        x = batch[0] if dataset.dtype is None else batch[0].to(dataset.dtype)
        return [x if dataset.divisor is None else x / self._resident.operand(dataset.divisor, x), batch[1]]

    def _of_sequence(
        self, dataset: WorkerSafeSequenceDataset, indices: Sequence[Any], key: RandomKey | None
    ) -> Batch | None:
        return self.read(dataset.data_list, indices, key)

    def _standardized(
        self, dataset: WorkerSafeStandardizedDataset, indices: Sequence[Any], key: RandomKey | None
    ) -> Batch | None:
        mapped = map_indices(dataset.indices, indices)
        batch = None if mapped is None else self._pairs(dataset.base_dataset, mapped, key)
        if batch is None:
            return None
        x = standardized(batch[0], dataset.mean, dataset.std, dataset.eps, self._resident)
        return None if x is None else [x, batch[1]]

    def _augmented(
        self, dataset: WorkerSafeAugmentedDataset, indices: Sequence[Any], key: RandomKey | None
    ) -> Batch | None:
        stages = dataset._stages() if dataset.training else []
        applied = [(position, one, on_device(one)) for position, one in stages]
        if any(apply is None for *_, apply in applied) or (stages and key is None):
            return None
        batch = self._pairs(dataset.base_dataset, indices, None if key is None else key.deeper())
        if batch is None or key is None:
            return batch
        x, keys = batch[0], key.sample_keys()
        for position, transform, apply in applied:
            assert apply is not None
            x = apply(transform, x, derive(keys, *position), self._resident)
            if x is None:
                return None
        return [x, batch[1]]

    def _joined(self, parts: list[Part] | None, key: RandomKey | None) -> Batch | None:
        """A batch across the children: one read a part, put back into the order asked for."""
        if parts is None:
            return None
        batches = []
        for part in parts:
            batch = self.read(part.dataset, part.indices, part.key(key))
            if batch is None:
                return None
            batches.append(batch)
        if not have_one_kind(batches):
            return None  # the CPU's reading raises what there is to raise
        places = [part.places for part in parts if part.places is not None]
        if len(batches) == 1:
            return batches[0]
        back = self._resident.send(np.argsort(np.concatenate(places)))
        return [torch.cat(columns).index_select(0, back) for columns in zip(*batches, strict=True)]
