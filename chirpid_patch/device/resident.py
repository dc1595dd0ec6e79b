"""Samples held on the device, so that a batch costs a few kernels there and no copy."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset

from chirpid_patch.datasets.collate import collate_pairs, stacks_samples
from chirpid_patch.datasets.gather import fetch_batch
from chirpid_patch.device.moving import move_batch, usable_device
from chirpid_patch.device.resident_tensors import NotResidentError, ResidentTensors
from chirpid_patch.device.resident_view import base_tensors, resident_view
from chirpid_patch.loading.placement import Placement
from chirpid_patch.loading.reading import BatchReader
from chirpid_patch.loading.requests import Request

logger = logging.getLogger("chirpid_patch")


def numbered_device(device: str | torch.device) -> torch.device:
    """``device``, a CUDA device with the number of the current one where none is given.

    Raises ValueError if it is a CUDA device and there is none.
    """
    chosen = usable_device(device)
    if chosen.type == "cuda" and chosen.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return chosen


class HeldOn(Placement):
    """Batches are made on ``device``, from samples that were copied there once.

    Order, draws from the global generators, and what is augmented how are those of the loader without it: random
    numbers come from the same keys. On the CPU, batches are equal to its batches to the last bit, and on CUDA as far
    as the device computes alike; noise of mode ``"exact"`` has the same distribution there, and other values. 8-bit
    samples are held as such. Several loaders over the same tensors (folds, training and validation) share one copy,
    which is freed with the last of them, or by ``shutdown``.

    Nothing in an iteration waits for the device. Changes of datasets and transforms count from the next batch on, and
    so do in-place operations of PyTorch on their tensors, which are uploaded again; writes past PyTorch (NumPy,
    ``.data``) that reach over a sample or 4096 bytes, from the next epoch on. Batches that cannot be made on the
    device any more, as the dataset then is, are read on the CPU and moved.

    The loader loads in this process, without threads. It cannot be pickled.

    Args:
        device: where batches are made.
        share: how much of the device's free memory the samples may take, above 0 and at most 1.

    Raises:
        NotResidentError: the samples do not fit, or are not rows of tensors; a ValueError that says what is in the way.
        ValueError: the device is not there; the loader has workers, threads, or pinned memory.
    """

    is_held = True

    def __init__(self, device: str | torch.device, share: float = 0.5) -> None:
        self.device = numbered_device(device)
        self._resident = ResidentTensors(self.device, share)

    def hold(self, dataset: Any, *, batches: bool, collate: Any) -> None:
        """Upload the samples of a loader, unless they are there."""
        self._resident.hold(rows_to_hold(dataset, batches=batches, collate=collate))

    def attach(self, loader: Any) -> None:
        """Upload the samples of ``loader``, unless they are there."""
        if loader.worker_processes or loader.prefetch_threads != 0 or loader.pin_memory:
            raise ValueError(
                "samples on a device are read in this process: leave num_workers out, and give pin_memory=False and "
                "prefetch_threads=0"
            )
        self.hold(loader.dataset, batches=loader.batch_sampler is not None, collate=loader.collate_fn)

    @property
    def bytes(self) -> int:
        """What the samples take on the device, shared with other loaders or not."""
        return self._resident.bytes

    def begin_epoch(self, dataset: Any) -> None:
        """See what was changed; read on the CPU where that cannot be held any more."""
        try:
            self._resident.begin_epoch(base_tensors(dataset))
        except NotResidentError as reason:
            logger.info("batches are read on the CPU and moved to %s: %s", self.device, reason)

    def reader(self, loader: Any) -> BatchReader:
        """What makes the batches there."""
        return _ResidentReader(loader.dataset, loader.collate_fn, self._resident)

    def deliver(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, which are there."""
        return batches

    def release(self) -> None:
        """Free what is held on the device, unless another loader uses it. The next epoch uploads it again."""
        self._resident.release()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"the loader cannot be pickled or copied deeply, its samples are on {self.device}: make one in the other "
            "process, from the dataset"
        )


class _ResidentReader(BatchReader):
    """Makes batches on the device, and those that it cannot on the CPU."""

    def __init__(self, dataset: Any, collate: Any, resident: ResidentTensors) -> None:
        super().__init__(dataset, collate, batches=True)
        self._as_tuple = collate is collate_pairs
        self._resident = resident

    def read(self, request: Request) -> Any:
        """The batch of ``request`` on the device."""
        try:
            base_tensors(self.dataset)
            view = resident_view(self.dataset, self._resident.get)
        except NotResidentError:
            view = None  # as the dataset is now, only the CPU can read it
        batch = None if view is None else fetch_batch(view, request.indices, request.key)
        if not isinstance(batch, list) or (self._as_tuple and len(batch) != 2):
            return move_batch(super().read(request), self._resident.device)
        return tuple(batch) if self._as_tuple else batch


def rows_to_hold(dataset: Any, *, batches: bool, collate: Any) -> list[torch.Tensor]:
    """The tensors a loader with these arguments reads all its batches from.

    ``batches`` says whether the loader makes batches, and does not pass on single samples.

    Raises NotResidentError, which says why its batches cannot be made on a device.
    """
    if isinstance(dataset, IterableDataset):
        raise NotResidentError("an iterable dataset has no rows to hold")
    if not batches:
        raise NotResidentError("automatic batching is off (batch_size=None)")
    if not stacks_samples(collate):
        raise NotResidentError("a collate_fn of your own takes single samples")
    return base_tensors(dataset)
