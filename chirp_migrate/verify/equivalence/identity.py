"""The identity of a loader's samples: its indices, traced to the innermost dataset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import index as as_int
from types import FunctionType
from typing import Any

from torch.utils.data import Dataset

from chirp_migrate.verify.equivalence.fingerprint import fingerprint

__all__ = ["DatasetLevel", "length", "name_of", "nested_datasets"]

_DEEPEST = 12


@dataclass(frozen=True)
class DatasetLevel:
    """The dataset of a loader, or a dataset inside it.

    Attributes:
        dataset: the dataset.
        maps: index sequences on the path to this dataset, such as those of a ``Subset``, in order of application.
    """

    dataset: Any
    maps: tuple[Any, ...] = ()

    def index(self, index: int) -> int:
        """Return the index in this dataset of the loader's ``index``."""
        for indices in self.maps:
            index = as_int(indices[index])
        return index


def nested_datasets(dataset: Any) -> list[DatasetLevel]:
    """Return the dataset of a loader and the datasets inside it, from the outermost to the innermost.

    The function descends into wrappers of a single dataset, which is in an attribute or in the closure of
    ``__getitem__``, and whose samples are in the same order or at ``indices``. It calls nothing but ``len``.
    """
    found = [DatasetLevel(dataset)]
    while len(found) < _DEEPEST:
        here = found[-1]
        below = _inner_dataset(here.dataset)
        if below is None:
            return found
        indices = getattr(here.dataset, "indices", None)
        if hasattr(indices, "__getitem__") and length(indices) == length(here.dataset):
            found.append(DatasetLevel(below, (*here.maps, indices)))
        elif length(below) == length(here.dataset):
            found.append(DatasetLevel(below, here.maps))
        else:
            return found
    return found


def name_of(dataset: Any) -> str:
    """Return length and a few samples of a dataset as text, which is equal in both versions for the same data.

    For a dataset whose samples vary or cannot be read by number, the text is only the length. Reading samples may draw
    random numbers, whose state the caller restores.
    """
    samples = length(dataset)
    if not samples:
        return str(samples)
    numbers = sorted({0, samples // 2, samples - 1})
    try:
        once, again = ([fingerprint(dataset[number]) for number in numbers] for _ in range(2))
    except Exception:  # the datasets around it have names for its samples
        return str(samples)
    if once != again:
        return str(samples)
    return f"{samples} {sorted(fingerprint(once).items())!r}"


def length(dataset: Any) -> int | None:
    """Return the number of samples of a dataset; None if it has no length."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _inner_dataset(dataset: Any) -> Any:
    """Return the only dataset inside ``dataset``; None if there is none or more than one."""
    held: dict[int, Any] = {}
    for value in [
        *getattr(dataset, "__dict__", {}).values(),
        *_closure_contents(getattr(type(dataset), "__getitem__", None)),
    ]:
        if isinstance(value, Dataset) and hasattr(value, "__getitem__") and length(value) is not None:
            held[id(value)] = value
    return next(iter(held.values())) if len(held) == 1 else None


def _closure_contents(function: Any, depth: int = 3) -> Iterator[Any]:
    """Yield the contents of a function's closure, and of functions in it."""
    if not isinstance(function, FunctionType) or depth == 0:
        return
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        yield value
        yield from _closure_contents(value, depth - 1)
