"""Noticing that a worker process died without letting the news interrupt the training step.

PyTorch reports a dead worker from its SIGCHLD handler, as a RuntimeError at whatever statement the main
thread happens to be executing. A loader that can go on by itself wants to be told instead.
"""

from __future__ import annotations

import re
import signal
import threading
import weakref
from types import FrameType
from typing import Any, Protocol

_PIDS = re.compile(r"\(pid(?:\(s\))? ([\d, ]+)\)")


class Watched(Protocol):
    """Something with worker processes."""

    @property
    def pids(self) -> frozenset[int] | None:
        """Ids of its workers; None while they are being started."""

    def worker_died(self, error: RuntimeError) -> None:
        """Called in the main thread; may raise ``error`` where raising is wanted."""


_watched: weakref.WeakSet[Any] = weakref.WeakSet()


class _Handler:
    """PyTorch's SIGCHLD handler, its errors handed to the loader they concern."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        try:
            self._wrapped(signum, frame)
        except RuntimeError as error:
            owner = _owner_of(error)
            if owner is None:
                raise
            owner.worker_died(error)


def _owner_of(error: RuntimeError) -> Watched | None:
    found = _PIDS.search(str(error))
    if found is None:
        return None
    pids = {int(number) for number in found.group(1).split(",")}
    watched: list[Watched] = list(_watched)
    known = [one for one in watched if one.pids is not None and pids & one.pids]
    starting = [one for one in watched if one.pids is None]
    return next(iter(known or starting), None)


def watch(owner: Watched) -> None:
    """Tell ``owner`` about its dead workers from now on, for as long as it lives.

    Without SIGCHLD (Windows), or outside the main thread, where PyTorch installs no handler either, dead
    workers are found by PyTorch's own polling.
    """
    if hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread():
        from torch.utils.data._utils.signal_handling import _set_SIGCHLD_handler

        _set_SIGCHLD_handler()  # PyTorch does this itself, once, but only after the workers run
        current = signal.getsignal(signal.SIGCHLD)
        if callable(current) and not isinstance(current, _Handler):
            signal.signal(signal.SIGCHLD, _Handler(current))
    _watched.add(owner)
