"""Write the return value of a training function as exact text, so that two runs can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import xxhash

_MAX_DEPTH = 12


Hash = xxhash.xxh3_128
"""Hash function for samples and return values.

A cryptographic hash is not necessary, because nobody constructs collisions.
"""


def leaf_fingerprints(value: Any) -> dict[str, str]:
    """Return a dictionary: path of each leaf in ``value`` → text that is equal only for equal values.

    A leaf is a value without parts, such as a number or tensor. Its path is, for example, ``result['losses'][0]``.

    The text of a float is hexadecimal and so exact. The text of a tensor or array contains a hash, the dtype and the
    shape. The leaves of a module are the tensors of its ``state_dict``. The function visits the elements of containers
    and the attributes of plain objects. An object that contains itself, or that is nested deeper than 12 levels, is
    replaced by the name of its type.
    """
    return dict(_leaves(value, "result", ()))


def tensor_hash(tensor: torch.Tensor) -> str:
    """Return a hash of the dtype, shape and bytes of a tensor, as 16 hexadecimal digits."""
    found = Hash()
    add_tensor_to_hash(found, tensor)
    return str(found.hexdigest())[:16]


def add_tensor_to_hash(hash_state: Any, tensor: torch.Tensor) -> None:
    """Add dtype, shape and bytes of ``tensor`` to ``hash_state``, a :data:`Hash`."""
    array = tensor.detach().cpu().contiguous()
    hash_state.update(f"{array.dtype}{tuple(array.shape)}".encode())
    hash_state.update(array.reshape(-1).view(torch.uint8).numpy().data)


def _leaves(value: Any, path: str, parents: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    text = _leaf_text(value)
    if text is not None:
        yield path, text
        return
    if id(value) in parents or len(parents) >= _MAX_DEPTH:
        yield path, _type_name(value)
        return
    parents = (*parents, id(value))
    if isinstance(value, torch.nn.Module):
        value = value.state_dict()
    if isinstance(value, (Mapping, list, tuple)):
        # All mappings count as the same type: an OrderedDict that became a dict is not a difference in a result.
        kind = "mapping" if isinstance(value, Mapping) else "tuple" if isinstance(value, tuple) else "list"
        yield path, f"{kind} of {len(value)}"
        items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            yield from _leaves(item, f"{path}[{key!r}]", parents)
    elif isinstance(value, (set, frozenset)):
        yield path, f"set of {len(value)}: {', '.join(sorted(map(repr, value)))}"
    else:
        yield path, _type_name(value)
        for name, item in sorted(getattr(value, "__dict__", {}).items()):
            yield from _leaves(item, f"{path}.{name}", parents)


def _leaf_text(value: Any) -> str | None:
    """Return the text of a leaf such as a number or tensor; None for a container or an object with attributes."""
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return repr(value)
    if isinstance(value, float):  # also np.float64; other scalar types of NumPy are no subclasses of float
        return float(value).hex()
    if isinstance(value, torch.Tensor):
        return f"tensor {value.dtype} {tuple(value.shape)} {tensor_hash(value)}"
    if isinstance(value, np.generic):
        return f"{value.dtype} {value.tobytes().hex()}"
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return f"array of objects {value.shape} {value.tolist()!r}"
        digest = Hash(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
        return f"array {value.dtype} {value.shape} {digest}"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    return None


def _type_name(value: Any) -> str:
    return f"object of {type(value).__qualname__}"
