"""Divide a training call into epochs, time each epoch, and end the call after enough epochs.

An epoch begins when the training iterates again over a loader, as :class:`EpochDetector` describes. An epoch contains
one pass over each training loader, the validation, and all other code until the next epoch begins. The time before the
second epoch counts as start-up: it includes the first epoch, computing statistics, building models and starting
workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch

from chirp_migrate.training.watch.epoch_detector import EpochDetector
from chirp_migrate.training.watch.interception import Interception, LoaderIteratorWrapper
from chirp_migrate.verify.spec import EntryPointTiming
from chirp_migrate.verify.timing.constant_batch import RepeatedBatchLoading
from chirpid_patch.loading.batch_timer import count_batch_samples

LONGEST_VISIT = 6
"""Largest number of epochs after the first to time in one round. Fewer epochs are timed if epochs are long."""

_ENOUGH_S = 0.2

FOR_ALL_S = 5.0
"""Seconds for the timing of all later epochs (after the first) of all entry points of a process together.

An entry point with more epochs in the user's own run (full training) gets a larger share of the time, because long own
runs decide the total.
"""


class EnoughEpochsTimed(BaseException):
    """Exception that ends a training call after enough epochs are timed.

    ``except Exception`` does not catch a ``BaseException``.
    """


class EpochTimer(Interception):
    """Context manager under which :meth:`time` divides a training call into epochs.

    Enter this context after other interceptions (contexts that replace ``iter(loader)``), because an epoch must begin
    before other code uses the loader.

    Args:
        turn: function that is called after each epoch, for example to wait for the next turn of this process. The time
            of this call does not count for any epoch.
        least: smallest number of epochs to time, without the first epoch.
        cached: zero-cost loading for an additional last epoch; None for no such epoch.
        most: largest number of epochs after the first to time.
    """

    def __init__(
        self,
        turn: Callable[[], None],
        least: int = 1,
        cached: RepeatedBatchLoading | None = None,
        most: int = LONGEST_VISIT,
    ) -> None:
        super().__init__(self._pass)
        self._turn = turn
        self._least = least
        self._most = max(least, most)
        self._enough_s = _ENOUGH_S
        self._cached = cached
        self._is_timing = False
        self._pacing = EpochDetector()
        self._reset()

    def time(self, call: Callable[[], Any], enough_s: float = 0.0) -> EntryPointTiming:
        """Run a training call until enough epochs are timed, and return its timing.

        Args:
            call: the training call.
            enough_s: timing ends after this many seconds of later epochs (at least 0.2) and ``least`` later epochs.

        Raises:
            Exception: any error of the call.
        """
        self._reset()
        self._enough_s = max(_ENOUGH_S, enough_s)
        self.cover_new_classes()
        self._start_clock()
        self._is_timing = True
        try:
            with self._pacing, suppress(EnoughEpochsTimed):
                value = call()
                self._visit.rest_s = self._elapsed_seconds()
                del value
        finally:
            self._is_timing = False
        if self._cached is not None:
            self._cached.is_active = False
        visit = self._visit
        if not self._pacing.later:
            self._count_as_start_up(visit.rest_s)
            visit.rest_s = 0.0
        later = len(visit.epochs_s)
        visit.samples /= max(1, later)
        visit.batches /= max(1, later)
        self._pacing = EpochDetector()  # frees the datasets of the training
        return visit

    def _reset(self) -> None:
        self._visit = EntryPointTiming()
        self._pacing = EpochDetector()
        self._over = False
        self._taken = [0, 0]

    def _pass(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        if not self._is_timing:
            return start()
        if self._pacing.begins_epoch(loader) or self._over:
            self._end_epoch()

        def around(advance: Callable[[], Any]) -> Any:
            batch = advance()
            self._taken[0] += count_batch_samples(batch)
            self._taken[1] += 1
            return batch

        return LoaderIteratorWrapper(self, loader, start(), around)

    def _end_epoch(self) -> None:
        seconds, visit = self._elapsed_seconds(), self._visit
        if self._over:
            raise EnoughEpochsTimed
        if self._pacing.later == 1:
            self._count_as_start_up(seconds)
        elif self._cached is not None and self._cached.is_active:
            visit.cached_s.append(seconds)
        else:
            visit.epochs_s.append(seconds)
            visit.samples += self._taken[0]
            visit.batches += self._taken[1]
        is_long = sum(visit.epochs_s) >= self._enough_s
        if self._pacing.is_over(1 + (self._least if is_long else self._most)):
            if self._cached is None or visit.cached_s:
                self._over = True
                raise EnoughEpochsTimed
            self._cached.is_active = True
        self._turn()
        self._start_clock()

    def _count_as_start_up(self, seconds: float) -> None:
        """Count ``seconds``, and all passes before the first call of ``backward``, as start-up."""
        visit = self._visit
        visit.start_s += sum(visit.epochs_s) + seconds
        visit.epochs_s, visit.cached_s = [], []
        visit.samples = visit.batches = 0.0
        if self._cached is not None:
            self._cached.is_active = False

    def _start_clock(self) -> None:
        self._taken = [0, 0]
        _finish_device()
        if self._cached is not None:
            self._cached.making_s = 0.0
        self._began = time.perf_counter()

    def _elapsed_seconds(self) -> float:
        _finish_device()
        making_s = self._cached.making_s if self._cached is not None else 0.0
        return time.perf_counter() - self._began - making_s


def _finish_device() -> None:
    """Wait until the GPU (CUDA, Apple's MPS or another) has finished its work, so that the epoch includes this work."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
