"""Read, compare and hash samples of a dataset, and detect whether the dataset augments its samples."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

LONGEST_S = 2.0
"""Time limit in seconds for :func:`has_random_samples` in commands that must be fast."""

_FETCHES = 6
_FETCHED_SAMPLES = 3

Hash = xxhash.xxh3_128
"""Hash function for samples and return values.

A cryptographic hash is not necessary, because the data is not chosen to cause equal hashes.
"""


def short_hash(content: bytes) -> str:
    """Return a hash of some bytes, as 16 hexadecimal digits."""
    return str(Hash(content).hexdigest())[:16]


def tensor_hash(*tensors: torch.Tensor) -> str:
    """Return a hash of the dtypes, shapes and bytes of tensors, as 16 hexadecimal digits."""
    found = Hash()
    for tensor in tensors:
        add_tensor_to_hash(found, tensor)
    return str(found.hexdigest())[:16]


def add_tensor_to_hash(hash_state: Any, tensor: torch.Tensor) -> None:
    """Add dtype, shape and bytes of ``tensor`` to ``hash_state``, a hash object of ``xxhash``."""
    array = tensor.detach().cpu().contiguous()
    hash_state.update(f"{array.dtype}{tuple(array.shape)}".encode())
    hash_state.update(array.reshape(-1).view(torch.uint8).numpy().data)


def leaves_by_position(value: Any, position: str = "") -> dict[str, Any]:
    """Return a dictionary: position in a batch, such as ``[0]['x']`` → the tensor, number or other value there."""
    if is_dataclass(value) and not isinstance(value, (Mapping, type)):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if not isinstance(value, (Mapping, list, tuple)):
        return {position: _tensor(value) if isinstance(value, np.ndarray) else value}
    items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else enumerate(value)
    return {
        inner: leaf for key, item in items for inner, leaf in leaves_by_position(item, f"{position}[{key!r}]").items()
    }


def tensors_in_batch(batch: Any) -> list[torch.Tensor]:
    """Return the tensors in a batch, in the order of their positions. Arrays are converted to tensors."""
    return [leaf for leaf in leaves_by_position(batch).values() if isinstance(leaf, torch.Tensor)]


def has_random_samples(
    dataset: Any, collate: Callable[[list[Any]], Any], time_limit_s: float = math.inf
) -> bool | None:
    """Return whether reading a sample again returns other values; None if samples cannot be read by index.

    The function reads up to three samples, each of them six times. So it rarely overlooks an augmentation. For example,
    if an augmentation skips a sample with a probability of 20 %, it skips all 18 reads with a probability of 0.2^18,
    about 3 * 10^-13. Reading may change the state of random generators, and the function does not restore this state.

    Args:
        dataset: a dataset that is not empty.
        collate: function that combines a list of samples into a batch, such as the ``collate_fn`` of the loader.
        time_limit_s: time limit in seconds. After this time, the function reads no further sample, and returns False if
            the values were equal so far. Reading one slow sample may exceed the limit. The default is no limit.
    """
    until = time.monotonic() + time_limit_s
    for index in range(min(_FETCHED_SAMPLES, len(dataset))):
        seen = set()
        for _ in range(_FETCHES):
            try:
                tensors = tensors_in_batch(collate([dataset[index]]))
            except Exception:  # for example, only the loader can read this dataset
                return None
            seen.add(tuple(map(tensor_hash, tensors)))
            if len(seen) > 1:
                return True
            if time.monotonic() > until:
                return False
    return False


def _tensor(array: NDArray[Any]) -> Any:
    """Convert an array to a tensor; return the array itself if PyTorch has no such dtype (objects or text)."""
    try:
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError):
        return array
