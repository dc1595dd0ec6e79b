"""What the samples of a dataset depend on, as a value that changes when they may have changed."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset

from chirpid_patch.torch_private import version

#: Attributes of datasets so named hold what was computed from the others.
_DERIVED = "_cached_"
#: Longer sequences (of indices, of samples) count as one thing.
_MOST_ITEMS = 16
_PLAIN = frozenset({type(None), bool, int, float, str})


def dataset_state(value: Any) -> Any:
    """A value that compares equal as long as the samples of a dataset surely stay the same.

    It follows attributes of datasets and transforms, and in-place operations of PyTorch on the tensors behind them.
    It does not see writes to a long sequence of indices, or through NumPy to memory that a tensor shares.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Tensor):
        return id(value), version(value)
    if isinstance(value, nn.Module):
        return id(value), *((name, dataset_state(part)) for name, part in vars(value).items() if name[0] != "_")
    if isinstance(value, Dataset):
        parts = vars(value).items()
        return id(value), *((name, dataset_state(part)) for name, part in parts if not name.startswith(_DERIVED))
    if isinstance(value, list | tuple) and len(value) <= _MOST_ITEMS:
        return id(value), *map(dataset_state, value)
    return id(value)
