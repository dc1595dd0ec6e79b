"""Find the datasets that a dataset wraps, such as the dataset in a ``Subset``, and its samples without augmentation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import index as as_int
from types import FunctionType
from typing import Any

from torch.utils.data import Dataset

from chirp_migrate.training.watch.samples import LONGEST_S, has_random_samples

_DEEPEST = 12


@dataclass(frozen=True)
class NestedDataset:
    """The dataset of a loader, or a dataset inside this dataset, such as the dataset in a ``Subset``.

    Attributes:
        dataset: the dataset.
        maps: tuple of lists of indices, such as ``Subset.indices``, which convert an index of the loader to an index of
            ``dataset``. The list of the outermost dataset comes first. The tuple is empty if the loader and ``dataset``
            use the same indices.
    """

    dataset: Any
    maps: tuple[Any, ...] = ()

    def index(self, index: int) -> int:
        """Convert an index from the loader's sampler to the index of the same sample in this dataset."""
        for indices in self.maps:
            index = as_int(indices[index])
        return index


def nested_datasets(dataset: Any) -> list[NestedDataset]:
    """Return the dataset of a loader and the datasets that it wraps, from the outermost to the innermost.

    The function looks for a wrapped dataset in the attributes of a dataset and in the closure of its ``__getitem__``.
    The result ends at a dataset that wraps no dataset or several datasets. It also ends at a dataset whose indices
    cannot be converted to indices of the wrapped dataset. Indices can be converted if the dataset has a list
    ``indices``, or has the same length as the wrapped dataset. The result has at most 12 datasets. The function calls
    no method of a dataset except ``__len__``.
    """
    found = [NestedDataset(dataset)]
    for outer, inner in islice(pairwise(_dataset_and_inner_datasets(dataset)), _DEEPEST - 1):
        indices, maps = getattr(outer, "indices", None), found[-1].maps
        if hasattr(indices, "__getitem__") and dataset_length(indices) == dataset_length(outer):
            found.append(NestedDataset(inner, (*maps, indices)))
        elif dataset_length(inner) == dataset_length(outer):
            found.append(NestedDataset(inner, maps))
        else:
            break
    return found


def unaugmented_dataset(dataset: Any, collate: Callable[[list[Any]], Any]) -> Any | None:
    """Return a dataset of the same samples without augmentation; None if no such dataset is found.

    If the attribute ``training`` of the dataset switches augmentation off, the result is a copy of the dataset with
    ``training = False``. Otherwise, the result is the outermost wrapped dataset that has the same length as ``dataset``
    and does not augment.
    """
    if getattr(dataset, "training", None) is True:
        switched = copy.copy(dataset)
        switched.training = False
        if has_random_samples(switched, collate, LONGEST_S) is False:
            return switched
    for inner in islice(_dataset_and_inner_datasets(dataset), 1, None):
        if len(inner) != len(dataset):
            break
        if has_random_samples(inner, collate, LONGEST_S) is False:
            return inner
    return None


def nested_class_names(dataset: Any) -> str:
    """Return the class names of a dataset and its wrapped datasets, such as ``Augmented > Subset > TensorDataset``."""
    return " > ".join(type(one).__name__ for one in islice(_dataset_and_inner_datasets(dataset), 8))


def dataset_length(dataset: Any) -> int | None:
    """Return the number of samples of a dataset; None if ``len(dataset)`` is not defined."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _dataset_and_inner_datasets(dataset: Any) -> Iterator[Any]:
    while dataset is not None:
        yield dataset
        dataset = _inner_dataset(dataset)


def _inner_dataset(dataset: Any) -> Any:
    """Return the dataset that ``dataset`` wraps; None if ``dataset`` wraps no dataset, or more than one dataset."""
    held: dict[int, Any] = {}
    for value in [
        *getattr(dataset, "__dict__", {}).values(),
        *_closure_contents(getattr(type(dataset), "__getitem__", None)),
    ]:
        if isinstance(value, Dataset) and hasattr(value, "__getitem__") and dataset_length(value) is not None:
            held[id(value)] = value
    return next(iter(held.values())) if len(held) == 1 else None


def _closure_contents(function: Any, depth: int = 3) -> Iterator[Any]:
    """Yield the values in the closure of a function, and in the closures of functions among these values."""
    if not isinstance(function, FunctionType) or depth == 0:
        return
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # the captured variable has no value yet
            continue
        yield value
        yield from _closure_contents(value, depth - 1)
