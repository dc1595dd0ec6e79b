"""Classes that copy batches to a CUDA device on a separate stream, while the device trains."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from chirpid_patch.datasets.rows import is_plain_cpu_tensor
from chirpid_patch.device.moving import is_in_pinned_memory, map_parts, movable_parts, movable_tensors, move_part


class CudaCopyStream:
    """A CUDA device with a separate stream for copies to the device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def pinned(self, source: Tensor) -> Tensor:
        """Return a copy of ``source`` as a dense tensor in pinned memory.

        PyTorch reuses the pinned memory only after the copy to the device is done.
        """
        return torch.empty_like(source, pin_memory=True).copy_(source)

    def on_copy_stream(self) -> AbstractContextManager[Any]:
        """Return a context in which ``copy`` and ``copied`` use the copy stream."""
        return torch.cuda.stream(self._stream)

    def copy(self, source: Tensor) -> Tensor:
        """Start the copy of a tensor in pinned memory to the device, and return the tensor on the device."""
        return source.to(self.device, non_blocking=True)

    def copied(self) -> Any:
        """Return a CUDA event that occurs when all started copies are done.

        A thread that waits for this event sleeps, and does not use the CPU.
        """
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def hand_over(self, copies: list[Tensor], copied: Any) -> None:
        """Make the current stream wait for the event ``copied``. The CPU does not wait for the event.

        The function also ensures that PyTorch reuses the memory of ``copies`` only after the current stream has used
        these tensors.
        """
        training = torch.cuda.current_stream(self.device)
        training.wait_event(copied)
        for tensor in copies:
            # The copy stream allocated the memory of the tensor. With this call, PyTorch reuses the memory only when
            # both streams are done.
            tensor.record_stream(training)


class BatchCopy:
    """The copy of a batch to a device. The constructor starts the copy, and ``hand_over`` returns the copied batch.

    If the batch contains sparse or other special tensors, or other objects with a ``to`` method, ``hand_over`` moves
    the whole batch on the current stream.

    Args:
        batch: any object with tensors.
        cuda: a ``CudaCopyStream``, or a replacement in tests.
    """

    def __init__(self, batch: Any, cuda: Any) -> None:
        self._cuda = cuda
        self._batch = batch
        self._copies: list[Tensor] = []
        #: The loader's own pinned tensors, which are copied without another copy in pinned memory.
        self._direct: list[Tensor] = []
        self._copied: Any = None
        parts = movable_parts(batch)
        if all(_can_copy_on_side_stream(part, cuda.device) for part in parts):
            with cuda.on_copy_stream():
                self._batch = map_parts(batch, self._copy)
                if self._copies:
                    self._copied = cuda.copied()

    def hand_over(self) -> Any:
        """Return the batch on the device, for use on the current stream.

        Call this method only once.
        """
        batch, self._batch = self._batch, None
        copies, self._copies = self._copies, []
        if self._copied is None:
            return map_parts(batch, partial(move_part, self._cuda.device))
        self._cuda.hand_over(copies, self._copied)
        return batch

    def wait_for_copies(self) -> None:
        """Wait for the copies from the loader's pinned memory, so that the loader may overwrite this memory."""
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
        if not tensor.numel() or not is_in_pinned_memory(tensor):
            tensor = self._cuda.pinned(tensor)
        else:
            self._direct.append(tensor)
        self._copies.append(self._cuda.copy(tensor))
        return self._copies[-1]


def _can_copy_on_side_stream(part: Any, device: torch.device) -> bool:
    """Return whether ``part`` consists only of tensors that the separate stream can copy."""
    if not isinstance(part, Tensor) and type(part) is not PackedSequence:
        return False
    away = (tensor for tensor in movable_tensors(part) if tensor.device != device)
    return all(
        not tensor.requires_grad and (is_in_pinned_memory(tensor) or is_plain_cpu_tensor(tensor)) for tensor in away
    )
