"""How long a loop waited for each of its batches: the one clock of loaders, trials and the monitor."""

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
    """Samples in a batch: the length of the first tensor or array in it, or of the batch itself where it has none."""
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


class BatchTimer(Iterator[Any]):
    """Passes batches on, and keeps how long each was waited for.

    Args:
        batches: the batches.
        at_end: called with this once they have come to their end.

    Attributes:
        waits: seconds from asking for each batch to its arrival.
        samples: samples of each batch.
        begun, first, last: when this was made, and the first and the last batch arrived (``time.perf_counter``).
        over: whether the batches have come to their end.
    """

    def __init__(self, batches: Iterator[Any], at_end: Callable[[BatchTimer], object] | None = None) -> None:
        self._batches = batches
        self._at_end = at_end
        self.waits: list[float] = []
        self.samples: list[int] = []
        self.over = False
        self.begun = self.first = self.last = time.perf_counter()

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        asked = time.perf_counter()
        try:
            batch = next(self._batches)
        except StopIteration:
            if not self.over:
                self.over = True
                if self._at_end is not None:
                    self._at_end(self)
            raise
        self.last = time.perf_counter()
        if not self.waits:
            self.first = self.last
        self.waits.append(self.last - asked)
        self.samples.append(batch_samples(batch))
        return batch


def tell(message: str) -> None:
    """Log ``message``, which was asked for, at INFO; on standard error where the program does not show that level."""
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info(message)
    else:
        print(f"{logger.name}: {message}", file=sys.stderr)


def tell_waits(epoch: BatchTimer) -> None:
    """Tell what an epoch waited for its batches."""
    if not epoch.waits:
        tell("epoch without batches")
        return
    waits, elapsed = np.array(epoch.waits), time.perf_counter() - epoch.begun
    tell(
        f"epoch of {len(waits)} batches, {sum(epoch.samples)} samples: data wait mean {waits.mean() * 1e3:.2f} ms, "
        f"p99 {np.percentile(waits, 99) * 1e3:.2f} ms, {100 * waits.sum() / elapsed:.0f} % of {elapsed:.2f} s"
    )
