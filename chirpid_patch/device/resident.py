"""A placement that stores all samples on a device, so that building a batch needs no copy from the CPU."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from chirpid_patch.datasets.collate import collate_pairs, is_stacking_collate
from chirpid_patch.datasets.gather import fetch_batch
from chirpid_patch.datasets.rows import can_select_rows_of
from chirpid_patch.device.moving import device_with_index, move_batch
from chirpid_patch.device.resident_tensors import (
    DeviceTensorCopy,
    NotResidentError,
    available_device_memory,
    readable_size,
)
from chirpid_patch.device.resident_view import replace_tensors, sample_source_tensors
from chirpid_patch.loading.batch_reader import BatchReader
from chirpid_patch.loading.batch_requests import BatchRequest
from chirpid_patch.loading.placement import Placement

logger = logging.getLogger("chirpid_patch")

_HOLDING = ("cuda", "cpu")
#: Maps the ``id`` of a source tensor and a device to the copy of the tensor on the device. A ``DeviceTensorCopy`` keeps
#: its source tensor alive.
_uploads: WeakValueDictionary[tuple[int, torch.device], DeviceTensorCopy] = WeakValueDictionary()


class ResidentPlacement(Placement):
    """A ``Placement`` that copies the samples to ``device`` once, and builds the batches on the device.

    The order of the samples, the augmentation and the states of the global generators are the same as on the CPU. Only
    the noise of ``GaussianNoise(mode="exact")`` has other values than on the CPU, with the same distribution. Samples
    keep their dtype on the device, so an 8-bit value takes one byte.

    Several loaders over the same tensors share one copy on the device. The copy is freed when each of these loaders has
    been deleted, or its method ``shutdown`` has been called. Unless the dataset changes, iterating over the loader does
    not synchronise with the device.

    Assignments to attributes of the dataset or its transforms take effect at the next batch. In-place operations of
    PyTorch on tensors of the dataset also take effect at the next batch. Writes through NumPy or ``Tensor.data`` take
    effect at the next epoch, if the writes change a whole sample or at least 4096 adjacent bytes. Smaller writes
    through NumPy or ``Tensor.data`` may have no effect on the batches. If the device cannot build batches of the
    changed dataset, for example because of a new transform, the loader reads batches on the CPU and moves the batches
    to the device.

    The loader uses no workers and no threads. The loader cannot be pickled.

    Args:
        device: the device that builds the batches.
        share: share of the device's free memory that the samples may take, above 0 and at most 1.

    Raises:
        NotResidentError: the samples take too much memory, or are not rows of tensors, or the device is neither CUDA
            nor the CPU. The message names the reason.
        ValueError: the device does not exist, ``share`` is out of range, or the loader has workers, threads or pinned
            memory.
    """

    is_held = True

    def __init__(self, device: str | torch.device, share: float = 0.5) -> None:
        self.device = device_with_index(device)
        if not 0 < share <= 1:
            raise ValueError(f"resident_share must be above 0 and at most 1, not {share}")
        if self.device.type not in _HOLDING:
            raise NotResidentError(f"samples can be stored on CUDA devices, not on {self.device.type}")
        self._share = share
        #: ``_held`` maps the ``id`` of each source tensor to the tensor's copy on the device. ``_read`` contains the
        #: ids of the source tensors from which this epoch has read batches.
        self._held: dict[int, DeviceTensorCopy] = {}
        self._read: set[int] = set()

    @property
    def bytes(self) -> int:
        """Return the size of the samples on the device in bytes, including samples shared with other loaders."""
        return sum(upload.source.nbytes for upload in self._held.values())

    def attach(self, loader: Any) -> None:
        if loader.worker_processes or loader.prefetch_threads != 0 or loader.pin_memory:
            raise ValueError(
                "samples that are stored on a device need no workers, threads or pinned memory: omit num_workers, and "
                "pass pin_memory=False and prefetch_threads=0"
            )
        self.hold(loader.dataset, batches=loader.batch_sampler is not None, collate=loader.collate_fn)

    def hold(self, dataset: Any, *, batches: bool, collate: Any) -> None:
        """Copy the samples of ``dataset`` to the device, unless the device has a copy already.

        Args:
            dataset: the dataset of the loader.
            batches: whether the loader builds batches. False means that automatic batching is off
                (``batch_size=None``).
            collate: the ``collate_fn`` of the loader.

        Raises:
            NotResidentError: the samples take too much memory, or a loader with these arguments cannot build batches on
                the device.
        """
        if isinstance(dataset, IterableDataset):
            raise NotResidentError("samples of an iterable dataset cannot be read by index")
        if not batches:
            raise NotResidentError("automatic batching is off (batch_size=None)")
        if not is_stacking_collate(collate):
            raise NotResidentError("a custom collate_fn needs the list of single samples")
        self._hold(sample_source_tensors(dataset))

    def _hold(self, tensors: Iterable[Tensor]) -> None:
        wanted = {id(tensor): tensor for tensor in tensors if id(tensor) not in self._held}
        if any(not can_select_rows_of(tensor) or tensor.is_inference() for tensor in wanted.values()):
            raise NotResidentError("a tensor of the dataset is not a plain tensor in the CPU's memory")
        needed = sum(one.nbytes for place, one in wanted.items() if (place, self.device) not in _uploads)
        free = available_device_memory(self.device) if needed else 0
        if needed > self._share * free:
            raise NotResidentError(
                f"the samples take {readable_size(needed)}, more than {self._share:.0%} of the {readable_size(free)} "
                f"free on {self.device}"
            )
        before = dict(self._held)
        try:
            for place, tensor in wanted.items():
                upload = _uploads.get((place, self.device))
                if upload is None:
                    upload = _uploads[place, self.device] = DeviceTensorCopy(tensor, self.device)
                self._held[place] = upload
        except torch.cuda.OutOfMemoryError:
            self._held = before
            raise NotResidentError(f"{self.device} has no free memory block of {readable_size(needed)}") from None

    def copy(self, tensor: Tensor) -> Tensor:
        """Return the copy of ``tensor`` on the device. If there is no copy yet, create a copy."""
        self._hold([tensor])
        self._read.add(id(tensor))
        return self._held[id(tensor)].current()

    def begin_epoch(self, dataset: Any) -> None:
        try:
            expected = sample_source_tensors(dataset)
            kept = self._read | set(map(id, expected))
            known = {place: upload for place, upload in self._held.items() if place in kept}
            self._held, self._read = dict(known), set()
            self._hold(expected)
        except NotResidentError as reason:
            logger.info("batches are read on the CPU and moved to %s, because %s", self.device, reason)
            return
        for upload in known.values():
            upload.refresh_if_written()

    def reader(self, loader: Any) -> BatchReader:
        return _ResidentReader(loader.dataset, loader.collate_fn, self)

    def release(self) -> None:
        self._held, self._read = {}, set()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a loader whose samples are on {self.device} cannot be pickled or copied deeply: send the dataset to the "
            "other process, and build the loader there"
        )


class _ResidentReader(BatchReader):
    """A reader that builds batches on the device if possible, and otherwise moves batches from the CPU."""

    def __init__(self, dataset: Any, collate: Any, resident: ResidentPlacement) -> None:
        super().__init__(dataset, collate, batches=True)
        self._as_tuple = collate is collate_pairs
        self._resident = resident

    def read(self, request: BatchRequest) -> Any:
        try:
            sample_source_tensors(self.dataset)
            view = replace_tensors(self.dataset, self._resident.copy)
        except NotResidentError:
            view = None  # the dataset has changed, and only the CPU can read it now
        batch = None if view is None else fetch_batch(view, request.indices, request.key)
        if not isinstance(batch, list) or (self._as_tuple and len(batch) != 2):
            return move_batch(super().read(request), self._resident.device)
        return tuple(batch) if self._as_tuple else batch
