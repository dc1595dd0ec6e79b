"""What augmentation adds to loading a batch: the same batches with it and without it, in turns, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from chirp_migrate.training.watch.augmentation import time_both
from chirp_migrate.training.watch.samples import described, unaugmented
from chirp_migrate.verify.measures.metric_data import AugmentationCost
from chirpid_patch import DataLoaderPerformanceMonitor
from chirpid_patch.loading.loader import BatchedDataLoader

__all__ = ["added_s", "augmentation_cost"]

_ROUNDS = 3
_BATCHES = 5
_LONGEST_S = 2.0
"""No further round begins later than this after the first, so that one slow dataset does not take all the time."""


def augmentation_cost(
    dataset: Any, collate: Callable[[list[Any]], Any], batch_size: int, batched: bool, until: float
) -> AugmentationCost:
    """Time loading with and without augmentation, without workers or threads, three rounds at most.

    Args:
        dataset: an augmented dataset.
        batched: whether the training's loader reads batches at once (``chirpid_patch``), else sample by sample.
        until: ``time.monotonic()`` after which no further round begins; one is always made.
    """
    cost = AugmentationCost(described(dataset))
    plain = unaugmented(dataset, collate)
    if plain is None:
        cost.reason = f"{type(dataset).__name__} holds no dataset with the same samples unaugmented"
        return cost
    monitor = DataLoaderPerformanceMonitor()
    until = min(until, time.monotonic() + _LONGEST_S)

    def batch_s(source: Any) -> float:
        loader: DataLoader[Any]
        if batched:
            loader = BatchedDataLoader(source, batch_size=batch_size, collate_fn=collate, prefetch_threads=0)
        else:
            loader = DataLoader(source, batch_size=batch_size, collate_fn=collate)
        return float(monitor.time_batch_loading(loader, _BATCHES)["p50_batch_time"])

    cost.with_s, cost.without_s = time_both(dataset, plain, batch_s, _ROUNDS, until)
    return cost


def added_s(cost: AugmentationCost) -> float | None:
    """Seconds per batch that augmentation adds, medians of the rounds; None when not measured."""
    return statistics.median(cost.with_s) - statistics.median(cost.without_s) if cost.with_s else None
