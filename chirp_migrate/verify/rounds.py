"""How many rounds are timed, which of them count, and with what confidence each look at them may speak.

A round is one process of each side. Looking again and again until chance shows what one hopes for would make any
two trees different, so looks are planned before the first round, and each may err only so often that all of them
together err no more often than one look at 95 % would: the 5 % are given out in proportion to the rounds made since
the look before (the uniform spending function of Lan & DeMets 1983, added up by Bonferroni's inequality instead of
by the joint distribution of the looks: a little wider, and right without assumptions about how they depend on each
other). Whether a look is the last one depends on the clock and the number of rounds, not on what was measured; the
last look may spend all that is left.

A look says which entry points still have an open question, and only those run in the rounds that follow, up to the
next look: what is settled takes no more of the time. The last look speaks about all of them at its own level.

A round that other processes disturbed is measured again. Whether it is depends on what the other processes used,
never on the times.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from chirp_migrate.verify.disturbance import BUSY_ABOVE

__all__ = [
    "CONFIDENCE",
    "MIN_ROUNDS",
    "Looks",
    "Rounds",
    "Stopped",
    "TimedRound",
    "order",
    "take_rounds",
    "used",
    "whole",
]

CONFIDENCE = 0.95
"""How often the intervals of all looks together hold the true ratio."""

MIN_ROUNDS = 3
"""Rounds at the first look, and in any case: fewer have no useful spread."""

_GROWTH = 1.5
_DISTURBED_ALLOWED = 3


@dataclass(frozen=True)
class TimedRound:
    """One timed round.

    Attributes:
        order: sides in the order in which they took their turns.
        seconds: side (``before``, ``after``, ``cached``) → entry point → seconds.
        others: share of the CPUs that other processes used meanwhile, the larger of the two sides; None where
            that is not watched.
        duration_s: seconds that the whole round took, starting the processes and warming up included.
    """

    order: tuple[str, str]
    seconds: Mapping[str, Mapping[str, float]]
    others: float | None
    duration_s: float

    @property
    def labels(self) -> frozenset[str]:
        """The entry points that ran."""
        return frozenset(self.seconds["before"])

    @property
    def disturbed(self) -> bool:
        """Whether other processes had so much of the CPUs that the times say little."""
        return self.others is not None and self.others > BUSY_ABOVE


class Stopped(str, Enum):
    """Why no further round was made."""

    SETTLED = "every question settled"
    ROUNDS = "all rounds made"
    BUDGET = "budget used up"
    INTERRUPTED = "interrupted by the user"


@dataclass(frozen=True)
class Rounds:
    """Every round that was made, those that count, and how the last look may speak.

    Attributes:
        made: in the order in which they were made.
        used: those that count.
        confidence: level of the intervals of the last look; it and the looks before hold :data:`CONFIDENCE`.
        stopped: why there are no more.
    """

    made: tuple[TimedRound, ...] = ()
    used: tuple[TimedRound, ...] = ()
    confidence: float = CONFIDENCE
    stopped: Stopped | None = None

    @property
    def whole(self) -> tuple[TimedRound, ...]:
        """Rounds that count and in which all entry points ran."""
        return whole(self.used)

    @property
    def discarded(self) -> int:
        """Rounds that were disturbed and do not count."""
        return len(self.made) - len(self.used)

    @property
    def kept_though_disturbed(self) -> int:
        """Disturbed rounds that count, because the machine was busy too often to wait for quiet."""
        return sum(each.disturbed for each in self.used)

    def others(self) -> tuple[float, float] | None:
        """Median and largest share of the CPUs that others used, over all rounds; None where not watched."""
        shares = [each.others for each in self.made if each.others is not None]
        return (statistics.median(shares), max(shares)) if shares else None


class Looks:
    """The planned looks: after 3, 5, 8, 13, 20, … rounds and at the end.

    Args:
        most: rounds at most.
    """

    def __init__(self, most: int) -> None:
        self._most = max(most, MIN_ROUNDS)
        self._next = MIN_ROUNDS
        self._spent = 0.0

    def due(self, rounds: int) -> bool:
        """Whether a look is planned at this number of rounds (or was, before it)."""
        return rounds >= self._next

    def confidence(self, rounds: int, last: bool) -> float:
        """Take a look: the level of its intervals. The last one gets all that is left."""
        error = 1 - CONFIDENCE
        share = error if last else error * min(1.0, rounds / self._most)
        level, self._spent = share - self._spent, share
        self._next = max(self._next + 1, int(rounds * _GROWTH + 1))
        return 1 - level


def order(seed: int, number: int) -> tuple[str, str]:
    """Which side goes first in round ``number`` (from 0): by lot within each two rounds, the other way in the other.

    Whatever drifts, and whatever comes back every few minutes, so meets both sides alike.
    """
    first_after = random.Random(f"{seed}-{number // 2}").random() < 0.5
    return ("after", "before") if first_after != (number % 2 == 1) else ("before", "after")


def used(rounds: Sequence[TimedRound], last: bool = False) -> tuple[TimedRound, ...]:
    """Rounds that count: the undisturbed ones, or all of them on a machine that is always busy.

    A machine counts as always busy when more than :data:`_DISTURBED_ALLOWED` rounds, and more than half of them,
    were disturbed; and at the end (``last``) when fewer than :data:`MIN_ROUNDS` were not.
    """
    quiet = tuple(each for each in rounds if not each.disturbed)
    disturbed = len(rounds) - len(quiet)
    if disturbed > max(_DISTURBED_ALLOWED, len(quiet)) or (last and len(quiet) < MIN_ROUNDS):
        return tuple(rounds)
    return quiet


def whole(rounds: Sequence[TimedRound]) -> tuple[TimedRound, ...]:
    """Those of ``rounds`` in which all entry points ran, that is as many as ran in any."""
    most = max((len(each.labels) for each in rounds), default=0)
    return tuple(each for each in rounds if len(each.labels) == most)


def take_rounds(
    make: Callable[[int, frozenset[str] | None], TimedRound],
    still_open: Callable[[tuple[TimedRound, ...], float], frozenset[str]],
    most: int,
    budget_s: float,
) -> Rounds:
    """Make rounds until every question is settled, or ``most`` count, or the time is used up.

    Args:
        make: makes the round of this number, counted from 0, with these entry points; None for all of them.
        still_open: entry points about which these rounds, judged at this confidence, leave a question open; asked at
            planned looks only. With none of them left everything is settled.
        most: rounds that count, at most; at least :data:`MIN_ROUNDS` are made.
        budget_s: no further round begins when it would probably end later than this many seconds after the first
            began; :data:`MIN_ROUNDS` are made in any case.

    Raises:
        KeyboardInterrupt: the user interrupted before there were so many; later, the rounds made so far are given.
    """
    looks = Looks(most)
    made: list[TimedRound] = []
    labels: frozenset[str] | None = None
    while True:
        try:
            made.append(make(len(made), labels))
        except KeyboardInterrupt:
            if len(made) < MIN_ROUNDS:
                raise
            counted = used(made, last=True)
            return Rounds(tuple(made), counted, looks.confidence(len(counted), True), Stopped.INTERRUPTED)
        elapsed = sum(each.duration_s for each in made)
        alike = [each.duration_s for each in made if each.labels == made[-1].labels]
        out_of_time = len(made) >= MIN_ROUNDS and elapsed + statistics.fmean(alike) > budget_s
        counted = used(made, last=out_of_time)
        all_made = len(counted) >= max(most, MIN_ROUNDS)
        last = out_of_time or all_made
        if not (last or looks.due(len(counted))):
            continue
        confidence = looks.confidence(len(counted), last)
        if not last:
            labels = still_open(counted, confidence)
        if last or not labels:
            stopped = Stopped.ROUNDS if all_made else Stopped.BUDGET if out_of_time else Stopped.SETTLED
            return Rounds(tuple(made), counted, confidence, stopped)
        if any(each.disturbed for each in counted):
            labels = None  # which rounds count may change yet, and with them how often each entry point ran
