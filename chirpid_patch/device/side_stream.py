"""Copies of batches to a CUDA device on a separate stream, in parallel with the training's work."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from chirpid_patch.device.moving import in_pinned_memory, map_parts, movable_parts, move_part, tensors_of


class CudaCopies:
    """A CUDA device and a stream for copies to it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def pinned(self, source: Tensor) -> Tensor:
        """Return ``source`` as a dense tensor in pinned memory.

        PyTorch reuses that memory only after the copy from it.
        """
        return torch.empty_like(source, pin_memory=True).copy_(source)

    def on_copy_stream(self) -> AbstractContextManager[Any]:
        """Return a context in which ``copy`` and ``copied`` use the stream for copies."""
        return torch.cuda.stream(self._stream)

    def copy(self, source: Tensor) -> Tensor:
        """Start to copy a tensor in pinned memory."""
        return source.to(self.device, non_blocking=True)

    def copied(self) -> Any:
        """Return an event after the copies started so far; a waiting thread sleeps."""
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def hand_over(self, copies: list[Tensor], copied: Any) -> None:
        """Make later work of the device wait for ``copied`` and use ``copies``; the CPU continues."""
        training = torch.cuda.current_stream(self.device)
        training.wait_event(copied)
        for tensor in copies:
            # Its memory comes from the side stream, and is not reused before both streams are done.
            tensor.record_stream(training)


class BatchCopy:
    """A batch that is being copied to a device. The constructor starts the copy.

    ``cuda`` is a ``CudaCopies`` or a stand-in for tests.

    Objects with their own ``to``, and tensors that are not plain, move when the batch is handed over, on the training's
    stream.
    """

    def __init__(self, batch: Any, cuda: Any) -> None:
        self._cuda = cuda
        self._batch = batch
        self._copies: list[Tensor] = []
        self._direct: list[Tensor] = []  # the loader's own pinned memory that is copied from
        self._copied: Any = None
        parts = movable_parts(batch)
        if all(_may_go_beside(part, cuda.device) for part in parts):
            with cuda.on_copy_stream():
                self._batch = map_parts(batch, self._copy)
                if self._copies:
                    self._copied = cuda.copied()

    def hand_over(self) -> Any:
        """Return the batch on the device, for the current stream. Call it once: this object then drops the batch."""
        batch, self._batch = self._batch, None
        copies, self._copies = self._copies, []
        if self._copied is None:
            return map_parts(batch, partial(move_part, self._cuda.device))
        self._cuda.hand_over(copies, self._copied)
        return batch

    def wait_for_copies(self) -> None:
        """Wait until no copy reads the loader's memory, so that it may be overwritten."""
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
    """Return whether moving ``part`` only copies the memory of its tensors."""
    if not isinstance(part, Tensor) and type(part) is not PackedSequence:
        return False
    away = (tensor for tensor in tensors_of(part) if tensor.device != device)
    return all(not tensor.requires_grad and (in_pinned_memory(tensor) or _is_plain(tensor)) for tensor in away)


def _is_plain(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is copied completely by copying its memory."""
    return (
        type(tensor) is Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.is_nested or tensor.is_quantized or tensor.is_neg())
        and not (tensor.is_complex() and tensor.is_conj())
    )
