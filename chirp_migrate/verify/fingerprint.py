"""Exact, comparable text for whatever a training function returns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["fingerprint", "tensor_hash"]

_MAX_DEPTH = 12


def fingerprint(value: Any) -> dict[str, str]:
    """Map the path of every leaf in ``value`` to text that is equal only for equal values.

    Floats are written in hexadecimal (to the last bit), tensors and arrays as hash, dtype and shape, modules by
    their state. Containers and plain objects are walked; an object met twice on one path, or deeper than
    12 levels, is written as its type.
    """
    leaves: dict[str, str] = {}
    _walk(value, "result", leaves, ())
    return leaves


def tensor_hash(tensor: torch.Tensor) -> str:
    """SHA-256 (first 16 hex digits) over dtype, shape and bytes."""
    array = tensor.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{array.dtype}{tuple(array.shape)}".encode())
    digest.update(array.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _walk(value: Any, path: str, leaves: dict[str, str], parents: tuple[int, ...]) -> None:
    text = _leaf(value)
    if text is not None:
        leaves[path] = text
        return
    if id(value) in parents or len(parents) >= _MAX_DEPTH:
        leaves[path] = _type_name(value)
        return
    parents = (*parents, id(value))
    if isinstance(value, torch.nn.Module):
        value = value.state_dict()
    if isinstance(value, Mapping):
        leaves[path] = f"{_kind(value)} of {len(value)}"
        for key, item in value.items():
            _walk(item, f"{path}[{key!r}]", leaves, parents)
    elif isinstance(value, (list, tuple)):
        leaves[path] = f"{_kind(value)} of {len(value)}"
        for index, item in enumerate(value):
            _walk(item, f"{path}[{index}]", leaves, parents)
    elif isinstance(value, (set, frozenset)):
        leaves[path] = f"set {sorted(map(repr, value))}"
    else:
        leaves[path] = _type_name(value)
        for name, item in sorted(getattr(value, "__dict__", {}).items()):
            _walk(item, f"{path}.{name}", leaves, parents)


def _leaf(value: Any) -> str | None:
    """Text of a value without parts, or None for anything that is walked."""
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return repr(value)
    if isinstance(value, float):  # NumPy's float64 is one; its other scalars are generic
        return float(value).hex()
    if isinstance(value, torch.Tensor):
        return f"tensor {value.dtype} {tuple(value.shape)} {tensor_hash(value)}"
    if isinstance(value, np.generic):
        return f"{value.dtype} {value.tobytes().hex()}"
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return f"array of objects {value.shape} {value.tolist()!r}"
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
        return f"array {value.dtype} {value.shape} {digest}"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    return None


def _kind(value: Any) -> str:
    """Mappings by what they are for: an OrderedDict that became a dict is no difference in a result."""
    if isinstance(value, Mapping):
        return "mapping"
    return "tuple" if isinstance(value, tuple) else "list"


def _type_name(value: Any) -> str:
    return f"object of {type(value).__qualname__}"
