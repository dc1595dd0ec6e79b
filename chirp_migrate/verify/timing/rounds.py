"""Time both versions in rounds, and decide after interim analyses whether more rounds are necessary.

In each round, one new process for each version trains the entry points (training functions or scripts).

An interim analysis (:mod:`chirp_migrate.stats.interim_analyses`) follows some of the rounds. The analysis returns the
entry points for which the timings do not yet prove a conclusion, such as that the entry point is not slower. Only these
entry points run in the next rounds.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from chirp_migrate.stats.interim_analyses import FIRST_ANALYSIS, MIN_ROUNDS, InterimAnalysis, planned_interim_analyses
from chirp_migrate.training.process.background_load import why_cpu_use_not_measurable
from chirp_migrate.training.workload.entry_points import FullTrainingLength
from chirp_migrate.verify.spec import EntryPointTiming

_USUAL_ROUNDS = FIRST_ANALYSIS
"""Usual number of rounds. Each of these rounds gets an equal share of the time budget."""

_SHARE_OF_MANY = 0.6
"""If more rounds than usual run, all rounds after the first round together use at most this share of the remaining
time."""

_WORTH_BEGINNING = 0.5
"""A round begins only if the remaining time is at least this share of the last round's duration.

The share is below 1, because a round that ends early also yields timings.
"""

SIDES = ("before", "after", "cached")
"""Names of timings: the version before the migration, the migrated version, and the migrated version with zero-cost
loading."""


def full_training_seconds(timing: EntryPointTiming, training_length: FullTrainingLength) -> float:
    """Compute the seconds of the full training that the user would run, from a timing of the entry point.

    If the timing has no epochs after the first epoch, the result is the time of the whole training call.
    """
    if not timing.epochs_s:
        return timing.start_s + timing.rest_s
    epoch_s = statistics.median(timing.epochs_s)
    return training_length.folds * (max(timing.start_s, epoch_s) + (training_length.epochs - 1) * epoch_s)


def zero_cost_training_seconds(timing: EntryPointTiming, training_length: FullTrainingLength) -> float | None:
    """Compute the seconds of the user's full training if loading took no time (zero-cost loading).

    The result is None if ``timing`` has no epochs with zero-cost loading.
    """
    if not timing.cached_s or not timing.epochs_s:
        return None
    loading_s = max(0.0, statistics.median(timing.epochs_s) - statistics.median(timing.cached_s))
    return max(full_training_seconds(timing, training_length) - training_length.all_epochs * loading_s, 1e-9)


@dataclass
class TimedRound:
    """The timings of one round, in which each version trained in a new process.

    Attributes:
        visits: dictionary, version → label (short unique name) of the entry point → its timing.
        seconds: dictionary, version (``before``, ``after``, or ``cached`` for zero-cost loading) → label of the entry
            point → seconds of the user's full training, computed from the timing.
        others: share of the CPUs that other processes used during the round, 0 to 1; None if this share was not
            measured.
        duration_s: seconds of the whole round, with the start of the processes and with warm-up.
    """

    seconds: Mapping[str, Mapping[str, float]]
    others: float | None = None
    duration_s: float = 0.0
    visits: Mapping[str, Mapping[str, EntryPointTiming]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        visits: Mapping[str, Mapping[str, EntryPointTiming]],
        own: Mapping[str, FullTrainingLength],
        others: float | None,
        duration_s: float,
    ) -> TimedRound:
        """Build a round from its timings; omit trainings that were timed in only one version."""
        labels = [label for label in own if all(label in visits[side] for side in ("before", "after"))]
        seconds = {
            side: {label: full_training_seconds(visits[side][label], own[label]) for label in labels} for side in visits
        }
        zero_cost_ratio = {label: zero_cost_training_seconds(visits["after"][label], own[label]) for label in labels}
        seconds["cached"] = {label: value for label, value in zero_cost_ratio.items() if value is not None}
        return cls(seconds, others, duration_s, visits)

    def visits_of(self, side: str) -> Mapping[str, EntryPointTiming]:
        """Return a dictionary: label of an entry point → its timing in the version ``side``; empty without timings."""
        return self.visits.get(side, {})

    @property
    def labels(self) -> frozenset[str]:
        """Return the labels of the entry points that were timed in both versions."""
        return frozenset(self.seconds["before"])


class StopReason(str, Enum):
    """The reason why ``verify`` ended the timing."""

    SETTLED = "every question answered"
    ROUNDS = "all rounds made"
    BUDGET = "budget used up"
    INTERRUPTED = "interrupted by the user"


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """All timing rounds of a verification, and all interim analyses (decisions on whether more rounds are necessary).

    Attributes:
        made: the complete rounds, in the order in which they ran.
        looks: the interim analyses, in the order in which they ran.
        ended_with: why no more rounds ran (see :class:`StopReason`).
        others_median: median over all rounds of the share of the CPUs that other processes used, 0 to 1; None if this
            share was not measured.
        others_most: largest of these shares, 0 to 1; None if this share was not measured.
        not_watched: why the CPU use of other processes was not measured; None if their CPU use was measured.
    """

    made: list[TimedRound] = []
    looks: list[InterimAnalysis] = []
    ended_with: str | None = None
    others_median: float | None = None
    others_most: float | None = None
    not_watched: str | None = None

    @classmethod
    def of(
        cls, made: Sequence[TimedRound], looks: Sequence[InterimAnalysis], stopped: StopReason | None = None
    ) -> Rounds:
        """Combine timing rounds and interim analyses, and summarise the CPU use of other processes over all rounds."""
        others = [each.others for each in made if each.others is not None]
        return cls(
            made=list(made),
            looks=list(looks),
            ended_with=stopped.value if stopped is not None else None,
            others_median=statistics.median(others) if others else None,
            others_most=max(others, default=None),
            not_watched=None if others else why_cpu_use_not_measurable(),
        )

    def seconds(self, side: str, label: str) -> list[float]:
        """Return the computed seconds of the user's full training, one value for each round that timed ``label``."""
        return [each.seconds[side][label] for each in self.made if label in each.seconds.get(side, {})]

    @property
    def labels(self) -> list[str]:
        """Return the labels of the entry points that were timed in at least one round."""
        return list(dict.fromkeys(label for each in self.made for label in each.seconds.get("before", {})))

    def total_seconds(self, side: str) -> float:
        """Return the seconds of the full trainings of all entry points together.

        The result is the sum of the computed seconds of each entry point, each as a median over the rounds.
        """
        times = [self.seconds(side, label) for label in self.labels]
        return math.fsum(statistics.median(of) for of in times if of)


def run_rounds(
    run_round: Callable[[int, frozenset[str] | None, float], TimedRound],
    find_entry_points_to_time: Callable[[Sequence[TimedRound], Sequence[InterimAnalysis]], frozenset[str]],
    max_rounds: int,
    deadline: float,
    full_training_epochs: Callable[[], Mapping[str, int]] = dict,
) -> Rounds:
    """Time both versions in rounds until no more rounds are necessary, or until a limit is reached.

    The limits are ``max_rounds`` and ``deadline``. In each round, one new process for each version trains.

    Args:
        run_round: function that runs one round. Its first argument is the number of the round, from 0. The second
            argument contains the labels of the entry points that may run (None for all). The third argument is the time
            of ``time.monotonic`` after which no further entry point begins.
        find_entry_points_to_time: function that runs an interim analysis, and returns the labels of the entry points
            that need more rounds.
        max_rounds: largest number of rounds. Usually four rounds run; docs/verify.md describes when more rounds run.
        deadline: time at which the time budget ends, in seconds of ``time.monotonic``.
        full_training_epochs: function that returns a dictionary: label of an entry point that has not failed → number
            of epochs of the user's full training. The first round may have time for only some of the entry points. If
            these entry points have less than half of all epochs in the dictionary, the time is divided among three
            rounds instead of four. Each round then has time for more entry points.

    Raises:
        KeyboardInterrupt: the user pressed Ctrl-C before two rounds were complete. After two rounds, Ctrl-C only ends
            the timing, and the function returns the complete rounds.
    """
    max_rounds = max(max_rounds, MIN_ROUNDS)
    planned = planned_interim_analyses(min(max_rounds, _USUAL_ROUNDS))
    made: list[TimedRound] = []
    looks: list[InterimAnalysis] = []
    labels: frozenset[str] | None = None
    lost, wanted = 0, planned[-1].rounds

    def analyse(share: float) -> frozenset[str]:
        looks.append(InterimAnalysis(len(made), share))
        return find_entry_points_to_time(made, looks)

    def unspent_share() -> float:
        return 1.0 - math.fsum(each.share for each in looks)

    while True:
        try:
            now = time.monotonic()
            latest = run_round(len(made), labels, now + (deadline - now) / max(1, wanted - len(made)))
        except KeyboardInterrupt:
            if len(made) < MIN_ROUNDS - 1:
                raise
            if not looks or looks[-1].rounds < len(made):
                analyse(unspent_share())
            return Rounds.of(made, looks, StopReason.INTERRUPTED)
        if latest.labels:
            made.append(latest)
            if len(made) == 1:  # set the number of rounds now, because it must not depend on later results
                left_s = _SHARE_OF_MANY * (deadline - time.monotonic())
                wanted = _number_of_rounds(latest, full_training_epochs(), left_s, wanted, max_rounds)
                if wanted > planned[-1].rounds:
                    planned = planned_interim_analyses(wanted)
        else:
            lost += 1  # no entry point was timed, because of a crash or because the time was up
        out_of_time = (
            lost > min(max_rounds, _USUAL_ROUNDS) or time.monotonic() + _WORTH_BEGINNING * latest.duration_s > deadline
        )
        if not latest.labels and not out_of_time:
            continue
        due = next((each for each in planned if each.rounds >= len(made)), planned[-1])
        all_made = due == planned[-1] and due.rounds == len(made)
        if not (all_made or out_of_time or due.rounds == len(made)):
            continue
        labels = analyse(unspent_share() if all_made or out_of_time else due.share) if made else None
        if made and not labels:
            return Rounds.of(made, looks, StopReason.SETTLED)
        if all_made or out_of_time:
            return Rounds.of(made, looks, StopReason.ROUNDS if all_made else StopReason.BUDGET)


def _number_of_rounds(first: TimedRound, epochs: Mapping[str, int], left_s: float, usual: int, most: int) -> int:
    """Return how many rounds the time budget should be divided among.

    Args:
        first: the first round.
        epochs: dictionary, label of an entry point that has not failed → number of epochs of the user's full training.
        left_s: seconds for all rounds after the first round, if more rounds than usual run.
        usual: usual number of rounds.
        most: largest number of rounds.
    """
    covered, everything = sum(epochs.get(label, 0) for label in first.labels), sum(epochs.values())
    if 2 * covered < everything:
        return MIN_ROUNDS
    if covered < everything:
        return usual
    # With an even number of rounds, each order of the versions occurs equally often.
    fitting = min(most, left_s / max(first.duration_s, 1e-3))
    return min(most, max(usual, int(1 + fitting) // 2 * 2))
