"""Check whether a loader can pickle its objects for worker processes that start with ``spawn``.

The check starts no process. Like ``spawn``, the check pickles with the pickler of :mod:`multiprocessing`. The check
then unpickles the objects in this process. The check does not pickle the data of tensors and arrays. Such data can
always be pickled, and pickling would move the data of tensors to shared memory, and so change the recorded training.
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

_PARTS = ("dataset", "collate_fn", "worker_init_fn")


def why_not_picklable(loader: Any) -> str:
    """Return why the loader's dataset, ``collate_fn`` or ``worker_init_fn`` cannot be pickled; ``""`` if they can."""
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
        Exception: any error of ``pickle`` or of the project's code.
    """
    buffer = io.BytesIO()
    pickler, unpickler = _Pickler(buffer), _Unpickler(buffer)
    pickler.kept = unpickler.kept = []
    with allow_process_start_pickling():
        pickler.dump(value)
    buffer.seek(0)
    unpickler.load()


@contextmanager
def allow_process_start_pickling() -> Iterator[None]:
    """Return a context in which locks, queues and connections can be pickled, as at the start of a process."""
    before = context.get_spawning_popen()
    context.set_spawning_popen(_StartingProcess())  # type: ignore[arg-type]
    try:
        yield
    finally:
        context.set_spawning_popen(before)


def is_always_picklable(value: Any) -> bool:
    """Return whether a value is a tensor or array that always pickles."""
    if isinstance(value, torch.Tensor):
        # A tensor with a history of gradients cannot be pickled; the pickler raises the error with the reason.
        return value.is_leaf or not value.requires_grad
    return type(value) is np.ndarray and not value.dtype.hasobject


class _Pickler(reduction.ForkingPickler):
    """A pickler that stores references to plain data instead of the data."""

    kept: list[Any]

    def persistent_id(self, value: Any) -> int | None:
        if not is_always_picklable(value):
            return None
        self.kept.append(value)
        return len(self.kept) - 1


class _Unpickler(pickle.Unpickler):
    """Unpickler that reads the output of :class:`_Pickler` in the same process."""

    kept: list[Any]

    def persistent_load(self, place: Any) -> Any:
        return self.kept[place]


@dataclass(frozen=True)
class _DuplicableDescriptor:
    """A file descriptor in a pickle."""

    descriptor: int

    def detach(self) -> int:
        """Return a duplicate of the file descriptor for the process that unpickles it."""
        return os.dup(self.descriptor)


class _StartingProcess:
    """Replacement for a starting process. Locks, queues and connections can only be pickled while a process starts."""

    DupFd = _DuplicableDescriptor

    def duplicate_for_child(self, descriptor: int) -> int:
        """Return the file descriptor itself, because no process is started."""
        return descriptor
