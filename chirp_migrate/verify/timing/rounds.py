"""The rounds of a verification: how many, their timings, and when they are analysed.

A round is a pair of fresh processes, one a side, that take turns epoch by epoch.
:mod:`chirp_migrate.stats.sequential_looks` says when rounds are looked at. A look says which entry points still have an
open question, and only those run in the rounds that follow.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from chirp_migrate.stats.sequential_looks import MIN_ROUNDS, Look, planned_looks
from chirp_migrate.training.process.background_load import BUSY_ABOVE, not_watched
from chirp_migrate.training.workload.entry_points import OwnRun
from chirp_migrate.verify.spec import Visit

__all__ = ["SIDES", "Rounds", "Stopped", "TimedRound", "own_seconds", "take_rounds"]

SIDES = ("before", "after", "cached")
"""What is timed: both sides, and the side after fed from one cached batch."""


def own_seconds(visit: Visit, own: OwnRun) -> float:
    """Seconds of the user's own run, by the start-up and the later epochs of a visit.

    What the first epoch takes more than a later one is start-up, once a fold. A call without later epochs is taken as
    it is.
    """
    if not visit.epochs_s:
        return visit.start_s + visit.rest_s
    epoch_s = statistics.median(visit.epochs_s)
    return own.folds * (max(visit.start_s, epoch_s) + (own.epochs - 1) * epoch_s)


def perfect_seconds(visit: Visit, own: OwnRun) -> float | None:
    """Return the same with epochs that are fed from one batch in memory; None where none was timed."""
    if not visit.cached_s or not visit.epochs_s:
        return None
    loading_s = max(0.0, statistics.median(visit.epochs_s) - statistics.median(visit.cached_s))
    return max(own_seconds(visit, own) - own.folds * own.epochs * loading_s, 1e-9)


@dataclass
class TimedRound:
    """One round; part of what ``verify`` writes.

    Attributes:
        visits: side → entry point → what was timed.
        seconds: side (``before``, ``after``, ``cached``) → entry point → seconds of the user's own run.
        others: share of the CPUs that other processes used meanwhile; None where that is not watched.
        duration_s: seconds that the whole round took, starting the processes and warming up included.
    """

    seconds: Mapping[str, Mapping[str, float]]
    others: float | None = None
    duration_s: float = 0.0
    visits: Mapping[str, Mapping[str, Visit]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        visits: Mapping[str, Mapping[str, Visit]],
        own: Mapping[str, OwnRun],
        others: float | None,
        duration_s: float,
    ) -> TimedRound:
        """Return the round of these visits, of which only entry points with both sides count."""
        labels = [label for label in own if all(label in visits[side] for side in ("before", "after"))]
        seconds = {side: {label: own_seconds(visits[side][label], own[label]) for label in labels} for side in visits}
        perfect = {label: perfect_seconds(visits["after"][label], own[label]) for label in labels}
        seconds["cached"] = {label: value for label, value in perfect.items() if value is not None}
        return cls(seconds, others, duration_s, visits)

    def visits_of(self, side: str) -> Mapping[str, Visit]:
        """Return the visits of a version by entry point; empty for a version that was not timed."""
        return self.visits.get(side, {})

    @property
    def labels(self) -> frozenset[str]:
        """Return the entry points that were timed on both sides."""
        return frozenset(self.seconds["before"])


class Stopped(str, Enum):
    """The reason why there is no further round."""

    SETTLED = "every question answered"
    ROUNDS = "all rounds made"
    BUDGET = "budget used up"
    INTERRUPTED = "interrupted by the user"


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """Every round that was made and the looks at them, in their order; part of what ``verify`` writes.

    Attributes:
        count: rounds that were made.
        ended_with: why there are no more, see :class:`Stopped`.
        others_median, others_most: share of the CPUs that others used, 0 to 1; None where it is not watched.
        others_limit: share from which on a round counts as disturbed.
        not_watched: why it is not watched.
    """

    made: list[TimedRound] = []
    count: int = 0
    looks: list[Look] = []
    ended_with: str | None = None
    others_median: float | None = None
    others_most: float | None = None
    others_limit: float | None = None
    not_watched: str | None = None

    @classmethod
    def of(cls, made: Sequence[TimedRound], looks: Sequence[Look], stopped: Stopped | None = None) -> Rounds:
        """Count what was made."""
        others = [each.others for each in made if each.others is not None]
        return cls(
            made=list(made),
            count=len(made),
            looks=list(looks),
            ended_with=stopped.value if stopped is not None else None,
            others_median=statistics.median(others) if others else None,
            others_most=max(others, default=None),
            others_limit=BUSY_ABOVE if others else None,
            not_watched=None if others else not_watched(),
        )

    def seconds(self, side: str, label: str) -> list[float]:
        """Seconds of the user's own run of an entry point, by each round that has it."""
        return [each.seconds[side][label] for each in self.made if label in each.seconds[side]]

    def total_seconds(self, side: str) -> float:
        """Seconds of the user's own runs of all entry points together, by the medians of the rounds."""
        labels = dict.fromkeys(label for each in self.made for label in each.seconds[side])
        return math.fsum(statistics.median(self.seconds(side, label)) for label in labels)


def take_rounds(
    make: Callable[[int, frozenset[str] | None, float], TimedRound],
    still_open: Callable[[Sequence[TimedRound], Sequence[Look]], frozenset[str]],
    most: int,
    deadline: float,
    entry_points: int = 0,
) -> Rounds:
    """Run rounds until every question is answered, ``most`` are done, or the time is used up.

    Args:
        make: makes the round of this number, counted from 0, with as many of these entry points as there is time for
            until an instant; None for all of them.
        still_open: takes the last of these looks, at these rounds; gives the entry points about which a question is
            open. Without them every question is answered.
        most: rounds, at most.
        deadline: on the clock of ``time.monotonic``.
        entry_points: how many there are. Where the first round has less than half of them, there are fewer rounds of
            more entry points.

    Raises:
        KeyboardInterrupt: the user interrupted before the first look; later, the rounds made so far are given.
    """
    planned = planned_looks(most)
    made: list[TimedRound] = []
    looks: list[Look] = []
    labels: frozenset[str] | None = None
    lost, wanted = 0, max(most, MIN_ROUNDS)

    def look(share: float) -> frozenset[str]:
        looks.append(Look(len(made), share))
        return still_open(made, looks)

    def left() -> float:
        return 1.0 - math.fsum(each.share for each in looks)

    while True:
        try:
            now = time.monotonic()
            latest = make(len(made), labels, now + (deadline - now) / max(1, wanted - len(made)))
        except KeyboardInterrupt:
            if len(made) < MIN_ROUNDS - 1:
                raise
            if not looks or looks[-1].rounds < len(made):
                look(left())
            return Rounds.of(made, looks, Stopped.INTERRUPTED)
        if latest.labels:
            made.append(latest)
            wanted = MIN_ROUNDS if 2 * len(made[0].labels) < entry_points else wanted
        else:
            lost += 1  # an entry point took its process with it, or time was up before one had ended
        out_of_time = lost > most or time.monotonic() + _WORTH_BEGINNING * latest.duration_s > deadline
        if not latest.labels and not out_of_time:
            continue
        due = next((each for each in planned if each.rounds >= len(made)), planned[-1])
        all_made = due == planned[-1] and due.rounds == len(made)
        if not (all_made or out_of_time or due.rounds == len(made)):
            continue
        labels = look(left() if all_made or out_of_time else due.share) if made else None
        if made and not labels:
            return Rounds.of(made, looks, Stopped.SETTLED)
        if all_made or out_of_time:
            return Rounds.of(made, looks, Stopped.ROUNDS if all_made else Stopped.BUDGET)


_WORTH_BEGINNING = 0.5
"""Share of a round's time that must be left for another one to begin: one that is cut short counts for some."""
