"""Batches brought to the device while it still computes on the one before (R-001)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from chirpid_patch.data.collate import stacks_samples
from chirpid_patch.device.moving import mapped, move_batch, move_part, usable_device
from chirpid_patch.device.side_stream import CudaCopies, Run, SideStream, run_now
from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.samplers import tasks_drawn_freely

__all__ = ["DeviceIterator", "DevicePrefetcher", "move_batch"]


class DevicePrefetcher:
    """Any loader, its batches on ``device``.

        for x, y in DevicePrefetcher(loader, device): ...

    On CUDA, batches are copied on a stream of its own, beside what the training has queued there: from pinned memory
    at once, from other memory through pinned memory that is allocated once and used in turn (``pin_memory=False`` of
    the loader saves an allocation and a copy a batch). Neither the device nor the training's stream is ever waited
    for. What moves itself (objects with a ``to`` of their own) and what is no plain memory is moved as ``move_batch``
    does it; without CUDA that is all that happens. Everything else (``len``, ``dataset``, ``batch_sampler``,
    ``set_epoch`` of its sampler …) is the loader's.

    Args:
        loader: any iterable of batches; iterated anew each time.
        device: where the batches go.
        lookahead: ask the loader for a batch while the one before is being trained on, and stage it on a thread, so
            that its copy is over by then also in loops that wait for the device in every step (``loss.item()``). None
            does so only where nothing but the loader can notice: PyTorch's loader or this package's, with workers,
            and a sampler that draws nothing as it goes. Random generators are then at every moment as without the
            prefetcher. True is right wherever neither the training nor the loader draws from a generator that the
            other one uses, and the dataset is not changed within an epoch.

    Raises:
        ValueError: ``device`` is a CUDA device and there is none.
    """

    def __init__(self, loader: Any, device: str | torch.device, *, lookahead: bool | None = None) -> None:
        self.loader = loader
        self.device = usable_device(device)
        self.lookahead = lookahead
        self._side: SideStream | None = None
        self._stager: ThreadPoolExecutor | None = None

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        if self.device.type != "cuda":
            return map(partial(mapped, move=partial(move_part, self.device)), batches)
        lookahead = _asked_early_unnoticed(self.loader) if self.lookahead is None else self.lookahead
        run = self._on_a_thread if lookahead else run_now
        settle = not _gives_away(self.loader)
        return DeviceIterator(batches, self._side_stream(), run, lookahead=lookahead, settle=settle)

    def _side_stream(self) -> SideStream:
        """The stream and its pinned memory, kept from epoch to epoch."""
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        device = torch.device("cuda", index)
        if self._side is None or self._side.device != device:
            self._side = SideStream(CudaCopies(device))
        return self._side

    def _on_a_thread(self, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        if self._stager is None:
            self._stager = ThreadPoolExecutor(1, "chirpid-staging")
        return self._stager.submit(function, *arguments).result

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader" or name.startswith("__"):  # while unpickled there is no loader yet
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.loader, name)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the stream, its memory and the thread."""
        return {**self.__dict__, "_side": None, "_stager": None}


class DeviceIterator(Iterator[Any]):
    """One epoch of ``batches``, moved by ``side``.

    Args:
        batches: the loader's iterator.
        side: copies them.
        run: runs the copying of a batch, here or on a thread.
        lookahead: one more batch is under way while one is trained on.
        settle: the loader may write over a batch once it is asked for the next.
    """

    def __init__(
        self, batches: Iterator[Any], side: SideStream, run: Run = run_now, *, lookahead: bool, settle: bool = True
    ) -> None:
        self._batches = batches
        self._side = side
        self._run = run
        self._lookahead = lookahead
        self._settle = settle
        self._next: Callable[[], Any] | Exception | None = None

    def __next__(self) -> Any:
        coming, self._next = self._ask() if self._next is None else self._next, None
        if isinstance(coming, Exception):
            raise coming
        batch = coming()  # its memory is not read by this process any more when the loader is asked again
        if self._lookahead:
            self._next = self._ask()
        return batch

    def _ask(self) -> Callable[[], Any] | Exception:
        """The next batch on its way, or what the loader raised: the loop meets it where it would have."""
        if self._settle:
            self._side.settle()
        try:
            batch = next(self._batches)
        except Exception as error:
            return error
        return self._side.start(batch, self._run)


def _gives_away(loader: Any) -> bool:
    """Whether each batch of ``loader`` surely is in memory of its own, which the loader does not write to again."""
    ours = type(loader) is DataLoader or isinstance(loader, BatchedDataLoader)
    return ours and (loader.num_workers > 0 or stacks_samples(loader.collate_fn))


def _asked_early_unnoticed(loader: Any) -> bool:
    """Whether nothing but ``loader`` itself changes when it is asked for its batches early."""
    if type(loader) not in (DataLoader, BatchedDataLoader) or not loader.num_workers:
        return False
    free = tasks_drawn_freely(loader)
    return free > 0 and free == len(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
