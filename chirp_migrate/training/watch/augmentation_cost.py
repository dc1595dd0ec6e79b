"""The cost of augmentation: the same batches with and without augmentation, in turns, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["share_of_loading", "time_both"]


def time_both(
    augmented: Any, plain: Any, batch_s: Callable[[Any], float], rounds: int, until: float
) -> tuple[list[float], list[float]]:
    """Return the seconds per batch with and without augmentation, for each round.

    Args:
        augmented, plain: both datasets, or the objects that ``batch_s`` times.
        batch_s: loads some batches and returns the seconds of one.
        rounds: largest number of rounds.
        until: ``time.monotonic()`` after which no further round begins; one round always runs.
    """
    with_s: list[float] = []
    without_s: list[float] = []
    pair = [(augmented, with_s), (plain, without_s)]
    for number in range(rounds):
        for source, taken in pair if number % 2 == 0 else reversed(pair):
            taken.append(batch_s(source))
        if time.monotonic() > until:
            break
    return with_s, without_s


def share_of_loading(with_s: Sequence[float], without_s: Sequence[float]) -> float | None:
    """Return (with - without) / with, from medians of the rounds; None without a round."""
    if not with_s:
        return None
    augmented, plain = statistics.median(with_s), statistics.median(without_s)
    return (augmented - plain) / augmented
