"""Lists of indices as arrays, for worker processes.

A forked worker shares its parent's memory until either writes to it, and merely looking at a Python object writes to
it: its count of references. A list of a million indices is thus copied, page by page, into every worker that reads it.
An array of numbers has no objects inside.
"""

from __future__ import annotations

import copy
from array import array
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from chirpid_patch.data.fetch import is_exactly, is_shipped

#: Shorter lists are not worth it.
_SHORTEST = 1024
_PARTS = ("indices", "dataset", "base_dataset", "data_list", "datasets")


def compact(dataset: Any) -> Any:
    """``dataset`` with its lists of indices as arrays, which give the same Python or NumPy integers.

    Follows this package's datasets and PyTorch's ``Subset`` and ``ConcatDataset``; whatever changes is a copy. All
    else stays the very same object.
    """
    if not (is_shipped(dataset) or is_exactly(dataset, Subset) or is_exactly(dataset, ConcatDataset)):
        return dataset
    changed: dict[str, Any] = {}
    for name in _PARTS:
        part = vars(dataset).get(name)
        if name == "indices":
            compacted = _as_array(part)
        elif name == "datasets":
            parts = [compact(one) for one in part or ()]
            compacted = parts if any(new is not old for new, old in zip(parts, part or (), strict=True)) else part
        else:
            compacted = compact(part)
        if compacted is not part:
            changed[name] = compacted
    if not changed:
        return dataset
    twin = copy.copy(dataset)
    vars(twin).update(changed)
    return twin


def _as_array(indices: Any) -> Any:
    """A list or tuple of integers of one kind as an array of them; anything else as it is."""
    if not isinstance(indices, list | tuple) or len(indices) < _SHORTEST:
        return indices
    kinds = set(map(type, indices))
    try:
        if kinds == {int}:
            return array("q", indices)
        if len(kinds) == 1 and issubclass(kind := kinds.pop(), np.integer):
            return np.array(indices, dtype=kind)
    except OverflowError:
        return indices
    return indices
