"""Copies of batches to a CUDA device on a stream of their own, beside what the training has queued there (R-001)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from chirpid_patch.device.moving import in_pinned_memory, mapped, move_part, parts_of, tensors_of


class CudaCopies:
    """A CUDA device and a stream for copies to it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def pinned(self, source: Tensor) -> Tensor:
        """``source`` in pinned memory, dense. PyTorch gives that memory out again only after the copy from it."""
        return torch.empty_like(source, pin_memory=True).copy_(source)

    def beside(self) -> AbstractContextManager[Any]:
        """Within it ``copy`` and ``copied`` are beside the training: on the stream for copies."""
        return torch.cuda.stream(self._stream)

    def copy(self, source: Tensor) -> Tensor:
        """Begin to copy a tensor in pinned memory."""
        return source.to(self.device, non_blocking=True)

    def copied(self) -> Any:
        """An event after the copies begun so far; who waits for it sleeps."""
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def hand_over(self, copies: list[Tensor], copied: Any) -> None:
        """What the device is given to do from now on comes after ``copied`` and uses ``copies``; the CPU goes on."""
        training = torch.cuda.current_stream(self.device)
        training.wait_event(copied)
        for tensor in copies:
            tensor.record_stream(training)  # its memory comes from the side stream, and is not given out before both


class BatchCopy:
    """A batch on its way to a device, begun when this is made; ``cuda`` is a ``CudaCopies``, or what stands for it.

    What moves itself and what is no plain memory is moved when the batch is handed out, in order with the training.
    """

    def __init__(self, batch: Any, cuda: Any) -> None:
        self._cuda = cuda
        self._batch = batch
        self._copies: list[Tensor] = []
        self._direct: list[Tensor] = []  # the loader's own pinned memory that is copied from
        self._copied: Any = None
        parts = parts_of(batch)
        if all(_may_go_beside(part, cuda.device) for part in parts):
            with cuda.beside():
                self._batch = mapped(batch, self._copy)
                if self._copies:
                    self._copied = cuda.copied()

    def hand_over(self) -> Any:
        """The batch on the device, for the stream that is current now; only once, so that it is not held for longer."""
        batch, self._batch = self._batch, None
        copies, self._copies = self._copies, []
        if self._copied is None:
            return mapped(batch, partial(move_part, self._cuda.device))
        self._cuda.hand_over(copies, self._copied)
        return batch

    def settle(self) -> None:
        """Wait until nothing is copied from the loader's memory any more: it may be written over."""
        if self._direct and self._copied is not None:
            self._copied.synchronize()

    def _copy(self, part: Any) -> Any:
        if isinstance(part, Tensor):
            return self._copy_tensor(part)
        order, back = (
            None if one is None else self._copy_tensor(one) for one in (part.sorted_indices, part.unsorted_indices)
        )
        return PackedSequence(self._copy_tensor(part.data), part.batch_sizes, order, back)

    def _copy_tensor(self, tensor: Tensor) -> Tensor:
        if tensor.device == self._cuda.device:
            return tensor
        if not tensor.numel() or not in_pinned_memory(tensor):
            tensor = self._cuda.pinned(tensor)
        else:
            self._direct.append(tensor)
        self._copies.append(self._cuda.copy(tensor))
        return self._copies[-1]


def _may_go_beside(part: Any, device: torch.device) -> bool:
    """Whether copies of its tensors' memory are all there is to moving ``part``."""
    if not isinstance(part, Tensor) and type(part) is not PackedSequence:
        return False
    away = (tensor for tensor in tensors_of(part) if tensor.device != device)
    return all(not tensor.requires_grad and (in_pinned_memory(tensor) or _is_plain(tensor)) for tensor in away)


def _is_plain(tensor: Tensor) -> bool:
    """Whether a copy of its memory is all there is to ``tensor``."""
    return (
        type(tensor) is Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.is_nested or tensor.is_quantized or tensor.is_neg())
        and not (tensor.is_complex() and tensor.is_conj())
    )
