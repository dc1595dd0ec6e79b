"""Batches that are moved to the device while it still computes on the previous batch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from chirpid_patch.datasets.collate import stacks_samples
from chirpid_patch.datasets.gather import is_in_memory
from chirpid_patch.device.moving import move_batch, usable_device
from chirpid_patch.device.side_stream import BatchCopy, CudaCopies
from chirpid_patch.loading.limits import worker_processes
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.samplers import tasks_drawn_freely

__all__ = ["DeviceIterator", "DevicePrefetcher", "move_batch"]


class DevicePrefetcher:
    """Iterate over the batches of any loader, moved to ``device``.

        for x, y in DevicePrefetcher(loader, device): ...

    On CUDA it copies batches on a separate stream, in parallel with the training's queued work: pinned memory directly,
    other memory through pinned memory. It waits neither for the device nor for the training's stream. ``move_batch``
    moves objects with their own ``to``, and all batches if there is no CUDA. All other attributes (``dataset``,
    ``sampler``, …) and ``len`` are those of the loader.

    Args:
        loader: any iterable of batches; each loop iterates over it again.
        device: the device to which batches are moved.
        lookahead: request a batch before the training uses the previous one, so that its copy is done in time even if
            the loop waits for the device in every step (``loss.item()``). None requests it early only if that changes
            no random number. Pass True only if training and loader share no random generator, and the dataset does not
            change within an epoch.

    Raises:
        ValueError: ``device`` is a CUDA device, and there is none.
    """

    def __init__(self, loader: Any, device: str | torch.device, *, lookahead: bool | None = None) -> None:
        self.loader = loader
        self.device = usable_device(device)
        self.lookahead = lookahead
        self._cuda: CudaCopies | None = None

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        if self.device.type != "cuda":
            return map(partial(move_batch, device=self.device), batches)
        lookahead = self.lookahead
        if lookahead is None:  # a rank's loader counts its epochs by its requests
            lookahead = can_prefetch_without_rng_drift(self.loader) and getattr(self.loader, "epochs", None) is None
        return DeviceIterator(batches, self._copies(), lookahead=lookahead, settle=not _passes_on(self.loader))

    def _copies(self) -> CudaCopies:
        """Return the device and its stream, which are kept from epoch to epoch."""
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        device = torch.device("cuda", index)
        if self._cuda is None or self._cuda.device != device:
            self._cuda = CudaCopies(device)
        return self._cuda

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader" or name.startswith("__"):  # while unpickled there is no loader yet
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.loader, name)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the stream."""
        return {**self.__dict__, "_cuda": None}


class DeviceIterator(Iterator[Any]):
    """One epoch of ``batches``, copied by ``cuda``.

    Args:
        batches: the loader's iterator.
        cuda: a ``CudaCopies``, or a stand-in for tests.
        lookahead: copy one more batch while the training uses one.
        settle: wait for copies, because the loader may overwrite a batch after the next request.
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
        batch = coming.hand_over()  # the moved batch is read now, before the next request to the loader
        if self._lookahead:
            self._next = self._request_batch()
        return batch

    def _request_batch(self) -> BatchCopy | Exception:
        """Return the next batch, whose copy has started; or the exception of loading it, to be raised later."""
        if self._settle and self._last is not None:
            self._last.wait_for_copies()
        try:
            self._last = BatchCopy(next(self._batches), self._cuda)
        except Exception as error:
            return error
        return self._last


def _passes_on(loader: Any) -> bool:
    """Return whether each batch of ``loader`` provably has its own memory, which the loader never overwrites."""
    ours = type(loader) is DataLoader or isinstance(loader, BatchedDataLoader)
    return ours and (worker_processes(loader) > 0 or stacks_samples(loader.collate_fn))


def can_prefetch_without_rng_drift(loader: Any, *, in_memory: bool = False) -> bool:
    """Return whether requesting a batch of ``loader`` early changes no random number.

    The result is True if workers draw the random numbers and the sampler draws none during the epoch. It also holds for
    datasets in memory (``in_memory``), whose samples use keys. For these, a change of the dataset within an epoch takes
    effect later.
    """
    ours = type(loader) is BatchedDataLoader
    if not (ours or type(loader) is DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    if not (worker_processes(loader) or (in_memory and ours and is_in_memory(loader.dataset))):
        return False
    free = tasks_drawn_freely(loader)
    return free > 0 and free == len(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
