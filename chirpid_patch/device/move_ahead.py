"""Batches brought to the device while it still computes on the one before (R-001)."""

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
    """Any loader, its batches on ``device``.

        for x, y in DevicePrefetcher(loader, device): ...

    On CUDA, batches are copied on a stream of its own, beside what the training has queued there: from pinned memory
    as it is, from other memory by way of pinned memory. Neither the device nor the training's stream is ever waited
    for. What moves itself, and all where there is no CUDA, is moved as ``move_batch`` does it. Everything else
    (``len``, ``dataset``, ``set_epoch`` of its sampler …) is the loader's.

    Args:
        loader: any iterable of batches; iterated anew each time.
        device: where the batches go. Raises ValueError for a CUDA device where there is none.
        lookahead: ask the loader for a batch before the one before is trained on, so that its copy is over by then
            also in loops that wait for the device in every step (``loss.item()``). None does so only where no random
            number moves by it. True is right wherever neither the training nor the loader draws from a generator that
            the other one uses, and the dataset is not changed within an epoch.
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
        if lookahead is None:  # a rank's loader counts its epochs by what it is asked for
            lookahead = asked_early_unnoticed(self.loader) and getattr(self.loader, "epochs", None) is None
        return DeviceIterator(batches, self._copies(), lookahead=lookahead, settle=not _gives_away(self.loader))

    def _copies(self) -> CudaCopies:
        """The device and its stream, kept from epoch to epoch."""
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
        """Everything but the stream."""
        return {**self.__dict__, "_cuda": None}


class DeviceIterator(Iterator[Any]):
    """One epoch of ``batches``, copied by ``cuda``.

    Args:
        batches: the loader's iterator.
        cuda: a ``CudaCopies``, or what stands for it.
        lookahead: one more batch is under way while one is trained on.
        settle: the loader may write over a batch once it is asked for the next.
    """

    def __init__(self, batches: Iterator[Any], cuda: Any, *, lookahead: bool, settle: bool = True) -> None:
        self._batches = batches
        self._cuda = cuda
        self._lookahead = lookahead
        self._settle = settle
        self._last: BatchCopy | None = None
        self._next: BatchCopy | Exception | None = None

    def __next__(self) -> Any:
        coming, self._next = self._ask() if self._next is None else self._next, None
        if isinstance(coming, Exception):
            raise coming
        batch = coming.hand_over()  # what is moved in order is read now, before the loader is asked again
        if self._lookahead:
            self._next = self._ask()
        return batch

    def _ask(self) -> BatchCopy | Exception:
        """The next batch on its way, or what loading it raised: the loop meets it where it would have."""
        if self._settle and self._last is not None:
            self._last.settle()
        try:
            self._last = BatchCopy(next(self._batches), self._cuda)
        except Exception as error:
            return error
        return self._last


def _gives_away(loader: Any) -> bool:
    """Whether each batch of ``loader`` surely is in memory of its own, which the loader does not write to again."""
    ours = type(loader) is DataLoader or isinstance(loader, BatchedDataLoader)
    return ours and (worker_processes(loader) > 0 or stacks_samples(loader.collate_fn))


def asked_early_unnoticed(loader: Any, *, in_memory: bool = False) -> bool:
    """Whether no random number moves when ``loader`` is asked for a batch early.

    That is where workers draw and the sampler draws nothing as it goes; also ``in_memory``, where samples draw by key,
    and only a change of the dataset within an epoch would count later.
    """
    ours = type(loader) is BatchedDataLoader
    if not (ours or type(loader) is DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    if not (worker_processes(loader) or (in_memory and ours and is_in_memory(loader.dataset))):
        return False
    free = tasks_drawn_freely(loader)
    return free > 0 and free == len(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
