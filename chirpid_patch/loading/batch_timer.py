"""Clocks that measure how long a loop waits for each batch, and how long each step takes."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

logger = logging.getLogger("chirpid_patch")


def count_batch_samples(batch: Any) -> int:
    """Return the number of samples in a batch.

    The number is the length of the first tensor or array in the batch. If the batch contains neither a tensor nor an
    array, the number is the length of the batch.
    """
    length = _first_length(batch)
    if length is not None:
        return length
    if isinstance(batch, Mapping):
        return count_batch_samples(next(iter(batch.values()))) if batch else 0
    return len(batch) if isinstance(batch, list | tuple) else 1


def _first_length(batch: Any) -> int | None:
    if isinstance(batch, Tensor | np.ndarray):
        return int(batch.shape[0]) if batch.ndim else None
    inside = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((length for length in map(_first_length, inside) if length is not None), None)


class BatchTimer:
    """A clock for a loop over batches.

    Call ``batch_requested`` when the loop requests a batch, and ``batch_arrived`` when the batch arrives.

    Args:
        clock: function that returns the current time. The time is a number of seconds, or an object that supports
            subtraction, such as ``ClockReadings``. None: ``time.perf_counter``.
    """

    def __init__(self, clock: Callable[[], Any] | None = None) -> None:
        self._now: Callable[[], Any] = clock or time.perf_counter
        self._requested: Any = None
        self._arrived: Any = None
        self._paused: Any = None

    def batch_requested(self) -> Any:
        """Record that the loop requests a batch, and return the time since the last batch arrived.

        For the first request, the result is None.
        """
        arrived, self._arrived = self._arrived, None
        self._requested = now = self._now()
        return None if arrived is None else now - arrived

    def batch_arrived(self) -> Any:
        """Record that a batch has arrived, and return how long the loop waited; None if no request was recorded."""
        self.resume()
        requested, self._requested = self._requested, None
        self._arrived = now = self._now()
        return None if requested is None else now - requested

    def pause(self) -> None:
        """Stop the clock until ``resume``, for example during a validation."""
        if self._requested is not None and self._paused is None:
            self._paused = self._now()

    def resume(self) -> None:
        """Continue the clock after ``pause``."""
        if self._paused is not None:
            self._requested += self._now() - self._paused
            self._paused = None

    def restart(self) -> None:
        """Forget the last request and the last arrival. Call this method when an epoch begins or ends."""
        self._requested = self._arrived = self._paused = None


class TimedBatches(Iterator[Any]):
    """Iterate over batches, and record how long the loop waited for each batch.

    Args:
        batches: iterator over the batches.
        at_end: function that is called with this object after the last batch; None: no function.

    Attributes:
        waits: for each batch, the seconds from its request to its arrival.
        steps: for each batch, the seconds from its arrival to the next request.
        samples: for each batch, the number of samples.
        over: whether the iteration has ended.
    """

    def __init__(self, batches: Iterator[Any], at_end: Callable[[TimedBatches], object] | None = None) -> None:
        self._batches = batches
        self._at_end = at_end
        self._timer = BatchTimer()
        self.waits: list[float] = []
        self.steps: list[float] = []
        self.samples: list[int] = []
        self.over = False

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        step = self._timer.batch_requested()
        if step is not None:
            self.steps.append(step)
        try:
            batch = next(self._batches)
        except StopIteration:
            if not self.over:
                self.over = True
                if self._at_end is not None:
                    self._at_end(self)
            raise
        self.waits.append(self._timer.batch_arrived())
        self.samples.append(count_batch_samples(batch))
        return batch


def log_or_print(message: str) -> None:
    """Log ``message`` at level INFO. If the program's logging hides this level, print ``message`` to standard error."""
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info(message)
    else:
        print(f"{logger.name}: {message}", file=sys.stderr)


def log_waits(batches: TimedBatches) -> None:
    """Log or print how long the training waited for ``batches``, the batches of an epoch."""
    if not batches.waits:
        log_or_print("the epoch had no batches")
        return
    waits = np.array(batches.waits)
    elapsed = waits.sum() + sum(batches.steps)
    log_or_print(
        f"epoch of {len(waits)} batches, {sum(batches.samples)} samples: data wait mean {waits.mean() * 1e3:.2f} ms, "
        f"p99 {np.percentile(waits, 99) * 1e3:.2f} ms, sum {100 * waits.sum() / elapsed:.0f} % of {elapsed:.2f} s"
    )
