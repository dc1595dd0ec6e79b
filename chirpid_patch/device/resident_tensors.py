"""Copies of CPU tensors on a device. A copy is updated when its CPU tensor changes."""

from __future__ import annotations

import torch
from torch import Tensor

from chirpid_patch.machine.process_memory import process_memory
from chirpid_patch.machine.usable_memory import usable_memory
from chirpid_patch.torch_private import tensor_version

#: Number of bytes to copy at a time, so that temporary copies stay small.
_COPIED_AT_A_TIME = 64 << 20
#: Largest distance in bytes between the values that are compared to detect writes. At least one value of each sample is
#: compared.
_COMPARED_EVERY = 4096


class NotResidentError(ValueError):
    """The samples cannot be stored on a device. The message is the reason, and can follow the word "because"."""


class DeviceTensorCopy:
    """A copy of the tensor ``source`` on a device.

    ``current`` copies ``source`` again if PyTorch has changed ``source`` in place. ``refresh_if_written`` copies
    ``source`` again after writes through NumPy or ``Tensor.data``, if these writes changed a whole sample or at least
    4096 adjacent bytes.
    """

    def __init__(self, source: Tensor, device: torch.device) -> None:
        self.source = source
        with torch.inference_mode(False):  # because PyTorch refuses writes to inference tensors outside inference mode
            self._values = torch.empty(source.shape, dtype=source.dtype, device=device)
        self._write()

    def _write(self) -> None:
        rows = max(1, _COPIED_AT_A_TIME // max(_row_bytes(self.source), 1))
        with torch.no_grad():
            self._values.resize_(self.source.shape)
            for part, place in zip(torch.split(self.source, rows), torch.split(self._values, rows), strict=True):
                place.copy_(part)
        self._version, self._spaced_values = tensor_version(self.source), _spaced_values(self.source)

    def current(self) -> Tensor:
        """Return the current values of ``source`` as a tensor on the device. Callers must not write to this tensor."""
        if tensor_version(self.source) != self._version:
            self._write()
        if self._values.is_cuda:  # with this call, PyTorch frees the memory only after its last use on this stream
            self._values.record_stream(torch.cuda.current_stream(self._values.device))
        return self._values

    def refresh_if_written(self) -> None:
        """Copy ``source`` again if one of its values at regularly spaced positions has changed since the last copy."""
        if not torch.equal(_spaced_values(self.source), self._spaced_values):
            self._write()


def available_device_memory(device: torch.device) -> int:
    """Return the free memory of ``device`` in bytes.

    On the CPU, the result is the memory of the machine, or the cgroup limit if the limit is lower, minus the memory
    that this process uses.

    Raises:
        NotResidentError: the system does not report its memory.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # Memory that PyTorch has reserved, but no tensor uses, is also free.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    try:
        return max(usable_memory() - process_memory().bytes, 0)
    except NotImplementedError as error:
        raise NotResidentError(str(error)) from None


def readable_size(count: int) -> str:
    """Return a number of bytes as text with a unit, such as ``1.5 GiB``."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 2**10:.1f} KiB"


def _row_bytes(tensor: Tensor) -> int:
    return tensor.nbytes // max(len(tensor), 1)


def _spaced_values(source: Tensor) -> Tensor:
    """Return the values at regularly spaced positions of ``source``, as bytes.

    If a later call returns other bytes, ``source`` has changed.
    """
    step = max(1, min(_COMPARED_EVERY, _row_bytes(source)) // source.element_size())
    # Permute the axes to the order of the memory, so that flattening a dense tensor copies nothing.
    strides = source.stride()
    order = sorted(range(source.ndim), key=lambda axis: -strides[axis])
    flat = source.detach().permute(order).reshape(-1)
    return flat[::step].clone(memory_format=torch.contiguous_format).view(torch.uint8)
