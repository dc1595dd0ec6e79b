"""Measure how long augmentation takes: load batches with and without augmentation in turns, and time both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any


def time_with_and_without_augmentation(
    augmented: Any, plain: Any, batch_s: Callable[[Any], float], rounds: int, until: float
) -> tuple[list[float], list[float]]:
    """Return the seconds per batch with and without augmentation, one value for each round.

    Args:
        augmented: the dataset with augmentation, as an argument for ``batch_s``.
        plain: the dataset without augmentation, as an argument for ``batch_s``.
        batch_s: function that loads some batches of its argument and returns the seconds per batch.
        rounds: largest number of rounds.
        until: time of ``time.monotonic``, in seconds, after which no further round begins. The first round always runs.
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


def augmentation_share_of_loading(with_s: Sequence[float], without_s: Sequence[float]) -> float | None:
    """Return the share of the loading time that augmentation takes; None if ``with_s`` is empty.

    The arguments are the results of :func:`time_with_and_without_augmentation`. The share is computed from their
    medians.
    """
    if not with_s:
        return None
    augmented, plain = statistics.median(with_s), statistics.median(without_s)
    return (augmented - plain) / augmented
