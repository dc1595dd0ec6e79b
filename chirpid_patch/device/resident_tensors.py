"""Tensors held on a device: copied there once, shared by all loaders, and kept as their sources are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from chirpid_patch.datasets.rows import is_plain
from chirpid_patch.machine.process_memory import process_memory
from chirpid_patch.machine.usable_memory import usable_memory
from chirpid_patch.torch_private import version

#: Bytes that are copied at a time, so that what is converted on the way stays small.
_COPIED_AT_A_TIME = 64 << 20
#: Sources are looked at in every so many bytes, and in every sample.
_LOOKED_AT_EVERY = 4096
_HOLDING = ("cuda", "cpu")


class NotResidentError(ValueError):
    """Samples cannot be held on a device; the message says why, as part of a sentence."""


class Upload:
    """The copy of a tensor on a device.

    In-place operations of PyTorch on ``source`` are seen whenever the copy is asked for. Writes that PyTorch does not
    know of, through NumPy or ``.data``, are seen by ``look`` if they reach over a sample or 4096 bytes.
    """

    def __init__(self, source: Tensor, device: torch.device) -> None:
        self.source = source
        with torch.inference_mode(False):  # what is made in it could not be written to outside
            self._values = torch.empty(source.shape, dtype=source.dtype, device=device)
        self._write()

    def _write(self) -> None:
        rows = max(1, _COPIED_AT_A_TIME // max(_row_bytes(self.source), 1))
        with torch.no_grad():
            self._values.resize_(self.source.shape)
            for part, place in zip(torch.split(self.source, rows), torch.split(self._values, rows), strict=True):
                place.copy_(part)
        self._version, self._looks = version(self.source), _looks(self.source)

    def current(self) -> Tensor:
        """What ``source`` holds, on the device; not to be written to."""
        if version(self.source) != self._version:
            self._write()
        if self._values.is_cuda:  # freed only after all that reads it, whatever stream that is on
            self._values.record_stream(torch.cuda.current_stream(self._values.device))
        return self._values

    def look(self) -> None:
        """See writes that went past PyTorch."""
        if not torch.equal(_looks(self.source), self._looks):
            self._write()


#: Every upload there is, by the identity of its source, which the upload keeps alive, and device.
_uploads: WeakValueDictionary[tuple[int, torch.device], Upload] = WeakValueDictionary()


class ResidentTensors:
    """The tensors one loader reads from, on ``device``; those that another loader holds there are shared.

    Args:
        device: a CUDA device with its number, or the CPU.
        share: how much of the device's free memory an upload may take, above 0 and at most 1.

    Raises:
        ValueError: for another ``share``.
        NotResidentError: the device is of another kind.
    """

    def __init__(self, device: torch.device, share: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"resident_share must be above 0 and at most 1, not {share}")
        if device.type not in _HOLDING:
            raise NotResidentError(f"samples are held on CUDA devices, not on {device.type}")
        self.device = device
        self.share = share
        self._held: dict[int, Upload] = {}
        self._read: set[int] = set()

    @property
    def bytes(self) -> int:
        """What the tensors held take on the device, shared or not."""
        return sum(map(_bytes, (upload.source for upload in self._held.values())))

    def hold(self, tensors: Iterable[Tensor]) -> None:
        """Upload what is not on the device yet.

        Raises NotResidentError for a tensor that cannot be, and if all together would take more than the share.
        """
        wanted = {id(tensor): tensor for tensor in tensors if id(tensor) not in self._held}
        for tensor in wanted.values():
            _check(tensor)
        needed = sum(_bytes(one) for place, one in wanted.items() if (place, self.device) not in _uploads)
        if needed:
            self._check_room(needed)
        before = dict(self._held)
        try:
            for place, tensor in wanted.items():
                upload = _uploads.get((place, self.device))
                if upload is None:
                    upload = _uploads[place, self.device] = Upload(tensor, self.device)
                self._held[place] = upload
        except torch.cuda.OutOfMemoryError:
            self._held = before
            raise NotResidentError(f"{self.device} has no {readable_size(needed)} in one piece") from None

    def _check_room(self, needed: int) -> None:
        free = free_memory(self.device)
        if needed > self.share * free:
            raise NotResidentError(
                f"the samples take {readable_size(needed)}, more than {self.share:.0%} of the {readable_size(free)} "
                f"free on {self.device}"
            )

    def get(self, tensor: Tensor) -> Tensor:
        """What ``tensor`` holds, on the device, uploaded now if it has to be; NotResidentError as ``hold``."""
        place = id(tensor)
        if place not in self._held:
            self.hold([tensor])
        self._read.add(place)
        return self._held[place].current()

    def begin_epoch(self, tensors: Iterable[Tensor]) -> None:
        """Hold these, let go of all that are neither among them nor were read in the last epoch, look at the rest.

        Raises NotResidentError as ``hold``.
        """
        expected = list(tensors)
        kept = self._read | set(map(id, expected))
        self._held = {place: upload for place, upload in self._held.items() if place in kept}
        self._read = set()
        known = list(self._held.values())
        self.hold(expected)
        for upload in known:
            upload.look()

    def release(self) -> None:
        """Let go of all of them: what no other loader holds is freed."""
        self._held, self._read = {}, set()


def free_memory(device: torch.device) -> int:
    """Bytes that may still be allocated on ``device``; on the CPU, what this process may use and does not.

    Raises NotResidentError where the system does not tell.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What PyTorch has taken from the device and not given out.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    try:
        return max(usable_memory() - process_memory().bytes, 0)
    except NotImplementedError as error:
        raise NotResidentError(str(error)) from None


def _check(tensor: Any) -> None:
    if not is_plain(tensor) or tensor.is_inference():
        raise NotResidentError("a tensor of the dataset is no plain one in the CPU's memory")


def _row_bytes(tensor: Tensor) -> int:
    return _bytes(tensor) // max(len(tensor), 1)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def readable_size(count: int) -> str:
    """``count`` bytes in words."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 2**10:.1f} KiB"


def _looks(source: Tensor) -> Tensor:
    """The values at regular places of ``source``, as bytes."""
    step = max(1, min(_LOOKED_AT_EVERY, _row_bytes(source)) // source.element_size())
    # As they lie in memory: of a dense tensor nothing has to be copied for that.
    strides = source.stride()
    order = sorted(range(source.ndim), key=lambda axis: -strides[axis])
    flat = source.detach().permute(order).reshape(-1)
    return flat[::step].clone(memory_format=torch.contiguous_format).view(torch.uint8)
