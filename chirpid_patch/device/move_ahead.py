"""Iterators that move each batch to the device while the device still computes on the previous batch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.data import IterableDataset

from chirpid_patch.datasets.collate import is_stacking_collate
from chirpid_patch.datasets.gather import is_in_memory
from chirpid_patch.device.moving import device_with_index, move_batch, to_checked_device
from chirpid_patch.device.side_stream import BatchCopy, CudaCopyStream
from chirpid_patch.loading.limits import worker_processes
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.samplers import batches_to_request_early
from chirpid_patch.torch_private import DataLoader

__all__ = ["DeviceIterator", "DevicePrefetcher", "move_batch"]


class DevicePrefetcher:
    """Iterate over the batches of any loader, and move each batch to ``device`` in advance.

        for x, y in DevicePrefetcher(loader, device): ...

    For a CUDA device, a separate stream copies the batches while the device computes. Tensors that are not in pinned
    memory are first copied to pinned memory. The CPU waits for a copy on this stream only if the loader could overwrite
    the pinned memory that is still being copied. ``move_batch`` moves some batches without a separate stream: batches
    with sparse or other special tensors, batches with other objects that have a ``to`` method, and all batches for
    other devices.

    ``len`` returns the length of the loader. Attributes of the loader, such as ``dataset`` and ``sampler``, are also
    attributes of this object.

    Args:
        loader: any iterable of batches. Each loop iterates over ``loader`` again.
        device: the device to which the batches are moved.
        lookahead: whether to request each batch before the training uses the previous batch. With early requests,
            loading overlaps with the device's work even if the training waits for the device in every step
            (``loss.item()``). With None, the object requests batches early only if training and loader provably get
            the same random numbers as without early requests. Pass True only if training and loader share no random
            generator, and the dataset does not change within an epoch.

    Raises:
        ValueError: ``device`` is a CUDA device, but CUDA is not available.
    """

    def __init__(self, loader: Any, device: str | torch.device, *, lookahead: bool | None = None) -> None:
        self.loader = loader
        self.device = to_checked_device(device)
        self.lookahead = lookahead
        self._cuda: CudaCopyStream | None = None

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        if self.device.type != "cuda":
            return map(partial(move_batch, device=self.device), batches)
        lookahead = self.lookahead
        if lookahead is None:  # with ``epochs``, the second request counts the epoch, so it must not be early
            lookahead = can_prefetch_without_rng_drift(self.loader) and getattr(self.loader, "epochs", None) is None
        return DeviceIterator(batches, self._copies(), lookahead=lookahead, settle=not _yields_new_memory(self.loader))

    def _copies(self) -> CudaCopyStream:
        """Return the ``CudaCopyStream`` for the copies; all epochs use the same stream."""
        device = device_with_index(self.device)
        if self._cuda is None or self._cuda.device != device:
            self._cuda = CudaCopyStream(device)
        return self._cuda

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader" or name.startswith("__"):  # unpickling looks up attributes before ``loader`` exists
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.loader, name)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the CUDA stream, which cannot be pickled."""
        return {**self.__dict__, "_cuda": None}


class DeviceIterator(Iterator[Any]):
    """Iterate over the batches of one epoch, and copy each batch to a CUDA device.

    Args:
        batches: the iterator of the loader.
        cuda: a ``CudaCopyStream``, or a replacement in tests.
        lookahead: whether to request and copy the next batch while the training uses a batch.
        settle: whether to wait for the copy of a batch before the next request. Pass False only if each batch of the
            loader has its own memory, because any other loader could overwrite a batch that is still being copied.
    """

    def __init__(self, batches: Iterator[Any], cuda: Any, *, lookahead: bool, settle: bool = True) -> None:
        self._batches = batches
        self._cuda = cuda
        self._lookahead = lookahead
        self._settle = settle
        self._last: BatchCopy | None = None
        self._next: BatchCopy | Exception | None = None

    def __next__(self) -> Any:
        coming, self._next = self._request_batch() if self._next is None else self._next, None
        if isinstance(coming, Exception):
            raise coming
        batch = coming.hand_over()  # before the next request, because the loader may then overwrite this batch
        if self._lookahead:
            self._next = self._request_batch()
        return batch

    def _request_batch(self) -> BatchCopy | Exception:
        """Request the next batch, start its copy, and return the copy.

        If loading raises an exception, return the exception. ``__next__`` raises the exception later, when the training
        requests the batch.
        """
        if self._settle and self._last is not None:
            self._last.wait_for_copies()
        try:
            self._last = BatchCopy(next(self._batches), self._cuda)
        except Exception as error:
            return error
        return self._last


def _yields_new_memory(loader: Any) -> bool:
    """Return whether each batch of ``loader`` provably has its own memory, which the loader never overwrites."""
    ours = type(loader) is DataLoader or isinstance(loader, BatchedDataLoader)
    return ours and (worker_processes(loader) > 0 or is_stacking_collate(loader.collate_fn))


def can_prefetch_without_rng_drift(loader: Any, *, in_memory: bool = False) -> bool:
    """Return whether all random numbers provably stay the same if the caller requests each batch one batch early.

    The result is True only if the sampler draws no random numbers during the epoch, and one of two conditions holds:

    * Worker processes read the samples.
    * ``in_memory`` is True, and the main process reads samples from an in-memory dataset. The random numbers of such a
      dataset depend only on the ``RandomKey`` of each request. With early requests, a change of the dataset within an
      epoch takes effect one batch later than without early requests.
    """
    ours = type(loader) is BatchedDataLoader
    if not (ours or type(loader) is DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    if not (worker_processes(loader) or (in_memory and ours and is_in_memory(loader.dataset))):
        return False
    free = batches_to_request_early(loader)
    return free > 0 and free == len(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
