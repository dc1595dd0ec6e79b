"""Copies of batches to a CUDA device on a stream of their own, beside what the training has queued there (R-001)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from chirpid_patch.device.moving import has_tensors, in_pinned_memory, mapped, move_part, parts_of, tensors_of
from chirpid_patch.device.staging import MOST_BYTES, CopyEvent, StagingRing, may_stage, staged_bytes

logger = logging.getLogger("chirpid_patch")

#: Runs a function with these arguments, now or on another thread, and returns what gives its result.
Run = Callable[..., Callable[[], Any]]


class CopyingDevice(Protocol):
    """What is asked of a device: ``CudaCopies``, or a stand-in that notes or delays what it is asked."""

    device: torch.device

    def pinned(self, nbytes: int) -> Tensor:
        """So many bytes of pinned memory, uint8."""

    def beside(self) -> AbstractContextManager[Any]:
        """Within it ``copy`` and ``copied`` are beside the training."""

    def copy(self, source: Any) -> Any:
        """Begin to copy a tensor or packed sequence in pinned memory."""

    def copied(self) -> CopyEvent:
        """An event behind the copies begun so far."""

    def hand_over(self, copies: list[Tensor], copied: CopyEvent) -> None:
        """What the device is given to do from now on comes after ``copied`` and uses ``copies``."""


class CudaCopies:
    """A CUDA device and a stream for copies to it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def pinned(self, nbytes: int) -> Tensor:
        """So many bytes of pinned memory, uint8."""
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def beside(self) -> AbstractContextManager[Any]:
        """The stream for copies is the current one, and its device the current device."""
        return torch.cuda.stream(self._stream)

    def copy(self, source: Any) -> Any:
        """Begin to copy on the current stream."""
        return source.to(self.device, non_blocking=True)

    def copied(self) -> CopyEvent:
        """An event behind the copies begun so far; who waits for it sleeps."""
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def hand_over(self, copies: list[Tensor], copied: CopyEvent) -> None:
        """The stream of the training waits for the copies, and the CPU does not."""
        training = torch.cuda.current_stream(self.device)
        training.wait_event(copied)  # type: ignore[arg-type]
        for tensor in copies:
            tensor.record_stream(training)  # its memory comes from the side stream, and is not given out before both


def run_now(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """``function`` has run when this returns."""
    result = function(*arguments)
    return lambda: result


class SideStream:
    """Copies batches beside the training: from pinned memory at once, from other memory through a staging ring.

    The host waits for nothing but a slot of the ring, and for that only when the copies out of all slots are under way.
    """

    def __init__(self, cuda: CopyingDevice) -> None:
        self._cuda = cuda
        self.ring = StagingRing(cuda.pinned)
        #: Memory that is copied from directly, until that is over.
        self._sources: deque[tuple[CopyEvent, list[Tensor]]] = deque()
        self._lock = threading.Lock()  # one batch at a time, also where two epochs are read at once
        self._said = False

    @property
    def device(self) -> torch.device:
        """Where batches go."""
        return self._cuda.device

    def settle(self) -> None:
        """Wait until nothing is copied directly from a batch any more: its memory may be written over."""
        with self._lock:
            while self._sources:
                copied, _ = self._sources.popleft()
                if not copied.query():
                    copied.synchronize()

    def start(self, batch: Any, run: Run = run_now) -> Callable[[], Any]:
        """Begin to copy ``batch`` by ``run``; what is returned gives it, in order with the stream current then."""
        parts = parts_of(batch)
        tensors = [tensor for part in parts for tensor in tensors_of(part) if tensor.device != self.device]
        here = [tensor for tensor in tensors if tensor.numel() and not in_pinned_memory(tensor)]
        why = _why_in_order(parts, tensors, here)
        if why is not None and not self._said:
            self._said = True
            logger.info("batches are moved in order with the training, not beside it: %s", why)
        if why is not None or not tensors:
            return partial(mapped, batch, partial(move_part, self.device))
        inference = torch.is_inference_mode_enabled()
        return partial(self._handed_out, batch, run(self._copy, parts, here, inference))

    def _copy(self, parts: list[Any], here: list[Tensor], inference: bool) -> tuple[list[Any], list[Tensor], CopyEvent]:
        """The parts on the device, those of their tensors that were copied, and an event behind the copies."""
        with self._lock, self._cuda.beside(), torch.inference_mode(inference):
            self._let_go()
            slot, staged = self.ring.stage(here) if here else (None, [])
            places = {id(tensor): place for tensor, place in zip(here, staged, strict=True)}
            moved = [self._moved(part, places) for part in parts]
            before = {id(tensor) for part in parts for tensor in tensors_of(part)}
            copies = [tensor for part in moved for tensor in tensors_of(part) if id(tensor) not in before]
            copied = self._cuda.copied()
            if slot is not None:
                slot.copied = copied
            direct = [one for part in parts for one in tensors_of(part) if id(one) not in places and one.numel()]
            direct = [one for one in direct if one.device != self.device]
            if direct:
                self._sources.append((copied, direct))
        return moved, copies, copied

    def _moved(self, part: Any, places: dict[int, Tensor]) -> Any:
        """A tensor or packed sequence on its way; ``places`` has the copies of its tensors in pinned memory."""
        if isinstance(part, Tensor):
            return self._cuda.copy(places.get(id(part), part))
        data, order, back = (
            places.get(id(one), one) for one in (part.data, part.sorted_indices, part.unsorted_indices)
        )
        return self._cuda.copy(PackedSequence(data, part.batch_sizes, order, back))

    def _let_go(self) -> None:
        """Forget the memory of copies that are over."""
        while self._sources and self._sources[0][0].query():
            self._sources.popleft()

    def _handed_out(self, batch: Any, copied: Callable[[], Any]) -> Any:
        moved, copies, event = copied()
        self._cuda.hand_over(copies, event)
        return mapped(batch, _InOrder(moved))


def _why_in_order(parts: list[Any], tensors: list[Tensor], here: list[Tensor]) -> str | None:
    """Why ``tensors``, ``here`` those whose memory is not pinned, cannot be copied aside; None if they can."""
    own = next((part for part in parts if not has_tensors(part)), None)
    if own is not None:
        return f"{type(own).__name__} moves itself"
    if any(type(part) is not PackedSequence for part in parts if isinstance(part, PackedSequence)):
        return "they hold a subclass of PackedSequence"
    if any(tensor.requires_grad for tensor in tensors) or not all(map(may_stage, here)):
        return "they hold tensors that are more than plain memory on the CPU"
    return None if staged_bytes(here) <= MOST_BYTES else f"they are larger than {MOST_BYTES >> 20} MiB"


class _InOrder:
    """Gives what the parts of a batch became, one after the other."""

    def __init__(self, moved: list[Any]) -> None:
        self._moved = iter(moved)

    def __call__(self, part: Any) -> Any:
        return next(self._moved)
