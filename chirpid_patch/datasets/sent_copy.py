"""A function that copies datasets for worker processes.

Later assignments to attributes of a dataset do not affect its copy.

The copy stores long lists of indices as arrays, which saves memory in forked workers. A forked worker shares the memory
of the main process until one of the two processes writes to this memory. Reading a Python object from a list writes to
the object's reference count. So each worker would gradually get its own copy of a list of a million indices. An array
of numbers contains no Python objects, so reading an array copies nothing.
"""

from __future__ import annotations

import copy
from array import array
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from chirpid_patch.datasets.gather import is_in_memory, is_unmodified_batched_dataset, reads_like_class
from chirpid_patch.transforms.spectrograms import is_batchable

#: Smallest number of indices that the copy stores in an array instead of a list.
_SHORTEST_ARRAY = 1024


def copy_for_workers(dataset: Any, _made: dict[int, Any] | None = None) -> Any:
    """Return a copy of ``dataset`` for worker processes.

    The function copies every in-memory dataset. The function also copies every dataset of this package, ``Subset`` and
    ``ConcatDataset``, if no code overrides the methods that read its samples. Datasets whose class has ``__del__`` are
    not copied. The same applies to the inner datasets of copied datasets. The function also copies the indices of these
    datasets. In a list ``transforms``, the function copies the transforms of this package. Indices in the copy have the
    same types and values. The copy and ``dataset`` share all other objects, such as tensors and arrays. The function
    calls no method of user classes, such as ``__init__`` or ``__getstate__``.
    """
    made = {} if _made is None else _made  # a dataset may refer to its own subsets
    if id(dataset) in made:
        return made[id(dataset)]
    if type(dataset) in (Tensor, np.ndarray):
        return dataset
    kinds = (Subset, ConcatDataset)
    known = (
        is_unmodified_batched_dataset(dataset)
        or any(reads_like_class(dataset, kind) for kind in kinds)
        or is_in_memory(dataset)
    )
    if not known or hasattr(type(dataset), "__del__"):  # __del__ of the copy could close a file of the original
        return dataset
    made[id(dataset)] = duplicate = object.__new__(type(dataset))
    duplicate.__dict__.update({name: _sent_part(name, part, made) for name, part in vars(dataset).items()})
    return duplicate


def _sent_part(name: str, part: Any, made: dict[int, Any]) -> Any:
    if name == "indices":
        return _as_array(part)
    if type(part) is list:
        kept = name == "transforms"
        return [copy.deepcopy(one) if kept and is_batchable(one) else copy_for_workers(one, made) for one in part]
    return copy_for_workers(part, made)


def _as_array(indices: Any) -> Any:
    """Return a copy of ``indices``; a long list of integers of one type becomes an array."""
    if type(indices) is np.ndarray:
        return indices.copy()
    if type(indices) is Tensor:
        return indices.clone()
    if type(indices) is list and len(indices) < _SHORTEST_ARRAY:
        return list(indices)
    if type(indices) not in (list, tuple) or len(indices) < _SHORTEST_ARRAY:
        return indices
    kinds = set(map(type, indices))
    try:
        if kinds == {int}:
            return array("q", indices)
        if len(kinds) == 1 and issubclass(kind := kinds.pop(), np.integer):
            return np.array(indices, dtype=kind)
    except OverflowError:
        pass
    return list(indices) if type(indices) is list else indices
