"""Read a few samples of a dataset to find out whether the dataset augments, and which values differ."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_SAMPLES = 3
_FETCHES = 6
_LONGEST_S = 2.0


def read_samples(dataset: Any, indices: Sequence[int]) -> list[Any]:
    """Read the samples at ``indices`` like PyTorch's loader: with ``__getitems__`` if the dataset has this method."""
    many = getattr(dataset, "__getitems__", None)
    return list(many(list(indices))) if many else [dataset[index] for index in indices]


def leaves_by_position(value: Any, place: str = "") -> dict[str, Any]:
    """Return a dictionary: position in the batch, such as ``[0]['x']`` → tensor, array or number at this position."""
    if is_dataclass(value) and not isinstance(value, (Mapping, type)):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if not isinstance(value, (Mapping, list, tuple)):
        return {place: _tensor(value) if isinstance(value, np.ndarray) else value}
    items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else enumerate(value)
    return {inner: leaf for key, item in items for inner, leaf in leaves_by_position(item, f"{place}[{key!r}]").items()}


def differing_positions(first: Mapping[str, Any], second: Mapping[str, Any]) -> set[str]:
    """Return the positions in two batches at which type, shape or any value differs (NaN equals NaN)."""
    return {place for place in first.keys() | second.keys() if not _are_same(first.get(place), second.get(place))}


def leaf_type(leaf: Any) -> tuple[Any, ...]:
    """Return the type of a value in a batch; for a tensor, its dtype and shape."""
    return (leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else (type(leaf),)


def augmented_positions(dataset: Any, collate: Callable[[list[Any]], Any]) -> set[str]:
    """Return the positions in a batch whose values change if the same sample is read again, because of augmentation.

    The function reads the first three samples six times each, for at most about two seconds. Reading changes the state
    of random generators.
    """
    places: set[str] = set()
    until = time.monotonic() + _LONGEST_S
    for index in range(min(_SAMPLES, len(dataset))):
        first = leaves_by_position(collate(read_samples(dataset, [index])))
        for _ in range(_FETCHES - 1):
            places |= differing_positions(first, leaves_by_position(collate(read_samples(dataset, [index]))))
            if time.monotonic() > until:
                return places
    return places


def can_read_samples(dataset: Any) -> bool:
    """Return whether a dataset is not empty and returns samples by index."""
    if isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(dataset, "__getitem__"):
        return False
    try:
        return len(dataset) > 0
    except (TypeError, NotImplementedError):  # the dataset has no length
        return False


def unaugmented_dataset(dataset: Any, collate: Callable[[list[Any]], Any]) -> Any | None:
    """Return a dataset of the same samples without augmentation; None if no such dataset is found.

    The result is a copy of the dataset with ``training = False``, if this value switches the augmentation off. If not,
    the result is the first wrapped dataset of the same length that does not augment.
    """
    if getattr(dataset, "training", None) is True:
        switched = copy.copy(dataset)
        switched.training = False
        if not augmented_positions(switched, collate):
            return switched
    inner = _inner_dataset(dataset)
    while inner is not None and len(inner) == len(dataset):
        if not augmented_positions(inner, collate):
            return inner
        inner = _inner_dataset(inner)
    return None


def nested_class_names(dataset: Any) -> str:
    """Return the class names of a dataset and its wrapped datasets: ``AugmentedDataset > Subset > TensorDataset``."""
    names: list[str] = []
    inner = dataset
    while inner is not None and len(names) < 8:
        names.append(type(inner).__name__)
        inner = _inner_dataset(inner)
    return " > ".join(names)


def _inner_dataset(dataset: Any) -> Any | None:
    """Return the wrapped dataset, the first attribute of ``dataset`` that is a dataset; None without a dataset."""
    held = getattr(dataset, "__dict__", {}).values()
    datasets = (value for value in held if isinstance(value, torch.utils.data.Dataset))
    return next((inner for inner in datasets if hasattr(inner, "__getitem__") and hasattr(inner, "__len__")), None)


def _tensor(array: NDArray[Any]) -> Any:
    """Convert an array to a tensor; return the array itself if PyTorch has no dtype for it (objects, text)."""
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
    except (ValueError, RuntimeError):  # the comparison returns an array
        return repr(first) == repr(second)
