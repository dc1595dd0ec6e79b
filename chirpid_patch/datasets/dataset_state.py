"""A value that changes when the samples of a dataset may have changed."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset

from chirpid_patch.torch_private import version

#: Prefix of attributes of datasets with values computed from other attributes.
_DERIVED = "_cached_"
#: Longer sequences (of indices, of samples) count as one object, unless they contain tensors or datasets.
_MOST_ITEMS = 16
_PLAIN = frozenset({type(None), bool, int, float, str})


def dataset_state(value: Any) -> Any:
    """Return a value that compares equal as long as the samples of a dataset provably stay the same.

    It covers attributes of datasets and transforms, and in-place operations of PyTorch on their tensors. It does not
    cover writes to a long sequence of indices or samples, nor writes that do not increase a tensor's version: writes
    through NumPy to shared memory, or through ``Tensor.data``.
    """
    return _state(value, ())


def _state(value: Any, within: tuple[Any, ...]) -> Any:
    """Return the state of ``value``, which is a part of the objects ``within`` and may refer to one of them."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Tensor):
        return _SameObject(value), version(value)
    if any(value is outer for outer in within):
        return _SameObject(value)
    inside = (*within, value)
    if isinstance(value, nn.Module):
        return _SameObject(value), *(
            (name, _state(part, inside)) for name, part in vars(value).items() if name[0] != "_"
        )
    if isinstance(value, Dataset):
        parts = vars(value).items()
        return _SameObject(value), *(
            (name, _state(part, inside)) for name, part in parts if not name.startswith(_DERIVED)
        )
    if isinstance(value, list | tuple) and (len(value) <= _MOST_ITEMS or isinstance(value[0], Tensor | Dataset)):
        return _SameObject(value), *(_state(part, inside) for part in value)
    return _SameObject(value)


class _SameObject:
    """Compares equal if it wraps the same object.

    It keeps the object alive, so that no other object gets the same address.
    """

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameObject) and self.value is other.value
