"""The comparison of candidates, such as loading modes, by their measured speeds.

Of two candidates, the *costly* candidate has the higher cost, such as more threads or processes. The other candidate is
the *cheap* candidate.

``tune=True``, ``diagnose_dataloader_speed`` and ``chirp-migrate tune`` choose loader settings with these functions.
``order_of_round`` returns the order of the candidates in each round of a measurement. A loader can also change its own
number of threads or workers during the training. For this decision, the loader calls only ``costly_is_faster``.
``compare_speeds`` needs the speeds of all candidates in each round, but the training uses only one loading mode at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean
from typing import NamedTuple, TypeVar

from chirpid_patch.thresholds import TIED

_Candidate = TypeVar("_Candidate")


def costly_is_faster(cheap: float, costly: float, tolerance: float = TIED) -> bool:
    """Return whether a costly candidate is faster than a cheap candidate by more than ``tolerance``.

    Args:
        cheap: speed of the cheap candidate, in any unit.
        costly: speed of the costly candidate, in the same unit.
        tolerance: share of the speed ``costly``, from 0 to 1. If ``cheap`` is smaller than ``costly`` by at most this
            share, the candidates are tied, and the costly candidate is not worth its cost.
    """
    return cheap < (1 - tolerance) * costly


class SpeedComparison(NamedTuple):
    """The result of ``compare_speeds``.

    Attributes:
        fastest: index of the fastest candidate; None if all candidates failed.
        tied: for each candidate, whether the candidate is about as fast as the fastest candidate (within the share
            ``TIED``). The caller should choose the cheapest of the tied candidates.
    """

    fastest: int | None
    tied: tuple[bool, ...]


def compare_speeds(speeds: Sequence[Sequence[float]]) -> SpeedComparison:
    """Compare candidates, and return which candidates are about as fast as the fastest candidate.

    The fastest candidate has the largest geometric mean of its speeds over all rounds. For each other candidate, the
    function divides the speed in each round by the speed of the fastest candidate in this round, and computes the
    geometric mean of these ratios. If the machine is slow in a round, both speeds fall, and the ratio stays the same. A
    candidate with fewer rounds than another candidate cannot be the fastest candidate, and has ratios only for its own
    rounds.

    Args:
        speeds: a sequence for each candidate, with the speed in each round; an empty sequence for a candidate that
            failed.
    """
    rounds = max(map(len, speeds), default=0)
    if not rounds:
        return SpeedComparison(None, (False,) * len(speeds))
    fastest = max((i for i, own in enumerate(speeds) if len(own) == rounds), key=lambda i: geometric_mean(speeds[i]))
    ratios = [[speed / best for speed, best in zip(own, speeds[fastest], strict=False)] for own in speeds]
    return SpeedComparison(
        fastest, tuple(bool(own) and not costly_is_faster(geometric_mean(own), 1.0) for own in ratios)
    )


def order_of_round(candidates: Sequence[_Candidate], round_number: int) -> list[_Candidate]:
    """Return the order in which the round ``round_number`` measures the candidates.

    Every second round uses the reverse order. So if the machine steadily becomes slower, the loss of speed over two
    rounds is about the same for all candidates.
    """
    return list(candidates if round_number % 2 == 0 else reversed(candidates))
