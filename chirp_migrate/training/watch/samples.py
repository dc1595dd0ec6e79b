"""Facts about a dataset from a few of its samples, collated as by the training's loader."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = [
    "can_read_samples",
    "contents",
    "differing_places",
    "leaf_type",
    "nested_class_names",
    "read",
    "unaugmented_dataset",
    "varying_places",
]

_SAMPLES = 3
_FETCHES = 6
_LONGEST_S = 2.0


def read(dataset: Any, indices: Sequence[int]) -> list[Any]:
    """Return the samples at ``indices``, read as by PyTorch's own loader."""
    many = getattr(dataset, "__getitems__", None)
    return list(many(list(indices))) if many else [dataset[index] for index in indices]


def contents(value: Any, place: str = "") -> dict[str, Any]:
    """Return tensors, arrays and other leaves of a batch, by their place in it."""
    if is_dataclass(value) and not isinstance(value, (Mapping, type)):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if not isinstance(value, (Mapping, list, tuple)):
        return {place: _tensor(value) if isinstance(value, np.ndarray) else value}
    items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else enumerate(value)
    return {inner: leaf for key, item in items for inner, leaf in contents(item, f"{place}[{key!r}]").items()}


def differing_places(first: Mapping[str, Any], second: Mapping[str, Any]) -> set[str]:
    """Return the places whose leaves differ in type, shape or value (to the last bit; NaN equals NaN)."""
    return {place for place in first.keys() | second.keys() if not _are_same(first.get(place), second.get(place))}


def leaf_type(leaf: Any) -> tuple[Any, ...]:
    """Return the type of a leaf, with dtype and shape of a tensor."""
    return (leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else (type(leaf),)


def varying_places(dataset: Any, collate: Callable[[list[Any]], Any]) -> set[str]:
    """Return the places of a batch that vary if the same sample is read again, because of augmentation.

    The first three samples are read six times each, or less often if that would take long. Random generators advance.
    """
    places: set[str] = set()
    until = time.monotonic() + _LONGEST_S
    for index in range(min(_SAMPLES, len(dataset))):
        first = contents(collate(read(dataset, [index])))
        for _ in range(_FETCHES - 1):
            places |= differing_places(first, contents(collate(read(dataset, [index]))))
            if time.monotonic() > until:
                return places
    return places


def can_read_samples(dataset: Any) -> bool:
    """Return whether a dataset has a length above 0 and reads samples by number."""
    if isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(dataset, "__getitem__"):
        return False
    try:
        return len(dataset) > 0
    except (TypeError, NotImplementedError):  # no length
        return False


def unaugmented_dataset(dataset: Any, collate: Callable[[list[Any]], Any]) -> Any | None:
    """Return a dataset of the same samples without augmentation, or None if there is none.

    It is either the dataset with its ``training`` switched off, or the nearest inner dataset of the same length whose
    samples do not vary.
    """
    if getattr(dataset, "training", None) is True:
        switched = copy.copy(dataset)
        switched.training = False
        if not varying_places(switched, collate):
            return switched
    inner = _inner_dataset(dataset)
    while inner is not None and len(inner) == len(dataset):
        if not varying_places(inner, collate):
            return inner
        inner = _inner_dataset(inner)
    return None


def nested_class_names(dataset: Any) -> str:
    """Return the class names from the outermost dataset inwards: ``AugmentedDataset > Subset > TensorDataset``."""
    names: list[str] = []
    inner = dataset
    while inner is not None and len(names) < 8:
        names.append(type(inner).__name__)
        inner = _inner_dataset(inner)
    return " > ".join(names)


def _inner_dataset(dataset: Any) -> Any | None:
    """Return the first attribute of a dataset that is a dataset; None if there is none."""
    held = getattr(dataset, "__dict__", {}).values()
    datasets = (value for value in held if isinstance(value, torch.utils.data.Dataset))
    return next((inner for inner in datasets if hasattr(inner, "__getitem__") and hasattr(inner, "__len__")), None)


def _tensor(array: NDArray[Any]) -> Any:
    """Return an array as a tensor; the array itself if PyTorch has no dtype for it (objects, text)."""
    try:
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError):
        return array


def _are_same(first: Any, second: Any) -> bool:
    if leaf_type(first) != leaf_type(second):
        return False
    if isinstance(first, torch.Tensor):
        if first.is_floating_point():
            return bool(torch.allclose(first, second, rtol=0.0, atol=0.0, equal_nan=True))
        return bool(torch.equal(first, second))
    try:
        return bool(first == second)
    except (ValueError, RuntimeError):  # arrays of objects, for example, have no single answer
        return repr(first) == repr(second)
