"""Batches handed over by worker processes in shared memory that is used again and again.

PyTorch's queue makes a new piece of shared memory for each tensor, whose pages the system has to clear and both
processes have to map: for batches of megabytes that takes longer than many a dataset. Here the training process lends
each task slots of shared memory, one for each large tensor of its batch; the worker writes into them and sends back
only where things are. A slot is lent again once nobody refers to its memory any more, so a batch belongs to its
receiver for as long as he keeps it.
"""

from __future__ import annotations

import copy
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, UntypedStorage

from chirpid_patch.data.recycled import contiguous_strides, is_unused

#: Smaller tensors are sent by value: that is cheaper than sending a handle of their memory.
_SMALLEST_BYTES = 1 << 16
#: Slots that the receiver may keep beyond those under way. With more kept, batches come in memory of their own.
_KEPT_BY_RECEIVER = 4
_LIMIT_BYTES = 1 << 30

_numbers = itertools.count()


class Slot:
    """One piece of shared memory; pickled, it is a handle to the same memory."""

    def __init__(self, storage: UntypedStorage, number: int) -> None:
        self.storage = storage
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _slot_in_worker, (self.storage, self.number)


#: In a worker: what it has been lent, so that the memory stays mapped.
_in_worker: dict[int, Slot] = {}
#: In the training process: its slots by number.
_lent: weakref.WeakValueDictionary[int, Slot] = weakref.WeakValueDictionary()


def _slot_in_worker(storage: UntypedStorage, number: int) -> Slot:
    return _in_worker.setdefault(number, Slot(storage, number))


class BatchSlots:
    """The slots of one pool of workers, in the training process."""

    def __init__(self, under_way: int) -> None:
        self._most = under_way + _KEPT_BY_RECEIVER
        self._sizes: list[int] = []
        self._free_to_lend: list[list[Slot]] = []
        self._with_workers: dict[int, list[Slot]] = {}

    def forget(self, task_number: int) -> None:
        """The task will send no batch."""
        self._with_workers.pop(task_number, None)

    def begin_epoch(self) -> None:
        """No task is under way any more."""
        self._with_workers.clear()

    def lend(self, task_number: int) -> tuple[Slot, ...]:
        """Slots for a task's batch; none before a batch has been seen, or while all are in use."""
        lent: list[Slot] = []
        away = {slot.number for slots in self._with_workers.values() for slot in slots}
        for size, slots in zip(self._sizes, self._free_to_lend, strict=True):
            slot = next((slot for slot in slots if slot.number not in away and is_unused(slot.storage)), None)
            if slot is None:
                if len(slots) >= self._most:
                    return ()
                try:
                    storage = UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
                except (RuntimeError, OSError):  # shared memory is full: what there is has to do
                    self._most = len(slots)
                    return ()
                slot = Slot(storage, next(_numbers))
                _lent[slot.number] = slot
                slots.append(slot)
            lent.append(slot)
        self._with_workers[task_number] = lent
        return tuple(lent)

    def receive(self, task_number: int, loaded: Any) -> Any:
        """The batch of a task from what its worker sent."""
        batch = loaded.unpack() if isinstance(loaded, PackedBatch) else loaded
        self.forget(task_number)
        if not self._sizes:
            sizes = [_bytes(tensor) for tensor in _tensors(batch) if _bytes(tensor) >= _SMALLEST_BYTES]
            if sum(sizes) * self._most <= _LIMIT_BYTES:
                self._sizes = sizes
                self._free_to_lend = [[] for _ in sizes]
        return batch


@dataclass(frozen=True)
class _InSlot:
    """A tensor in a slot, from its start."""

    slot: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self) -> Tensor:
        storage = _lent[self.slot].storage
        return torch.empty(0, dtype=self.dtype).set_(storage, 0, self.shape, contiguous_strides(self.shape))


@dataclass(frozen=True)
class _ByValue:
    """A small tensor."""

    content: bytes
    shape: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self) -> Tensor:
        if not self.content:
            return torch.empty(self.shape, dtype=self.dtype)
        return torch.frombuffer(bytearray(self.content), dtype=self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class PackedBatch:
    """A batch whose tensors are in slots, or sent by value."""

    packed: Any

    def unpack(self) -> Any:
        """The batch, its large tensors over the memory of their slots."""
        return _each(self.packed, lambda part: part.tensor() if isinstance(part, _InSlot | _ByValue) else part)

    def pin_memory(self, device: Any = None) -> Any:
        """The batch in pinned memory, for PyTorch's pinning thread; its slots are free again."""
        from torch.utils.data._utils.pin_memory import pin_memory

        return pin_memory(self.unpack(), device)  # type: ignore[no-untyped-call]


class _Writing(threading.local):
    """The slots the running task may still write to."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.open = False


_writing = _Writing()


@contextmanager
def open_slots(open_: bool = True) -> Iterator[None]:
    """Within the context memory for batches comes from slots. Never while a user's code runs: it might keep some."""
    before, _writing.open = _writing.open, open_
    try:
        yield
    finally:
        _writing.open = before


def load_packed(load: Callable[[], Any], slots: Sequence[Slot]) -> Any:
    """In a worker: what ``load`` gives, its tensors in ``slots`` where they fit; as it is if there are none."""
    if not slots:
        return load()
    _writing.slots = list(slots)
    try:
        batch = load()
        tensors = _tensors(batch)
        if len({tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()}) < len(tensors):
            return copy.deepcopy(batch)  # tensors that share memory keep sharing it, but none of a slot
        with open_slots():
            return PackedBatch(_each(batch, _Packing(slots)))
    finally:
        _writing.slots = []


def slot_memory(shape: Sequence[int], dtype: torch.dtype) -> Tensor | None:
    """Room for a tensor in a slot of the running task; None if there is none that fits."""
    needed = math.prod(shape) * dtype.itemsize
    if not _writing.open or needed < _SMALLEST_BYTES:
        return None
    slot = next((slot for slot in _writing.slots if slot.storage.nbytes() >= needed), None)
    if slot is None:
        return None
    _writing.slots.remove(slot)
    return torch.empty(0, dtype=dtype).set_(slot.storage, 0, tuple(shape), contiguous_strides(shape))


class _Packing:
    """What to send for each part of a batch."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._by_address = {slot.storage.data_ptr(): slot for slot in slots}

    def __call__(self, part: Any) -> Any:
        slot = self._by_address.get(part.data_ptr()) if isinstance(part, Tensor) else None
        if not _is_plain(part):
            return part if slot is None else part.clone()
        shape = tuple(part.shape)
        if slot is not None:
            return _InSlot(slot.number, shape, part.dtype)
        if _bytes(part) < _SMALLEST_BYTES:
            content = part.reshape(-1).view(torch.uint8).numpy().tobytes() if part.numel() else b""
            return _ByValue(content, shape, part.dtype)
        room = slot_memory(shape, part.dtype)
        if room is None:
            return part
        room.copy_(part)
        return self(room)


def _is_plain(part: Any) -> bool:
    """Whether ``part`` is a tensor that is nothing but its values."""
    return (
        type(part) is Tensor
        and part.device.type == "cpu"
        and part.layout is torch.strided
        and part.is_contiguous()
        and not part.requires_grad
        and not part.is_quantized
        and not part.is_conj()
        and not part.is_neg()
    )


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _each(batch: Any, change: Callable[[Any], Any]) -> Any:
    """``batch`` with every part that is no list, tuple or dict replaced by what ``change`` makes of it."""
    kind = type(batch)
    if kind in (list, tuple):
        return kind(_each(part, change) for part in batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return kind(*(_each(part, change) for part in batch))
    if kind is dict:
        return {name: _each(part, change) for name, part in batch.items()}
    return change(batch)


def _tensors(batch: Any) -> list[Tensor]:
    """The plain tensors of a batch, in order."""
    if _is_plain(batch):
        return [batch]
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    return [one for part in batch for one in _tensors(part)] if isinstance(batch, list | tuple) else []
