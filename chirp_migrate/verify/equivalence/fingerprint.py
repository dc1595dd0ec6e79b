"""Convert datasets and the results of training functions to exact text, so that two runs can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from chirp_migrate.training.watch.nested_datasets import dataset_length
from chirp_migrate.training.watch.samples import short_hash, tensor_hash

_MAX_DEPTH = 12


def leaf_fingerprints(value: Any) -> dict[str, str]:
    """Return a dictionary: path of each leaf in ``value`` → text that is equal only for equal values.

    A leaf is a value without parts, such as a number or tensor. The path of a leaf is, for example,
    ``result['losses'][0]``.

    The text of a float is hexadecimal and so exact. The text of a tensor or array contains a hash, the dtype and the
    shape. The leaves of a module are the tensors of its ``state_dict``. The function visits the elements of containers
    and the attributes of plain objects. An object that contains itself, or that is nested deeper than 12 levels, is
    replaced by the name of its type.
    """
    return dict(_leaves(value, "result", ()))


def describe_dataset(dataset: Any) -> str:
    """Return the length and a few samples of a dataset as text. Equal datasets have equal texts.

    If samples are random or cannot be read by index, the text contains only the length. The function reads samples,
    which may change the state of random generators. The caller must restore this state.
    """
    samples = dataset_length(dataset)
    if not samples:
        return str(samples)
    numbers = sorted({0, samples // 2, samples - 1})
    try:
        once, again = ([leaf_fingerprints(dataset[number]) for number in numbers] for _ in range(2))
    except Exception:  # the dataset cannot be read by index
        return str(samples)
    if once != again:
        return str(samples)
    return f"{samples} {sorted(leaf_fingerprints(once).items())!r}"


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
        # The type of a mapping does not matter: a dict instead of an OrderedDict is not a difference.
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
    """Return the exact text of a number, tensor or other leaf; None for a container or an object with attributes."""
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return repr(value)
    if isinstance(value, float):  # includes np.float64, the only scalar type of NumPy that is a subclass of float
        return float(value).hex()
    if isinstance(value, torch.Tensor):
        return f"tensor {value.dtype} {tuple(value.shape)} {tensor_hash(value)}"
    if isinstance(value, np.generic):
        return f"{value.dtype} {value.tobytes().hex()}"
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return f"array of objects {value.shape} {value.tolist()!r}"
        return f"array {value.dtype} {value.shape} {short_hash(np.ascontiguousarray(value).tobytes())}"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    return None


def _type_name(value: Any) -> str:
    return f"object of {type(value).__qualname__}"
