"""The parts of a batch that have a device, and how they move."""

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
    """Return ``batch`` with every tensor, and every other part that has a device, moved to ``device``.

    The function moves tensors, packed sequences and objects with their own ``to``, in lists, tuples, named tuples,
    mappings and dataclasses, at any depth. It returns parts that are on the device already, and containers without
    movable parts, as the same objects. The copy is non-blocking only where that is faster and safe: from pinned memory
    to CUDA.

    Raises:
        ValueError: ``device`` is a CUDA device, and there is none.
    """
    return map_parts(batch, partial(move_part, usable_device(device)))


def usable_device(device: str | torch.device) -> torch.device:
    """Return ``device`` as a ``torch.device``; raise ValueError if it is a CUDA device and there is none."""
    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"there is no CUDA device for {str(chosen)!r}: pass device='cpu', or one of this machine")
    return chosen


def move_part(device: torch.device, part: Any) -> Any:
    """Return one part of a batch on ``device``; the copy blocks unless all its memory is pinned."""
    if not has_tensors(part):
        return part.to(device)
    return part.to(device, non_blocking=device.type == "cuda" and all(map(in_pinned_memory, tensors_of(part))))


def has_tensors(part: Any) -> bool:
    """Return whether ``tensors_of`` contains everything in ``part`` that can move."""
    return isinstance(part, Tensor | PackedSequence)


def tensors_of(part: Any) -> list[Tensor]:
    """Return the tensors of a tensor or packed sequence; the batch sizes of the latter stay on the CPU."""
    if isinstance(part, PackedSequence):
        return [one for one in (part.data, part.sorted_indices, part.unsorted_indices) if one is not None]
    return [part] if isinstance(part, Tensor) else []


def in_pinned_memory(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is in pinned memory, from which a device can copy while the CPU continues."""
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_nested
    return plain and tensor.is_pinned()


def movable_parts(batch: Any) -> list[Any]:
    """Return the parts that ``mapped`` moves, in the same order."""
    parts: list[Any] = []

    def note(part: Any) -> Any:
        parts.append(part)
        return part

    map_parts(batch, note)
    return parts


def map_parts(batch: Any, move: Callable[[Any], Any]) -> Any:
    """Return ``batch`` with ``move`` applied to all movable parts; ``batch`` itself if nothing changed."""
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
    """Return a container like ``batch`` that contains ``parts`` instead."""
    make: Any = type(batch)
    if isinstance(batch, tuple):
        return make(*parts) if hasattr(batch, "_fields") else make(parts)
    if isinstance(batch, Mapping) and not isinstance(batch, MutableMapping):
        return make(dict(zip(names, parts, strict=True)))
    duplicate = copy.copy(batch)  # it may hold more than its items
    if isinstance(duplicate, list):
        duplicate[:] = parts
    elif isinstance(duplicate, MutableMapping):
        duplicate.update(zip(names, parts, strict=True))
    else:
        for name, part in zip(names, parts, strict=True):
            object.__setattr__(duplicate, name, part)  # also where the class is frozen
    return duplicate
