"""Check whether the objects of a loader can be pickled for worker processes that start with ``spawn``.

The check pickles the objects with the pickler of :mod:`multiprocessing`, as ``spawn`` does, and unpickles them in this
process. The check starts no worker process. The check does not pickle the data of tensors and of arrays of plain
values, because such data can always be pickled. Pickling the data of a tensor would move the data to shared memory,
which would change the recorded training.
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
    """Return why the dataset or a function of a loader cannot be pickled; ``""`` if all can be pickled.

    The function checks the loader's ``dataset``, ``collate_fn`` and ``worker_init_fn``.
    """
    for name in _PARTS:
        part = getattr(loader, name, None)
        try:
            check_picklable(part)
        except Exception as error:  # the user's __getstate__ or __setstate__ may raise any error
            text = " ".join(f"{type(error).__name__}: {error}".split())
            return f"{name} ({type(part).__name__}): {text[:200]}"
    return ""


def check_picklable(value: Any) -> None:
    """Pickle and unpickle a value, to check whether worker processes can receive the value.

    Raises:
        Exception: the value cannot be pickled or unpickled. The error is an error of ``pickle``, or of the project's
            code.
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
    """Return a context in which locks, queues and connections can be pickled, as if a process were being started."""
    before = context.get_spawning_popen()
    context.set_spawning_popen(_StartingProcess())  # type: ignore[arg-type]
    try:
        yield
    finally:
        context.set_spawning_popen(before)


def is_always_picklable(value: Any) -> bool:
    """Return whether a value is a tensor or array whose data can always be pickled."""
    if isinstance(value, torch.Tensor):
        # A tensor that autograd computed cannot be pickled. The pickler then raises an error with this reason.
        return value.is_leaf or not value.requires_grad
    return type(value) is np.ndarray and not value.dtype.hasobject


class _Pickler(reduction.ForkingPickler):
    """A pickler that stores tensors and arrays as references, without their data."""

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
    """A file descriptor that is part of a pickled object, such as the descriptor of a connection."""

    descriptor: int

    def detach(self) -> int:
        """Return a duplicate of the file descriptor for the process that unpickles the object."""
        return os.dup(self.descriptor)


class _StartingProcess:
    """Object that stands for a process that Python is starting.

    Python pickles locks, queues and connections only while it starts a process. With this object, the check can pickle
    such objects without the start of a process.
    """

    DupFd = _DuplicableDescriptor

    def duplicate_for_child(self, descriptor: int) -> int:
        """Return the same file descriptor, because no process is being started."""
        return descriptor
