"""Datasets as worker processes are sent them: what the caller changes later, they do not notice.

Lists of indices become arrays on the way. A forked worker shares its parent's memory until either writes to it, and
merely looking at a Python object writes to it: its count of references. A list of a million indices is thus copied,
page by page, into every worker that reads it. An array of numbers has no objects inside.
"""

from __future__ import annotations

import copy
from array import array
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from chirpid_patch.datasets.gather import is_exactly, is_in_memory, uses_package_read
from chirpid_patch.transforms.spectrograms import is_batchable

#: Shorter lists of indices stay lists.
_SHORTEST = 1024


def sent_copy(dataset: Any, _made: dict[int, Any] | None = None) -> Any:
    """``dataset`` as it is now: this package's datasets, PyTorch's over them, their indices and transforms copied.

    Tensors, arrays and samples are not copied, nor is anything of another kind: those stay the very same objects. No
    method of the user's is called. Indices come as the same Python or NumPy integers.
    """
    made = {} if _made is None else _made  # a dataset may refer to its own splits
    if id(dataset) in made:
        return made[id(dataset)]
    kinds = (Subset, ConcatDataset)
    known = uses_package_read(dataset) or any(is_exactly(dataset, kind) for kind in kinds) or is_in_memory(dataset)
    if not known or hasattr(type(dataset), "__del__"):  # whose end the caller's own would share
        return dataset
    made[id(dataset)] = twin = object.__new__(type(dataset))
    twin.__dict__.update({name: _sent_part(name, part, made) for name, part in vars(dataset).items()})
    return twin


def _sent_part(name: str, part: Any, made: dict[int, Any]) -> Any:
    if name == "indices":
        return _as_array(part)
    if type(part) is list:
        kept = name == "transforms"
        return [copy.deepcopy(one) if kept and is_batchable(one) else sent_copy(one, made) for one in part]
    return sent_copy(part, made)


def _as_array(indices: Any) -> Any:
    """Indices that nobody else writes to; many integers of one kind as an array of them."""
    if type(indices) is np.ndarray:
        return indices.copy()
    if type(indices) is Tensor:
        return indices.clone()
    if type(indices) is list and len(indices) < _SHORTEST:
        return list(indices)
    if type(indices) not in (list, tuple) or len(indices) < _SHORTEST:
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
