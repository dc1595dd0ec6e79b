"""Whether a loader could send what it holds to worker processes that are started by ``spawn``.

Tried as ``spawn`` does it, with the pickler of :mod:`multiprocessing`, and loaded again in this process; no process is
started. The data of tensors and arrays is not copied: it pickles anyway, and moving it to shared memory, as PyTorch
does, would change what is being watched.
"""

from __future__ import annotations

import io
import os
import pickle
from dataclasses import dataclass
from multiprocessing import context, reduction
from typing import Any

import numpy as np
import torch

__all__ = ["why_not_picklable"]

_PARTS = ("dataset", "collate_fn", "worker_init_fn")


def why_not_picklable(loader: Any) -> str:
    """Why the loader's data set, ``collate_fn`` or ``worker_init_fn`` cannot be sent; ``""`` when they can."""
    for name in _PARTS:
        part = getattr(loader, name, None)
        try:
            _round_trip(part)
        except Exception as error:  # whatever the user's __getstate__ or __setstate__ raises is the reason
            text = " ".join(f"{type(error).__name__}: {error}".split())
            return f"{name} ({type(part).__name__}): {text[:200]}"
    return ""


def _round_trip(value: Any) -> None:
    buffer = io.BytesIO()
    kept: list[Any] = []
    before = context.get_spawning_popen()
    context.set_spawning_popen(_Starting())  # type: ignore[arg-type]
    try:
        _Pickler(buffer, kept).dump(value)
    finally:
        context.set_spawning_popen(before)
    buffer.seek(0)
    _Unpickler(buffer, kept).load()


class _Pickler(reduction.ForkingPickler):
    """Sends the place of plain data instead of the data."""

    def __init__(self, buffer: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(buffer)
        self._kept = kept

    def persistent_id(self, value: Any) -> int | None:
        if isinstance(value, torch.Tensor):
            if value.requires_grad and not value.is_leaf:
                return None  # cannot be sent, and the pickler says why
        elif not (type(value) is np.ndarray and not value.dtype.hasobject):
            return None
        self._kept.append(value)
        return len(self._kept) - 1


class _Unpickler(pickle.Unpickler):
    """Loads only what :class:`_Pickler` has just written from objects of this process."""

    def __init__(self, buffer: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(buffer)
        self._kept = kept

    def persistent_load(self, place: Any) -> Any:
        return self._kept[place]


@dataclass(frozen=True)
class _Duplicate:
    """A file descriptor on its way."""

    descriptor: int

    def detach(self) -> int:
        """A descriptor of the receiver's own."""
        return os.dup(self.descriptor)


class _Starting:
    """Stands for the process about to be started: locks, queues and connections may be sent only to one."""

    DupFd = _Duplicate

    def duplicate_for_child(self, descriptor: int) -> int:
        """Nothing is started, so nothing is duplicated."""
        return descriptor
