"""Detect when a training begins an epoch, from its iterations over loaders and its calls of ``backward``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

_BEFORE_TRAINING = 2
"""Largest number of iterations over the training loader before the training, for example to compute a mean."""

_T = TypeVar("_T", bound="EpochDetector")


class StopTraining(BaseException):
    """Exception that ends a training call when enough epochs have run.

    The class is no subclass of ``Exception``, so ``except Exception`` in the training does not catch this exception.
    """


class EpochDetector:
    """Context manager that detects when an epoch of a training call begins; docs/verify.md describes epochs.

    The training loader is the first loader over which the training iterates twice while gradients are enabled. If the
    training builds a new loader for every epoch, all loaders with the same dataset count as one loader. The second of
    these loaders may still begin the first epoch, because the training may use the first loader only to compute
    statistics. So the detector assumes that the third loader begins a later epoch.

    An iteration over the training loader begins an epoch if the training has called ``backward`` since the previous
    epoch began. Some trainings never call ``backward``, so every iteration counts as an epoch before the first call. If
    a first call follows, these iterations came before the training, and the detector counts from 0 again.

    Attributes:
        later: number of epochs that have begun so far, without the first epoch.
        trains: whether the training called ``backward``.
        evaluates: whether the training also iterated over its training loader without a call of ``backward``, for
            example to compute an accuracy.
    """

    def __init__(self) -> None:
        self.later = 0
        self.trains = False
        self.evaluates = False
        self._trained = False
        self._met: dict[int, list[Any]] = {}  # id of a dataset → the dataset, then its loaders in order of use
        self._pacing: Any = None
        self._watching = call_before_backward(self._record_backward)

    def __enter__(self: _T) -> _T:
        self._watching.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._watching.__exit__(*exception)

    def begins_epoch(self, loader: Any) -> bool:
        """Return whether a new iteration over ``loader`` begins an epoch other than the first epoch.

        Call this method whenever an iteration over a loader starts, because the method also counts the epochs.
        """
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
        """Return whether at least ``epochs`` epochs have begun after the first epoch.

        If the training has not called ``backward`` so far, ``epochs + 2`` epochs are necessary. Two of them may be
        iterations that only prepare the training, for example to compute a mean.
        """
        return self.later >= (epochs if self.trains else epochs + _BEFORE_TRAINING)

    def _record_backward(self, _: Any) -> None:
        if not self.trains:
            self.trains, self.later = True, 0
        self._trained = True


@contextmanager
def call_before_backward(callback: Callable[[Any], None]) -> Iterator[None]:
    """Return a context in which ``callback(tensor)`` is called before every ``tensor.backward()``.

    Before ``torch.autograd.backward(tensors)``, ``callback(tensors)`` is called.
    """
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(tensors: Any, *arguments: Any, **named: Any) -> None:
        callback(tensors)
        original(tensors, *arguments, **named)

    torch.autograd.backward = backward
    try:
        yield
    finally:
        torch.autograd.backward = original
