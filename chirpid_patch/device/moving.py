"""Functions that move all tensors in a batch to a device, also tensors in nested containers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from operator import is_
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


def move_batch(batch: Any, device: str | torch.device) -> Any:
    """Return ``batch`` with all its tensors on ``device``.

    The function moves tensors, packed sequences, and other objects that have a ``to`` method, also inside nested lists,
    tuples, named tuples, mappings and dataclasses. The function returns an object unchanged if the object is on the
    device already, or contains nothing to move. Copies from pinned memory to CUDA are non-blocking. All other copies
    are blocking. A non-blocking copy from ordinary memory would be no faster, and the values of a non-blocking copy to
    the CPU could be read too early.

    Args:
        batch: any object.
        device: the device to which the tensors are moved.

    Raises:
        ValueError: ``device`` is a CUDA device, but CUDA is not available.
    """
    return map_parts(batch, partial(move_part, to_checked_device(device)))


def to_checked_device(device: str | torch.device) -> torch.device:
    """Return ``device`` as a ``torch.device``.

    Raises:
        ValueError: ``device`` is a CUDA device, but CUDA is not available.
    """
    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"there is no CUDA device for {str(chosen)!r}: pass device='cpu', or a device of this machine")
    return chosen


def device_with_index(device: str | torch.device) -> torch.device:
    """Return ``device`` with its index. ``"cuda"`` becomes the current CUDA device, such as ``cuda:0``.

    Raises:
        ValueError: ``device`` is a CUDA device, but CUDA is not available.
    """
    chosen = to_checked_device(device)
    if chosen.type == "cuda" and chosen.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return chosen


def move_part(device: torch.device, part: Any) -> Any:
    """Return ``part``, a tensor or an object with a ``to`` method, on ``device``.

    The copy is non-blocking only if ``device`` is a CUDA device and all tensors of ``part`` are in pinned memory.
    """
    if not is_tensor_or_packed_sequence(part):
        return part.to(device)
    return part.to(device, non_blocking=device.type == "cuda" and all(map(is_in_pinned_memory, movable_tensors(part))))


def is_tensor_or_packed_sequence(part: Any) -> bool:
    """Return whether ``part`` is a tensor or a packed sequence."""
    return isinstance(part, Tensor | PackedSequence)


def movable_tensors(part: Any) -> list[Tensor]:
    """Return the tensors in ``part`` that must be moved, if ``part`` is a tensor or a packed sequence.

    The result omits the tensor ``batch_sizes`` of a packed sequence, because this tensor stays on the CPU. For any
    other object, the result is an empty list.
    """
    if isinstance(part, PackedSequence):
        return [one for one in (part.data, part.sorted_indices, part.unsorted_indices) if one is not None]
    return [part] if isinstance(part, Tensor) else []


def is_in_pinned_memory(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is in pinned memory, from which a device can copy while the CPU continues."""
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_nested
    return plain and tensor.is_pinned()


def movable_parts(batch: Any) -> list[Any]:
    """Return the objects in ``batch`` that ``map_parts`` passes to ``move``, in the same order."""
    parts: list[Any] = []

    def note(part: Any) -> Any:
        parts.append(part)
        return part

    map_parts(batch, note)
    return parts


def map_parts(batch: Any, move: Callable[[Any], Any]) -> Any:
    """Return a copy of ``batch`` in which ``move(part)`` replaces each part that has a ``to`` method.

    If ``move`` returns its argument for every part, the result is ``batch`` itself.
    """
    if batch is None or isinstance(batch, str | bytes | int | float | complex | type):
        return batch
    if callable(getattr(batch, "to", None)):
        return move(batch)
    names: list[Any] = []
    if isinstance(batch, Mapping):
        names, values = list(batch), [batch[name] for name in batch]
    elif isinstance(batch, list | tuple):
        values = list(batch)
    elif dataclasses.is_dataclass(batch):
        names = [field.name for field in dataclasses.fields(batch)]
        values = [getattr(batch, name) for name in names]
    else:
        return batch
    parts = [map_parts(value, move) for value in values]
    return batch if all(map(is_, parts, values)) else _like(batch, names, parts)


def _like(batch: Any, names: list[Any], parts: list[Any]) -> Any:
    """Return a container of the same type as ``batch`` with the items ``parts``.

    Args:
        batch: a list, tuple, mapping or dataclass.
        names: keys of a mapping, or field names of a dataclass, in the order of ``parts``.
        parts: the new items.
    """
    make: Any = type(batch)
    if isinstance(batch, tuple):
        return make(*parts) if hasattr(batch, "_fields") else make(parts)
    if isinstance(batch, Mapping) and not isinstance(batch, MutableMapping):
        return make(dict(zip(names, parts, strict=True)))
    duplicate = copy.copy(batch)  # keeps attributes of a subclass of list, tuple or dict
    if isinstance(duplicate, list):
        duplicate[:] = parts
    elif isinstance(duplicate, MutableMapping):
        duplicate.update(zip(names, parts, strict=True))
    else:
        for name, part in zip(names, parts, strict=True):
            object.__setattr__(duplicate, name, part)  # works for frozen dataclasses, too
    return duplicate
