"""A function that replaces the tensors of a dataset by copies on a device, so that batches are built on the device."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from torch import Tensor
from torch.utils.data import TensorDataset

from chirpid_patch.datasets.arrays import WorkerSafeArrayDataset
from chirpid_patch.datasets.augmented import WorkerSafeAugmentedDataset
from chirpid_patch.datasets.gather import (
    DeviceTensorDataset,
    gather_node,
    is_unmodified_batched_dataset,
    reads_like_class,
    subset_or_concat_node,
)
from chirpid_patch.datasets.sequence import WorkerSafeSequenceDataset
from chirpid_patch.datasets.standardized import WorkerSafeStandardizedDataset
from chirpid_patch.declaration import batched_object_for
from chirpid_patch.device.resident_tensors import NotResidentError
from chirpid_patch.transforms.spectrograms import GaussianNoise, SpecAugment, Standardize, is_batchable
from chirpid_patch.transforms.symmetries import FlipsAndTurns

#: Transforms that support batches on any device.
_TRANSFORMS = (SpecAugment, GaussianNoise, Standardize, FlipsAndTurns)
#: Datasets of this package that contain another dataset.
_DATASETS_OVER_OTHERS = (WorkerSafeStandardizedDataset, WorkerSafeAugmentedDataset, WorkerSafeSequenceDataset)
#: Methods that build batches. Subclasses that override one of these methods are not supported.
_BATCH_METHODS = (
    "read_sample",
    "read_batch",
    "_stages",
    "operands",
    "transform_rows_",
    "transform_batch",
    "mask_places",
)

#: Type of functions that return the copy of a tensor on the device.
Copy = Callable[[Tensor], Tensor]


def _behaves_as(thing: Any, kind: type) -> bool:
    """Return whether ``thing`` is an instance of ``kind`` whose class overrides no method in ``_BATCH_METHODS``."""
    unchanged = (getattr(type(thing), name, None) == getattr(kind, name, None) for name in _BATCH_METHODS)
    return isinstance(thing, kind) and all(unchanged)


def _reads_as(dataset: Any, kind: type) -> bool:
    return is_unmodified_batched_dataset(dataset) and _behaves_as(dataset, kind)


def sample_source_tensors(dataset: Any) -> list[Tensor]:
    """Return the tensors whose rows are the samples of ``dataset``.

    Raises:
        NotResidentError: batches cannot be built from tensors on a device. The message names the reason.
    """
    if reads_like_class(dataset, TensorDataset):
        return list(dataset.tensors)
    if gather_node(dataset).samples_are_rows:
        raise NotResidentError(
            "the dataset is itself a tensor or array: only tensors inside a dataset, such as a TensorDataset, can be "
            "on a device"
        )
    joint = subset_or_concat_node(dataset)
    node: Any = batched_object_for(dataset) if joint is None else joint
    if joint is None and _reads_as(node, WorkerSafeArrayDataset):
        return [node.x, node.y]
    if joint is None and not any(_reads_as(node, kind) for kind in _DATASETS_OVER_OTHERS):
        own = f"{_name(node)} reads samples with its own code"
        what = "the samples are the items of a list" if isinstance(node, list | tuple) else own
        raise NotResidentError(f"{what}: only rows of tensors and arrays can be stored on a device")
    stages = node._stages() if isinstance(node, WorkerSafeAugmentedDataset) and node.training else []
    for _, one in stages:
        if not (is_batchable(one) and any(_behaves_as(one, kind) for kind in _TRANSFORMS)):
            raise NotResidentError(f"the augmentation {_name(one)} only supports single samples")
    return list(chain.from_iterable(map(sample_source_tensors, node.children)))


def _name(thing: Any) -> str:
    return str(getattr(thing, "__name__", type(thing).__name__))


def replace_tensors(dataset: Any, copy_tensor: Copy) -> Any:
    """Return a copy of ``dataset`` whose tensors are replaced by ``copy_tensor(tensor)``.

    The function replaces the tensors that ``sample_source_tensors`` returns. The function also replaces means and
    standard deviations that are tensors with one or more axes. 0-dim tensors stay on the CPU, because PyTorch can
    combine a 0-dim CPU tensor with tensors on a device.
    """
    if reads_like_class(dataset, TensorDataset):
        return DeviceTensorDataset(*map(copy_tensor, dataset.tensors))
    joint = subset_or_concat_node(dataset)
    if joint is not None:
        children = [replace_tensors(child, copy_tensor) for child in joint.children]
        return _copy_without_constructor(
            dataset, **{"datasets": children} if hasattr(dataset, "datasets") else {"dataset": children[0]}
        )
    dataset = batched_object_for(dataset)
    if isinstance(dataset, WorkerSafeArrayDataset):
        return _copy_without_constructor(dataset, x=copy_tensor(dataset.x), y=copy_tensor(dataset.y))
    if isinstance(dataset, WorkerSafeSequenceDataset):
        return _copy_without_constructor(dataset, data_list=replace_tensors(dataset.data_list, copy_tensor))
    below = replace_tensors(dataset.base_dataset, copy_tensor)
    if isinstance(dataset, WorkerSafeStandardizedDataset):
        mean, divisor = (
            copy_tensor(one) if isinstance(one, Tensor) and one.ndim else one for one in dataset.operands()
        )
        return _copy_without_constructor(dataset, base_dataset=below, _cached=((mean, divisor), {}))
    return _copy_without_constructor(dataset, base_dataset=below)


def _copy_without_constructor(original: Any, /, **changed: Any) -> Any:
    duplicate = object.__new__(type(original))
    duplicate.__dict__.update(vars(original), **changed)
    return duplicate
