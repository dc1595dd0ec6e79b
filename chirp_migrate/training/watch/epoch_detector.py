"""Detect when a training begins an epoch, from its loader passes and its calls of ``backward``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

_BEFORE_TRAINING = 2
"""Largest number of passes over the training loader before training, for example to compute the mean of samples."""

_T = TypeVar("_T", bound="EpochDetector")


class SeenEnough(BaseException):
    """Exception that ends a training call. ``except Exception`` does not catch a ``BaseException``."""


class EpochDetector:
    """Context manager that detects when an epoch of a training call begins; docs/verify.md describes epochs.

    Before the first call of ``backward``, each iteration over the first training loader begins an epoch, because some
    trainings never call ``backward``. The first call of ``backward`` sets :attr:`later` to 0 again.

    The first training loader is the first loader that is iterated over twice with gradients enabled. If the training
    builds a new loader for every epoch, loaders with the same dataset count as one loader. An epoch then begins with
    the third loader of a dataset: the first loader may compute statistics, and the second loader may begin training.

    Attributes:
        later: number of epochs that have begun after the first epoch.
        trains: whether the training called ``backward``.
        evaluates: whether the training iterated over its training loader without calling ``backward``, for example to
            evaluate.
    """

    def __init__(self) -> None:
        self.later = 0
        self.trains = False
        self.evaluates = False
        self._trained = False
        self._met: dict[int, list[Any]] = {}  # id of a dataset → the dataset and its loaders, in order of first use
        self._pacing: Any = None
        self._watching = call_before_backward(self._record_backward)

    def __enter__(self: _T) -> _T:
        self._watching.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._watching.__exit__(*exception)

    def begins_epoch(self, loader: Any) -> bool:
        """Return whether the iteration over ``loader`` that starts now begins a second or later epoch."""
        if not torch.is_grad_enabled():
            return False
        dataset = getattr(loader, "dataset", loader)
        known = self._met.setdefault(id(dataset), [dataset])
        again = any(one is loader for one in known[1:])
        if not again:
            known.append(loader)
        if self._pacing is None and (again or len(known) > 3):
            self._pacing = loader if again else dataset
        if self._pacing is None or (self._pacing is not loader and self._pacing is not dataset):
            return False
        if self.trains and not self._trained:
            self.evaluates = True
            return False
        self._trained = False
        self.later += 1
        return True

    def is_over(self, epochs: int) -> bool:
        """Return whether ``epochs`` epochs have begun after the first epoch.

        If the training has not called ``backward``, two additional epochs must have begun.
        """
        return self.later >= (epochs if self.trains else epochs + _BEFORE_TRAINING)

    def _record_backward(self) -> None:
        if not self.trains:
            self.trains, self.later = True, 0
        self._trained = True


@contextmanager
def call_before_backward(callback: Callable[[], None]) -> Iterator[None]:
    """Return a context in which ``callback`` is called before each ``backward`` of a tensor or of autograd."""
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*arguments: Any, **named: Any) -> None:
        callback()
        original(*arguments, **named)

    torch.autograd.backward = backward
    try:
        yield
    finally:
        torch.autograd.backward = original
