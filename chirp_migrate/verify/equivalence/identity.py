"""Identify the samples of a loader by their indices in the innermost dataset, such as the dataset in a ``Subset``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import index as as_int
from types import FunctionType
from typing import Any

from torch.utils.data import Dataset

from chirp_migrate.verify.equivalence.fingerprint import leaf_fingerprints

_DEEPEST = 12


@dataclass(frozen=True)
class NestedDataset:
    """The dataset of a loader, or a dataset that this dataset wraps.

    Attributes:
        dataset: the dataset.
        maps: index lists, such as ``Subset.indices``, that convert an index of the loader to an index of ``dataset``;
            the list of the outermost dataset comes first.
    """

    dataset: Any
    maps: tuple[Any, ...] = ()

    def index(self, index: int) -> int:
        """Convert an index of the loader to the index of the same sample in this dataset."""
        for indices in self.maps:
            index = as_int(indices[index])
        return index


def nested_datasets(dataset: Any) -> list[NestedDataset]:
    """Return the dataset of a loader and the datasets that it wraps, from the outermost to the innermost.

    The function finds a wrapped dataset in an attribute or in the closure of ``__getitem__``. The result ends at a
    dataset that wraps several datasets. To find the samples of a dataset in the wrapped dataset, the function needs a
    list ``indices`` or equal lengths. Without both, the result also ends. The function calls no method of a dataset
    except ``__len__``.
    """
    found = [NestedDataset(dataset)]
    while len(found) < _DEEPEST:
        here = found[-1]
        below = _inner_dataset(here.dataset)
        if below is None:
            return found
        indices = getattr(here.dataset, "indices", None)
        if hasattr(indices, "__getitem__") and dataset_length(indices) == dataset_length(here.dataset):
            found.append(NestedDataset(below, (*here.maps, indices)))
        elif dataset_length(below) == dataset_length(here.dataset):
            found.append(NestedDataset(below, here.maps))
        else:
            return found
    return found


def describe_dataset(dataset: Any) -> str:
    """Return the length and a few samples of a dataset as text. Both versions have the same text for the same data.

    If samples are random or cannot be read by index, the text contains only the length. Reading samples may
    change the state of random generators, which the caller must restore.
    """
    samples = dataset_length(dataset)
    if not samples:
        return str(samples)
    numbers = sorted({0, samples // 2, samples - 1})
    try:
        once, again = ([leaf_fingerprints(dataset[number]) for number in numbers] for _ in range(2))
    except Exception:  # the dataset cannot be read by index here
        return str(samples)
    if once != again:
        return str(samples)
    return f"{samples} {sorted(leaf_fingerprints(once).items())!r}"


def dataset_length(dataset: Any) -> int | None:
    """Return the number of samples of a dataset; None if it has no length."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _inner_dataset(dataset: Any) -> Any:
    """Return the dataset that ``dataset`` wraps; None if it wraps no dataset or more than one."""
    held: dict[int, Any] = {}
    for value in [
        *getattr(dataset, "__dict__", {}).values(),
        *_closure_contents(getattr(type(dataset), "__getitem__", None)),
    ]:
        if isinstance(value, Dataset) and hasattr(value, "__getitem__") and dataset_length(value) is not None:
            held[id(value)] = value
    return next(iter(held.values())) if len(held) == 1 else None


def _closure_contents(function: Any, depth: int = 3) -> Iterator[Any]:
    """Yield the values that a function captures in its closure, and the values that captured functions capture."""
    if not isinstance(function, FunctionType) or depth == 0:
        return
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # the captured variable has no value yet
            continue
        yield value
        yield from _closure_contents(value, depth - 1)
