"""Batches brought to the device while it still computes on the one before (R-001)."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader

from chirpid_patch.loading.loader import BatchedDataLoader
from chirpid_patch.loading.samplers import tasks_drawn_freely

logger = logging.getLogger("chirpid_patch")

Move = Callable[[Any], Any]


def move_batch(batch: Any, device: str | torch.device) -> Any:
    """``batch`` with everything in it that has a device on ``device``.

    Moved are tensors, packed sequences and objects with a ``to`` method of their own, in lists, tuples, named tuples,
    mappings and dataclasses, however nested. What is there already, and a container in which nothing moves, is passed
    on as it is. The copy is only non-blocking where that gains something and is safe: from pinned memory to CUDA.

    Raises:
        ValueError: ``device`` is a CUDA device and there is none.
    """
    return _mapped(batch, partial(_move, _usable(device)))


class DevicePrefetcher:
    """Any loader, its batches on ``device``.

        for x, y in DevicePrefetcher(loader, device): ...

    Batches in pinned memory are copied to a CUDA device on a stream of its own, beside what the training has queued
    there; only the copy is ever waited for, never the device. All others are moved as ``move_batch`` does it, and
    without CUDA that is all that happens. Everything else (``len``, ``dataset``, ``batch_sampler``, ``set_epoch`` of
    its sampler …) is the loader's.

    Args:
        loader: any iterable of batches; iterated anew each time.
        device: where the batches go.
        lookahead: ask the loader for a batch while the one before is being trained on, so that its copy is over by
            then also in loops that wait for the device in every step (``loss.item()``). None does so only where
            nothing but the loader can notice: PyTorch's loader or this package's, with workers, and a sampler that
            draws nothing as it goes. Random generators are then at every moment as without the prefetcher. True is
            right wherever neither the training nor the loader draws from a generator that the other one uses.

    Raises:
        ValueError: ``device`` is a CUDA device and there is none.
    """

    def __init__(self, loader: Any, device: str | torch.device, *, lookahead: bool | None = None) -> None:
        self.loader = loader
        self.device = _usable(device)
        self.lookahead = lookahead

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        if self.device.type != "cuda":
            return map(partial(_mapped, move=partial(_move, self.device)), batches)
        lookahead = _asked_early_unnoticed(self.loader) if self.lookahead is None else self.lookahead
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        return DeviceIterator(batches, SideStream(torch.device("cuda", index)), lookahead=lookahead)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader" or name.startswith("__"):  # while unpickled there is no loader yet
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.loader, name)


class SideStream:
    """Copies batches from pinned memory on a CUDA stream of its own, one at a time.

    ``cuda`` is ``torch.cuda``, or what stands for it.
    """

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda
        self._stream = cuda.Stream(device)
        #: The batch last copied from, and the event of its copy.
        self._last: tuple[Any, Any] | None = None
        self._said = False

    def settle(self) -> None:
        """Wait until the last copy is over. Its source is the loader's again, to free or to write over."""
        if self._last is not None:
            self._last[1].synchronize()
            self._last = None

    def start(self, batch: Any) -> Callable[[], Any]:
        """Begin to copy ``batch``; what is returned gives it, in order with the stream that is current then."""
        parts: list[Any] = []
        _mapped(batch, partial(_noted, parts))
        tensors = [tensor for part in parts for tensor in _tensors(part)]
        to_copy = [tensor for tensor in tensors if tensor.device != self._device and tensor.numel()]
        pinned = all(map(_in_pinned_memory, to_copy))  # empty ones are in no memory
        if not (pinned and to_copy and all(map(_has_tensors, parts))):
            if not (pinned or self._said):
                self._said = True
                logger.info("batches are not in pinned memory, their copies wait: give the loader pin_memory=True")
            return partial(_mapped, batch, partial(_move, self._device))
        copies: list[Tensor] = []
        done = self._cuda.Event()
        with self._cuda.stream(self._stream):
            moved = _mapped(batch, partial(self._copy, copies))
            done.record(self._stream)
        self._last = batch, done
        return partial(self._handed_out, moved, copies, done)

    def _copy(self, copies: list[Tensor], part: Any) -> Any:
        there = part.to(self._device, non_blocking=True)
        if there is not part:
            copies += [tensor for tensor in _tensors(there) if tensor.device == self._device]
        return there

    def _handed_out(self, moved: Any, copies: list[Tensor], done: Any) -> Any:
        current = self._cuda.current_stream(self._device)
        current.wait_event(done)
        for tensor in copies:
            tensor.record_stream(current)  # its memory comes from the side stream, and is not given out before both
        return moved


class DeviceIterator(Iterator[Any]):
    """One epoch of ``batches``, moved by ``side``; with ``lookahead`` one more is under way."""

    def __init__(self, batches: Iterator[Any], side: SideStream, *, lookahead: bool) -> None:
        self._batches = batches
        self._side = side
        self._lookahead = lookahead
        self._next: Callable[[], Any] | Exception | None = None

    def __next__(self) -> Any:
        batch, self._next = self._ask() if self._next is None else self._next, None
        if isinstance(batch, Exception):
            raise batch
        if self._lookahead:
            self._next = self._ask()
        return batch()

    def _ask(self) -> Callable[[], Any] | Exception:
        """The next batch on its way, or what the loader raised: the loop meets it where it would have."""
        self._side.settle()
        try:
            batch = next(self._batches)
        except Exception as error:
            return error
        return self._side.start(batch)


def _usable(device: str | torch.device) -> torch.device:
    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"there is no CUDA device for {str(chosen)!r}: pass device='cpu', or one of this machine")
    return chosen


def _asked_early_unnoticed(loader: Any) -> bool:
    """Whether nothing but ``loader`` itself changes when it is asked for its batches early."""
    if type(loader) not in (DataLoader, BatchedDataLoader) or not loader.num_workers:
        return False
    free = tasks_drawn_freely(loader)
    return free > 0 and free == len(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)


def _move(device: torch.device, part: Any) -> Any:
    if not _has_tensors(part):
        return part.to(device)
    return part.to(device, non_blocking=device.type == "cuda" and all(map(_in_pinned_memory, _tensors(part))))


def _has_tensors(part: Any) -> bool:
    return isinstance(part, Tensor | PackedSequence)


def _tensors(part: Any) -> list[Tensor]:
    """The tensors of a tensor or packed sequence; the batch sizes of the latter stay on the CPU."""
    if isinstance(part, PackedSequence):
        return [one for one in (part.data, part.sorted_indices, part.unsorted_indices) if one is not None]
    return [part] if isinstance(part, Tensor) else []


def _in_pinned_memory(tensor: Tensor) -> bool:
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_nested
    return plain and tensor.is_pinned()


def _noted(parts: list[Any], part: Any) -> Any:
    parts.append(part)
    return part


def _mapped(batch: Any, move: Move) -> Any:
    """``batch`` with ``move`` applied to all that can be moved, and itself where that changed nothing."""
    if batch is None or isinstance(batch, str | bytes | int | float | complex | type):
        return batch
    if callable(getattr(batch, "to", None)):
        return move(batch)
    if isinstance(batch, Mapping):
        items = {key: _mapped(value, move) for key, value in batch.items()}
        return batch if all(items[key] is batch[key] for key in items) else _mapping_like(batch, items)
    if isinstance(batch, list | tuple):
        parts = [_mapped(part, move) for part in batch]
        return batch if all(map(_is, parts, batch)) else _sequence_like(batch, parts)
    if dataclasses.is_dataclass(batch):
        fields = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
        changed = {name: _mapped(value, move) for name, value in fields.items()}
        return batch if all(changed[name] is fields[name] for name in fields) else _dataclass_like(batch, changed)
    return batch


def _is(one: Any, other: Any) -> bool:
    return one is other


def _mapping_like(batch: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if isinstance(batch, MutableMapping):  # it may hold more than its items
        twin = copy.copy(batch)
        twin.update(items)
        return twin
    make: Any = type(batch)
    return make(items)


def _sequence_like(batch: Sequence[Any], parts: list[Any]) -> Any:
    if isinstance(batch, list):
        twin = copy.copy(batch)
        twin[:] = parts
        return twin
    make: Any = type(batch)
    return make(*parts) if hasattr(batch, "_fields") else make(parts)


def _dataclass_like(batch: Any, fields: Mapping[str, Any]) -> Any:
    twin = copy.copy(batch)
    for name, value in fields.items():
        object.__setattr__(twin, name, value)  # also where the class is frozen
    return twin
