"""Loaders whose samples are held on the device, so that a batch costs a few kernels there and no copy."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch.utils.data import IterableDataset

from chirpid_patch.datasets.collate import collate_pairs, stacks_samples
from chirpid_patch.device.moving import move_batch, usable_device
from chirpid_patch.device.resident_batches import ResidentBatches, base_tensors
from chirpid_patch.device.resident_tensors import NotResidentError, ResidentTensors
from chirpid_patch.distributed.loader import DistributedDataLoader
from chirpid_patch.loading.in_process import InProcessIterator
from chirpid_patch.loading.loader import BatchedDataLoader
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


class ResidentDataLoader(BatchedDataLoader[Any]):
    """A ``BatchedDataLoader`` whose batches are made on ``device``, from samples that were copied there once.

    Order, draws from the global generators, and what is augmented how are those of the loader it replaces: random
    numbers come from the same keys. On the CPU, batches are equal to its batches to the last bit, and on CUDA as far
    as the device computes alike; noise of mode ``"exact"`` has the same distribution there, and other values. 8-bit
    samples are held as such. Several loaders over the same tensors (folds, training and validation) share one copy,
    which is freed with the last of them, or by ``shutdown``.

    Nothing in an iteration waits for the device. Changes of datasets and transforms count from the next batch on, and
    so do in-place operations of PyTorch on their tensors, which are uploaded again; writes past PyTorch (NumPy,
    ``.data``) that reach over a sample or 4096 bytes, from the next epoch on. Batches that cannot be made on the
    device any more, as the dataset then is, are read on the CPU and moved.

    It loads in this process, without threads. It cannot be pickled.

    Args:
        device: where batches are made.
        resident_share: how much of the device's free memory the samples may take, above 0 and at most 1.

    All others are those of :class:`BatchedDataLoader`.

    Raises:
        NotResidentError: the samples do not fit, or are not rows of tensors; a ValueError that says what is in the way.
        ValueError: worker processes are asked for, or the device is not there.
    """

    def __init__(
        self, dataset: Any, *args: Any, device: str | torch.device, resident_share: float = 0.5, **kwargs: Any
    ) -> None:
        super().__init__(dataset, *args, **{**kwargs, "prefetch_threads": 0})
        self.device = numbered_device(device)
        self.resident_share = resident_share
        if self.num_workers:
            raise ValueError("samples on a device are read in this process: leave num_workers out")
        self.pin_memory = False
        self._resident = ResidentTensors(self.device, resident_share)
        self._resident.hold(rows_to_hold(dataset, batches=self.batch_sampler is not None, collate=self.collate_fn))

    @property
    def resident_bytes(self) -> int:
        """What the samples take on the device, shared with other loaders or not."""
        return self._resident.bytes

    def _iterate_here(self, seed: int | None) -> InProcessIterator:
        try:
            self._resident.begin_epoch(base_tensors(self.dataset))
        except NotResidentError as reason:
            logger.info("batches are read on the CPU and moved to %s: %s", self.device, reason)
        return super()._iterate_here(seed)

    def _reader(self, *, sent: bool) -> BatchReader:
        return _ResidentReader(self.dataset, self.collate_fn, self._resident)

    def shutdown(self) -> None:
        """Free what is held on the device, unless another loader uses it. The next iteration uploads it again."""
        super().shutdown()
        self._resident.release()

    def __copy__(self) -> ResidentDataLoader:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__getstate__())
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied deeply, its samples are on {self.device}: make one "
            "in the other process, from the dataset"
        )


class ResidentDistributedDataLoader(ResidentDataLoader, DistributedDataLoader):
    """A :class:`ResidentDataLoader` of one rank: each rank holds the whole dataset on its device."""


class _ResidentReader(BatchReader):
    """Makes batches on the device, and those that it cannot on the CPU."""

    def __init__(self, dataset: Any, collate: Any, resident: ResidentTensors) -> None:
        super().__init__(dataset, collate, batches=True)
        self._as_tuple = collate is collate_pairs
        self._device = resident.device
        self._batches = ResidentBatches(resident)

    def read(self, request: Request) -> Any:
        """The batch of ``request`` on the device."""
        batch = self._batches.read(self.dataset, request.indices, request.key)
        if batch is None or (self._as_tuple and len(batch) != 2):
            return move_batch(super().read(request), self._device)
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
