"""Pinned memory that batches pass through on their way to a device, allocated once and used in turn (R-001).

A device copies beside the training only from pinned memory. Pinning each batch costs an allocation a batch; here a few
slots are pinned once. A slot is written to again only when the copy out of it is over.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

#: A batch on its way, one being written, and one to spare where the device is a little late.
SLOTS = 3
#: Larger batches are not staged: pinned memory is taken from the whole machine.
MOST_BYTES = 1 << 29
_ALIGNED = 256  # bytes: what CUDA gives its own allocations


class CopyEvent(Protocol):
    """What says whether a copy is over (``torch.cuda.Event``)."""

    def query(self) -> bool:
        """Whether it is."""

    def synchronize(self) -> None:
        """Wait until it is."""


class Slot:
    """One piece of pinned memory, and the copy out of it that was last begun."""

    def __init__(self) -> None:
        self.memory: Tensor | None = None
        self.copied: CopyEvent | None = None


class StagingRing:
    """Slots of pinned memory in turn.

    Attributes:
        allocations: how often memory was pinned: once a slot, and again where a batch was larger than any before.
        waits: how often a slot had to be waited for because the copies out of all of them were under way: the link to
            the device, and not the CPU, then limits the loading.

    Args:
        pinned: gives so many bytes of pinned memory, a uint8 tensor of one dimension.
        slots: how many there are.
    """

    def __init__(self, pinned: Callable[[int], Tensor], slots: int = SLOTS) -> None:
        self._pinned = pinned
        self._slots = itertools.cycle([Slot() for _ in range(slots)])
        self.allocations = 0
        self.waits = 0

    def stage(self, tensors: Sequence[Tensor]) -> tuple[Slot, list[Tensor]]:
        """A copy of ``tensors`` in the next slot, each with the strides it would have on another device.

        Whoever begins to copy out of the slot sets its ``copied`` to an event behind that copy.
        """
        slot = next(self._slots)
        if slot.copied is not None and not slot.copied.query():
            self.waits += 1  # copies end in the order they began: the others are not over either
            slot.copied.synchronize()
        slot.copied = None
        with torch.inference_mode(False), torch.no_grad():  # memory that every mode may write to
            needed = staged_bytes(tensors)
            if slot.memory is None or slot.memory.numel() < needed:
                slot.memory = None  # given back before more is asked for
                slot.memory = self._pinned(needed)
                self.allocations += 1
            return slot, _filled(slot.memory, tensors)


def may_stage(tensor: Tensor) -> bool:
    """Whether a copy of its memory is all there is to ``tensor``: plain, dense, on the CPU, outside any graph."""
    return (
        type(tensor) is Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.is_nested or tensor.is_quantized or tensor.requires_grad or tensor.is_neg())
        and not (tensor.is_complex() and tensor.is_conj())
    )


def staged_bytes(tensors: Sequence[Tensor]) -> int:
    """Room that ``tensors`` take in a slot."""
    return sum(_room(tensor) for tensor in tensors)


def _room(tensor: Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // _ALIGNED) * _ALIGNED


def _filled(memory: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    staged, start = [], 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        strides = torch.empty_like(tensor, device="meta").stride()  # dense, in the order that ``to`` keeps
        place = memory[start : start + size].view(tensor.dtype).as_strided(tensor.shape, strides)
        staged.append(place.copy_(tensor))
        start += _room(tensor)
    return staged
