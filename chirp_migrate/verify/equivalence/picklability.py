"""Checks of whether a loader could send its objects to worker processes that ``spawn`` starts.

The check pickles like ``spawn``, with the pickler of :mod:`multiprocessing`, and unpickles in this process; it starts
no process. It does not copy the data of tensors and arrays: such data always pickles, and moving it to shared memory,
as PyTorch does, would change the watched training.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import context, reduction
from typing import Any

import numpy as np
import torch

__all__ = ["as_if_starting_a_process", "check_picklable", "is_plain_data", "why_not_picklable"]

_PARTS = ("dataset", "collate_fn", "worker_init_fn")


def why_not_picklable(loader: Any) -> str:
    """Return why the loader's dataset, ``collate_fn`` or ``worker_init_fn`` cannot be sent; ``""`` if they can."""
    for name in _PARTS:
        part = getattr(loader, name, None)
        try:
            check_picklable(part)
        except Exception as error:  # any error of the user's __getstate__ or __setstate__ is the reason
            text = " ".join(f"{type(error).__name__}: {error}".split())
            return f"{name} ({type(part).__name__}): {text[:200]}"
    return ""


def check_picklable(value: Any) -> None:
    """Pickle and unpickle a value.

    Raises:
        Exception: any error of pickle or the user's code.
    """
    buffer = io.BytesIO()
    kept: list[Any] = []
    with as_if_starting_a_process():
        _Pickler(buffer, kept).dump(value)
    buffer.seek(0)
    _Unpickler(buffer, kept).load()


@contextmanager
def as_if_starting_a_process() -> Iterator[None]:
    """Allow locks, queues and connections to be pickled, as while a process is started."""
    before = context.get_spawning_popen()
    context.set_spawning_popen(_Starting())  # type: ignore[arg-type]
    try:
        yield
    finally:
        context.set_spawning_popen(before)


def is_plain_data(value: Any) -> bool:
    """Return whether a value is a tensor or array whose data provably pickles."""
    if isinstance(value, torch.Tensor):
        # Any other object cannot be sent, and the pickler has the reason.
        return value.is_leaf or not value.requires_grad
    return type(value) is np.ndarray and not value.dtype.hasobject


class _Pickler(reduction.ForkingPickler):
    """A pickler that stores references to plain data instead of the data."""

    def __init__(self, buffer: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(buffer)
        self._kept = kept

    def persistent_id(self, value: Any) -> int | None:
        if not is_plain_data(value):
            return None
        self._kept.append(value)
        return len(self._kept) - 1


class _Unpickler(pickle.Unpickler):
    """The unpickler for the output of :class:`_Pickler` in the same process."""

    def __init__(self, buffer: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(buffer)
        self._kept = kept

    def persistent_load(self, place: Any) -> Any:
        return self._kept[place]


@dataclass(frozen=True)
class _Duplicate:
    """A file descriptor that is being sent."""

    descriptor: int

    def detach(self) -> int:
        """Return a duplicate of the descriptor for the receiver."""
        return os.dup(self.descriptor)


class _Starting:
    """A stand-in for a starting process, because locks, queues and connections can only be sent to such a process."""

    DupFd = _Duplicate

    def duplicate_for_child(self, descriptor: int) -> int:
        """Return the descriptor itself, because no process is started."""
        return descriptor
