"""How many rounds are timed, and which of them count.

:mod:`chirp_migrate.stats.sequential_looks` says when they are looked at: always at an even number, so that each side
went first equally often. A look says which entry points still have an open question, and only those run in the rounds
that follow.

A round that other processes disturbed is made again in its place. Whether it is depends on what the other processes
used, never on the times.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from chirp_migrate.stats.sequential_looks import MIN_ROUNDS, Look, planned_looks
from chirp_migrate.training.process.background_load import BUSY_ABOVE, not_watched

__all__ = ["LEAST_TO_TELL", "SIDES", "Rounds", "Stopped", "TimedRound", "complete", "order", "take_rounds"]

SIDES = ("before", "after", "cached")
"""What is timed: both sides, and the side after fed from one cached batch."""

LEAST_TO_TELL = 3
"""Rounds after which an interrupted verification tells what there is."""

_DISTURBED_ALLOWED = 3


@dataclass
class TimedRound:
    """One timed round; part of what ``verify`` writes.

    Attributes:
        order: sides in the order in which they took their turns.
        seconds: side (``before``, ``after``, ``cached``) → entry point → seconds.
        others: share of the CPUs that other processes used meanwhile, the larger of the two sides; None where
            that is not watched.
        duration_s: seconds that the whole round took, starting the processes and warming up included.
        disturbed: whether others used so much of the CPUs that the times say little.
        counts: whether it is one that the verdict rests on.
    """

    order: tuple[str, str]
    seconds: Mapping[str, Mapping[str, float]]
    others: float | None
    duration_s: float
    disturbed: bool = False
    counts: bool = False

    def __post_init__(self) -> None:
        self.disturbed = self.disturbed or (self.others is not None and self.others > BUSY_ABOVE)

    @property
    def labels(self) -> frozenset[str]:
        """The entry points that ran."""
        return frozenset(self.seconds["before"])


class Stopped(str, Enum):
    """Why no further round was made."""

    SETTLED = "every question settled"
    ROUNDS = "all rounds made"
    BUDGET = "budget used up"
    INTERRUPTED = "interrupted by the user"


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """Every round that was made and the looks at those that count, both in their order; part of what ``verify`` writes.

    Attributes:
        count: rounds that count; the last look is at all of them.
        discarded: rounds that were disturbed and do not count.
        disturbed_but_counted: those that count, because the machine was busy too often to wait for quiet.
        ended_with: why there are no more, see :class:`Stopped`.
        others_median, others_most: share of the CPUs that others used, 0 to 1; None where it is not watched.
        others_limit: share from which on a round was disturbed.
        not_watched: why it is not watched.
    """

    made: list[TimedRound] = []
    count: int = 0
    discarded: int = 0
    disturbed_but_counted: int = 0
    looks: list[Look] = []
    ended_with: str | None = None
    others_median: float | None = None
    others_most: float | None = None
    others_limit: float | None = None
    not_watched: str | None = None

    @classmethod
    def of(cls, made: Sequence[TimedRound], looks: Sequence[Look], stopped: Stopped | None = None) -> Rounds:
        """Count what there is."""
        disturbed = [each.counts for each in made if each.disturbed]
        shares = [each.others for each in made if each.others is not None]
        return cls(
            made=list(made),
            count=sum(each.counts for each in made),
            discarded=disturbed.count(False),
            disturbed_but_counted=disturbed.count(True),
            looks=list(looks),
            ended_with=None if stopped is None else stopped.value,
            others_median=statistics.median(shares) if shares else None,
            others_most=max(shares, default=None),
            others_limit=BUSY_ABOVE,
            not_watched=None if shares or not made else not_watched() or "this system does not count CPU time",
        )

    @property
    def included(self) -> tuple[TimedRound, ...]:
        """Those that count."""
        return tuple(each for each in self.made if each.counts)

    @property
    def complete(self) -> tuple[TimedRound, ...]:
        """Rounds that count and in which all entry points ran."""
        return complete(self.included)

    def seconds(self, side: str, label: str) -> list[float]:
        """Seconds of an entry point in each round that counts and has it."""
        return [each.seconds[side][label] for each in self.included if label in each.seconds[side]]

    def total_seconds(self, side: str) -> list[float]:
        """Seconds of all entry points together, for each round that counts and has all of them."""
        return [sum(each.seconds[side].values()) for each in self.complete]


def order(seed: int, number: int) -> tuple[str, str]:
    """Which side goes first in round ``number`` (from 0): by lot within each two rounds, the other way in the other.

    Whatever drifts, and whatever comes back every few minutes, so meets both sides alike.
    """
    first_after = random.Random(f"{seed}-{number // 2}").random() < 0.5
    return ("after", "before") if first_after != (number % 2 == 1) else ("before", "after")


def complete(rounds: Sequence[TimedRound]) -> tuple[TimedRound, ...]:
    """Those of ``rounds`` in which all entry points ran, that is as many as ran in any."""
    most = max((len(each.labels) for each in rounds), default=0)
    return tuple(each for each in rounds if len(each.labels) == most)


def take_rounds(
    make: Callable[[int, frozenset[str] | None], TimedRound],
    still_open: Callable[[tuple[TimedRound, ...], tuple[Look, ...]], frozenset[str]],
    most: int,
    budget_s: float,
) -> Rounds:
    """Make rounds until every question is settled, or ``most`` count, or the time is used up.

    Args:
        make: makes the round of this number, counted from 0, with these entry points; None for all of them. A round
            that is made again has the number of the one it replaces.
        still_open: takes the last of these looks, at these rounds; gives the entry points about which a question is
            open. With none of them left everything is settled.
        most: rounds that count, at most; at least :data:`MIN_ROUNDS` are made.
        budget_s: no further pair of rounds begins when it would probably end later than this many seconds after the
            first began; :data:`MIN_ROUNDS` are made in any case.

    Raises:
        KeyboardInterrupt: the user interrupted before :data:`LEAST_TO_TELL` of them counted; later, the rounds made so
            far are given.
    """
    planned = planned_looks(most)
    made: list[TimedRound] = []
    included: list[TimedRound] = []
    looks: list[Look] = []
    labels: frozenset[str] | None = None

    def look(share: float) -> frozenset[str]:
        looks.append(Look(len(included), share))
        return still_open(tuple(included), tuple(looks))

    def left() -> float:
        return 1.0 - math.fsum(each.share for each in looks)

    while True:
        try:
            latest = make(len(included), labels)
        except KeyboardInterrupt:
            if len(included) < LEAST_TO_TELL:
                raise
            if not looks or looks[-1].rounds < len(included):
                look(left())
            return Rounds.of(made, looks, Stopped.INTERRUPTED)
        made.append(latest)
        elapsed = math.fsum(each.duration_s for each in made)
        late = elapsed > budget_s
        if latest.disturbed and not late and len(made) - len(included) - 1 < max(_DISTURBED_ALLOWED, len(included)):
            continue
        latest.counts = True
        included.append(latest)
        if len(included) % 2 or len(included) < MIN_ROUNDS:
            continue
        due = next(each for each in planned if each.rounds >= len(included))
        all_made = due == planned[-1] and due.rounds == len(included)
        alike = [each.duration_s for each in made if each.labels == latest.labels]
        out_of_time = elapsed + 2 * statistics.fmean(alike) > budget_s
        if not (all_made or out_of_time or due.rounds == len(included)):
            continue
        labels = look(left() if all_made or out_of_time else due.share)
        if not labels:
            return Rounds.of(made, looks, Stopped.SETTLED)
        if all_made or out_of_time:
            return Rounds.of(made, looks, Stopped.ROUNDS if all_made else Stopped.BUDGET)
