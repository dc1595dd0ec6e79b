"""A function that detects whether the samples of a dataset may have changed."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset

from chirpid_patch.torch_private import tensor_version

#: Prefix of the names of attributes that only cache values which the dataset computes from its other attributes.
_CACHE_PREFIX = "_cached_"
#: Largest length of a list whose items are compared one by one. For a longer list, only the identity of the list is
#: compared, unless the list contains tensors or datasets.
_MOST_COMPARED_ITEMS = 16
_PLAIN_TYPES = frozenset({type(None), bool, int, float, str})


def state_fingerprint(value: Any) -> Any:
    """Return a value that describes the state of a dataset.

    Two calls return different values if code assigned an attribute of the dataset or of its transforms between the
    calls. The values also differ if an in-place operation of PyTorch changed a tensor in one of these attributes. The
    version counter of the tensor shows this change.

    Three kinds of changes are not detected: writes to samples that are dictionaries, writes to a long list of indices
    or of pairs, and writes to a tensor through ``Tensor.data`` or NumPy, which do not increase the version counter.

    Args:
        value: a dataset, or a value of one of its attributes.
    """
    return _state(value, ())


def _state(value: Any, within: tuple[Any, ...]) -> Any:
    """Return the fingerprint of ``value``, as :func:`state_fingerprint` describes.

    ``within`` contains the objects through which the recursion has reached ``value``: a dataset, one of its attributes,
    and so on. If ``value`` is one of these objects, the references form a cycle, and the recursion stops.
    """
    if type(value) in _PLAIN_TYPES:
        return value
    if isinstance(value, Tensor):
        return _SameObject(value), tensor_version(value)
    if any(value is outer for outer in within):
        return _SameObject(value)
    inside = (*within, value)
    if isinstance(value, nn.Module | Dataset):
        left_out = "_" if isinstance(value, nn.Module) else _CACHE_PREFIX
        parts = ((name, part) for name, part in vars(value).items() if not name.startswith(left_out))
        return _SameObject(value), *((name, _state(part, inside)) for name, part in parts)
    if isinstance(value, list | tuple) and (
        len(value) <= _MOST_COMPARED_ITEMS or isinstance(value[0], Tensor | Dataset)
    ):
        return _SameObject(value), *(_state(part, inside) for part in value)
    return _SameObject(value)


class _SameObject:
    """A wrapper that is equal only to wrappers of the same object.

    The wrapper keeps the object alive, so that no other object can get the same address.
    """

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameObject) and self.value is other.value
