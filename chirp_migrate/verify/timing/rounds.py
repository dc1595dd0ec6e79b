"""The rounds of a verification: their number, their timings, and their interim analyses.

A round is a pair of fresh processes, one for each version, that take turns epoch by epoch.
:mod:`chirp_migrate.stats.sequential_looks` defines after which rounds an interim analysis takes place. The analysis
returns the entry points with an open question, and only these run in the following rounds.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

import msgspec

from chirp_migrate.stats.sequential_looks import MIN_ROUNDS, InterimAnalysis, planned_analyses
from chirp_migrate.training.process.background_load import BUSY_ABOVE, not_watched
from chirp_migrate.training.workload.entry_points import OwnRun
from chirp_migrate.verify.spec import EntryTiming

__all__ = ["SIDES", "Rounds", "StopReason", "TimedRound", "own_seconds", "take_rounds"]

SIDES = ("before", "after", "cached")
"""The timed versions: before, after, and after with one cached batch."""


def own_seconds(visit: EntryTiming, own: OwnRun) -> float:
    """Return the seconds of the user's own run, from the start-up and the later epochs of a visit.

    The additional time of the first epoch, compared with later epochs, is start-up and counts once for each fold.
    Without later epochs, the result is the time of the call.
    """
    if not visit.epochs_s:
        return visit.start_s + visit.rest_s
    epoch_s = statistics.median(visit.epochs_s)
    return own.folds * (max(visit.start_s, epoch_s) + (own.epochs - 1) * epoch_s)


def zero_cost_seconds(visit: EntryTiming, own: OwnRun) -> float | None:
    """Return these seconds with epochs that are fed from one batch in memory; None if no such epoch was timed."""
    if not visit.cached_s or not visit.epochs_s:
        return None
    loading_s = max(0.0, statistics.median(visit.epochs_s) - statistics.median(visit.cached_s))
    return max(own_seconds(visit, own) - own.all_epochs * loading_s, 1e-9)


@dataclass
class TimedRound:
    """One round; part of the document of ``verify``.

    Attributes:
        visits: version → entry point → its timing.
        seconds: version (``before``, ``after``, or ``cached`` for zero-cost loading) → entry point → seconds of the
            user's own run.
        others: share of the CPUs that other processes used during the round; None if it is not watched.
        duration_s: seconds of the whole round, including the start of the processes and warm-up.
    """

    seconds: Mapping[str, Mapping[str, float]]
    others: float | None = None
    duration_s: float = 0.0
    visits: Mapping[str, Mapping[str, EntryTiming]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        visits: Mapping[str, Mapping[str, EntryTiming]],
        own: Mapping[str, OwnRun],
        others: float | None,
        duration_s: float,
    ) -> TimedRound:
        """Return the round of these visits; only entry points with both versions count."""
        labels = [label for label in own if all(label in visits[side] for side in ("before", "after"))]
        seconds = {side: {label: own_seconds(visits[side][label], own[label]) for label in labels} for side in visits}
        zero_cost_ratio = {label: zero_cost_seconds(visits["after"][label], own[label]) for label in labels}
        seconds["cached"] = {label: value for label, value in zero_cost_ratio.items() if value is not None}
        return cls(seconds, others, duration_s, visits)

    def visits_of(self, side: str) -> Mapping[str, EntryTiming]:
        """Return the visits of a version by entry point; empty for a version that was not timed."""
        return self.visits.get(side, {})

    @property
    def labels(self) -> frozenset[str]:
        """Return the entry points that were timed in both versions."""
        return frozenset(self.seconds["before"])


class StopReason(str, Enum):
    """The reason why there is no further round."""

    SETTLED = "every question answered"
    ROUNDS = "all rounds made"
    BUDGET = "budget used up"
    INTERRUPTED = "interrupted by the user"


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """All rounds and their interim analyses, in order; part of the document of ``verify``.

    Attributes:
        count: number of rounds.
        ended_with: why there was no further round, see :class:`StopReason`.
        others_median, others_most: median and largest share of the CPUs that other processes used, 0 to 1; None if it
            is not watched.
        others_limit: smallest share with which a round counts as disturbed.
        not_watched: why this share is not watched; "" if it is.
    """

    made: list[TimedRound] = []
    count: int = 0
    looks: list[InterimAnalysis] = []
    ended_with: str | None = None
    others_median: float | None = None
    others_most: float | None = None
    others_limit: float | None = None
    not_watched: str | None = None

    @classmethod
    def of(
        cls, made: Sequence[TimedRound], looks: Sequence[InterimAnalysis], stopped: StopReason | None = None
    ) -> Rounds:
        """Return the record of these rounds."""
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
        """Return the seconds of the user's own run of an entry point, for each round with the entry point."""
        return [each.seconds[side][label] for each in self.made if label in each.seconds[side]]

    def total_seconds(self, side: str) -> float:
        """Return the seconds of the user's own runs of all entry points together, from medians of the rounds."""
        labels = dict.fromkeys(label for each in self.made for label in each.seconds[side])
        return math.fsum(statistics.median(self.seconds(side, label)) for label in labels)


def take_rounds(
    make: Callable[[int, frozenset[str] | None, float], TimedRound],
    still_open: Callable[[Sequence[TimedRound], Sequence[InterimAnalysis]], frozenset[str]],
    most: int,
    deadline: float,
    own_epochs: Mapping[str, int] = MappingProxyType({}),
) -> Rounds:
    """Run rounds until every question is answered, ``most`` are done, or the time is used up.

    Args:
        make: runs the round with a number, counted from 0, with as many of the given entry points (None: all) as fit
            until a time.
        still_open: runs the last of the given interim analyses on the rounds; returns the entry points with an open
            question. Without such entry points, every question is answered.
        most: largest number of rounds.
        deadline: time of the end, on the clock of ``time.monotonic``.
        own_epochs: entry point → epochs of the user's own run. If the first round has less than half of all these
            epochs, there are fewer rounds with more entry points.

    Raises:
        KeyboardInterrupt: the user interrupted before the first interim analysis. After it, an interruption returns the
            rounds so far.
    """
    planned = planned_analyses(most)
    made: list[TimedRound] = []
    looks: list[InterimAnalysis] = []
    labels: frozenset[str] | None = None
    lost, wanted = 0, max(most, MIN_ROUNDS)

    def look(share: float) -> frozenset[str]:
        looks.append(InterimAnalysis(len(made), share))
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
            return Rounds.of(made, looks, StopReason.INTERRUPTED)
        if latest.labels:
            made.append(latest)
            covered = sum(own_epochs.get(label, 0) for label in made[0].labels)
            wanted = MIN_ROUNDS if 2 * covered < sum(own_epochs.values()) else wanted
        else:
            lost += 1  # an entry point ended its process, or time was up before any entry point ended
        out_of_time = lost > most or time.monotonic() + _WORTH_BEGINNING * latest.duration_s > deadline
        if not latest.labels and not out_of_time:
            continue
        due = next((each for each in planned if each.rounds >= len(made)), planned[-1])
        all_made = due == planned[-1] and due.rounds == len(made)
        if not (all_made or out_of_time or due.rounds == len(made)):
            continue
        labels = look(left() if all_made or out_of_time else due.share) if made else None
        if made and not labels:
            return Rounds.of(made, looks, StopReason.SETTLED)
        if all_made or out_of_time:
            return Rounds.of(made, looks, StopReason.ROUNDS if all_made else StopReason.BUDGET)


_WORTH_BEGINNING = 0.5
"""Least remaining time for another round, as a share of a round's time: a part of a round covers some entry points."""
