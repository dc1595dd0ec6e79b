"""How long a training loop waited for each of its batches."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor


def count_samples(batch: Any) -> int:
    """Samples in a collated batch: the length of its first tensor, 0 if it holds none."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 1
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        return next((count for count in map(count_samples, batch) if count), 0)
    return 0


def tell(logger: logging.Logger, message: str) -> None:
    """Log ``message``, which was asked for, at INFO; on standard error where the program does not show that level."""
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info(message)
    else:
        print(f"{logger.name}: {message}", file=sys.stderr)


class EpochWaits(Iterator[Any]):
    """Passes batches on; logs the waits once the epoch is complete."""

    def __init__(self, batches: Iterator[Any], logger: logging.Logger) -> None:
        self._batches = batches
        self._logger = logger
        self._begun = time.perf_counter()
        self._waits: list[float] = []
        self._samples = 0

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        asked = time.perf_counter()
        try:
            batch = next(self._batches)
        except StopIteration:
            self._log()
            raise
        self._waits.append(time.perf_counter() - asked)
        self._samples += count_samples(batch)
        return batch

    def _log(self) -> None:
        if not self._waits:
            tell(self._logger, "epoch without batches")
            return
        waits = np.array(self._waits)
        elapsed = time.perf_counter() - self._begun
        tell(
            self._logger,
            f"epoch of {len(waits)} batches, {self._samples} samples: data wait mean {waits.mean() * 1e3:.2f} ms, "
            f"p99 {np.percentile(waits, 99) * 1e3:.2f} ms, {100 * waits.sum() / elapsed:.0f} % of {elapsed:.2f} s",
        )
        self._waits = []  # a further next() on the spent iterator logs nothing more than "without batches"
