"""How long a training loop waited for each of its batches."""

from __future__ import annotations

import logging
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


def make_audible(logger: logging.Logger) -> None:
    """Let INFO messages through, to standard error where the program has set up no logging: they were asked for."""
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)


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
            self._logger.info("epoch without batches")
            return
        waits = np.array(self._waits)
        elapsed = time.perf_counter() - self._begun
        self._logger.info(
            "epoch of %d batches, %d samples: data wait mean %.2f ms, p99 %.2f ms, %.0f %% of %.2f s",
            len(waits),
            self._samples,
            waits.mean() * 1e3,
            np.percentile(waits, 99) * 1e3,
            100 * waits.sum() / elapsed,
            elapsed,
        )
        self._waits = []  # a further next() on the spent iterator logs nothing more than "without batches"
