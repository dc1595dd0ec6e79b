"""The clock of all measurements, which times how long a loop waits for each batch, and how long its steps take."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

logger = logging.getLogger("chirpid_patch")


def batch_samples(batch: Any) -> int:
    """Return the number of samples in a batch: the length of its first tensor or array, or of the batch itself."""
    length = _first_length(batch)
    if length is not None:
        return length
    if isinstance(batch, Mapping):
        return batch_samples(next(iter(batch.values()))) if batch else 0
    return len(batch) if isinstance(batch, list | tuple) else 1


def _first_length(batch: Any) -> int | None:
    if isinstance(batch, Tensor | np.ndarray):
        return int(batch.shape[0]) if batch.ndim else None
    inside = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((length for length in map(_first_length, inside) if length is not None), None)


class BatchTimer:
    """The clock of one loop. Its owner calls it when the loop requests a batch and when the batch arrives.

    Args:
        clock: returns the time in seconds, or several times at once in an object that supports subtraction; None is
            ``time.perf_counter``.
    """

    def __init__(self, clock: Callable[[], Any] | None = None) -> None:
        self._now: Callable[[], Any] = clock or time.perf_counter
        self._asked: Any = None
        self._arrived: Any = None
        self._paused: Any = None

    def ask(self) -> Any:
        """Record a request, and return the time since the last arrival, the step; None for the first request."""
        arrived, self._arrived = self._arrived, None
        self._asked = now = self._now()
        return None if arrived is None else now - arrived

    def arrive(self) -> Any:
        """Record an arrival, and return the wait; None without a recorded request."""
        self.resume()
        asked, self._asked = self._asked, None
        self._arrived = now = self._now()
        return None if asked is None else now - asked

    def pause(self) -> None:
        """Stop counting a wait until ``resume``: the loop validates or saves."""
        if self._asked is not None and self._paused is None:
            self._paused = self._now()

    def resume(self) -> None:
        """Continue counting the wait."""
        if self._paused is not None:
            self._asked += self._now() - self._paused
            self._paused = None

    def restart(self) -> None:
        """Forget the last batch: an epoch begins or ends."""
        self._asked = self._arrived = self._paused = None


class TimedBatches(Iterator[Any]):
    """Yield batches, and record how long the loop waited for each.

    Args:
        batches: the batches.
        at_end: called with this object at the end of the batches.

    Attributes:
        waits: seconds from the request of each batch to its arrival.
        steps: seconds from the arrival of each batch to the next request.
        samples: samples of each batch.
        over: whether the batches have ended.
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
        step = self._timer.ask()
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
        self.waits.append(self._timer.arrive())
        self.samples.append(batch_samples(batch))
        return batch


def log_or_print(message: str) -> None:
    """Log a requested ``message`` at INFO; print it to standard error if the program does not show that level."""
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info(message)
    else:
        print(f"{logger.name}: {message}", file=sys.stderr)


def log_waits(epoch: TimedBatches) -> None:
    """Log the data waits of an epoch."""
    if not epoch.waits:
        log_or_print("epoch without batches")
        return
    waits = np.array(epoch.waits)
    elapsed = waits.sum() + sum(epoch.steps)
    log_or_print(
        f"epoch of {len(waits)} batches, {sum(epoch.samples)} samples: data wait mean {waits.mean() * 1e3:.2f} ms, "
        f"p99 {np.percentile(waits, 99) * 1e3:.2f} ms, {100 * waits.sum() / elapsed:.0f} % of {elapsed:.2f} s"
    )
