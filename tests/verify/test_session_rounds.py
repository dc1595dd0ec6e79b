"""How many rounds are made, and what looking several times may cost. Timings are made up."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from chirp_migrate.stats.interim_analyses import (
    ERROR,
    MIN_ROUNDS,
    InterimAnalysis,
    error_probability_of_last_analysis,
    planned_interim_analyses,
)
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, EntryPoint
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.timing.process_turns import ChildStarter
from chirp_migrate.verify.timing.rounds import Rounds, StopReason, TimedRound, run_rounds
from chirp_migrate.verify.verdict import Judge, Verdict, combine_timings

LONG = math.inf


def made(*labels: str, after: float = 1.0, others: float | None = 0.01, lasts: float = 10.0) -> TimedRound:
    labels = labels or ("train",)
    seconds = {"before": dict.fromkeys(labels, 1.0), "after": dict.fromkeys(labels, after), "cached": {}}
    return TimedRound(seconds, others, lasts)


def taken(most: int = 20, left_s: float = LONG, enough: int = 1000, lasts: float = 10.0) -> Rounds:
    """Rounds that are settled once ``enough`` are made, with so many seconds left in the budget."""

    def still_open(rounds: Sequence[TimedRound], _looks: Sequence[InterimAnalysis]) -> frozenset[str]:
        return frozenset() if len(rounds) >= enough else frozenset({"train"})

    return run_rounds(lambda *_: made(lasts=lasts), still_open, most, time.monotonic() + left_s)


def test_looks_are_few_and_share_all_errors() -> None:
    looks = planned_interim_analyses(6)
    assert [each.rounds for each in looks] == [4, 6]
    assert [each.share for each in looks] == pytest.approx([(4 / 6) ** 1.2, 1 - (4 / 6) ** 1.2])
    assert [each.rounds for each in planned_interim_analyses(20)] == [4, 8, 20]
    assert [each.rounds for each in planned_interim_analyses(5)] == [5]
    assert [each.rounds for each in planned_interim_analyses(12)] == [4, 8, 12]
    assert [(each.rounds, each.share) for each in planned_interim_analyses(1)] == [(MIN_ROUNDS, 1.0)]


@pytest.mark.parametrize("most", [3, 5, 6, 12, 20, 60])
def test_errors_of_claims_only_rise_to_nearly_all_that_may_be_made(most: int) -> None:
    looks = planned_interim_analyses(most)
    errors = [error_probability_of_last_analysis(looks[: number + 1]) for number in range(len(looks))]
    assert errors == sorted(errors), "what was shown at a look would be shown at the next"
    assert 0.6 * ERROR <= errors[-1] <= ERROR * (1 + 1e-9), "looking early costs the last look little"


@pytest.mark.parametrize(
    "looks",
    [planned_interim_analyses(6), planned_interim_analyses(20), (InterimAnalysis(4, 0.04), InterimAnalysis(6, 0.96))],
)
def test_claims_of_all_looks_together_err_as_often_as_promised(looks: tuple[InterimAnalysis, ...]) -> None:
    rng = np.random.default_rng(10)
    sums = rng.normal(size=(40_000, looks[-1].rounds)).cumsum(axis=1)
    wrong = np.zeros(len(sums), dtype=bool)
    for number, look in enumerate(looks):
        bound = -special.ndtri(error_probability_of_last_analysis(looks[: number + 1]))
        wrong |= sums[:, look.rounds - 1] / np.sqrt(look.rounds) > bound
    assert wrong.mean() == pytest.approx(ERROR, abs=0.003)


def test_a_last_look_before_its_time_has_all_that_is_left() -> None:
    rounds = taken(left_s=0, lasts=0.0)
    assert (len(rounds.made), rounds.ended_with) == (1, StopReason.BUDGET)
    assert [(each.rounds, each.share) for each in rounds.looks] == [(1, 1.0)]


def test_it_ends_when_every_question_is_settled() -> None:
    rounds = taken(enough=3)
    assert (len(rounds.made), rounds.ended_with) == (4, StopReason.SETTLED)


def test_it_ends_with_the_rounds_and_with_the_budget() -> None:
    assert (len(taken(most=7).made), taken(most=7).ended_with) == (7, StopReason.ROUNDS)
    cut_short = taken(left_s=60, lasts=150)
    assert (len(cut_short.made), cut_short.ended_with) == (1, StopReason.BUDGET), "there is no room for another"


@pytest.mark.parametrize(("others", "expected"), [(50, [30, 40, 60, 120]), (51, [30, 60, 120, 120])])
def test_each_round_has_its_share_and_there_are_fewer_where_the_first_had_little(
    others: int, expected: list[float]
) -> None:
    shares: list[float] = []

    def make(_number: int, _labels: frozenset[str] | None, until: float) -> TimedRound:
        shares.append(until - time.monotonic())
        return made(lasts=0.0)

    run_rounds(make, lambda *_: frozenset({"train"}), 5, time.monotonic() + 120, lambda: {"train": 50, "other": others})
    assert shares == pytest.approx(expected, abs=5)


@pytest.mark.parametrize(
    ("lasts", "most", "labels", "expected"),
    [
        (10.0, 10, ("train", "other"), 8),  # 1 + 60 % of 120 s in rounds of 10 s
        (20.0, 10, ("train", "other"), 4),
        (1.0, 10, ("train", "other"), 10),
        (1.0, 4, ("train", "other"), 4),
        (1.0, 10, ("train",), 4),  # the first round had no time for the other entry point
    ],
)
def test_short_rounds_of_all_entry_points_are_repeated_more_often(
    lasts: float, most: int, labels: tuple[str, ...], expected: int
) -> None:
    rounds = run_rounds(
        lambda *_: made(*labels, lasts=lasts),
        lambda *_: frozenset({"train"}),
        most,
        time.monotonic() + 120,
        lambda: {"train": 50, "other": 50},
    )
    assert (len(rounds.made), rounds.ended_with) == (expected, StopReason.ROUNDS)
    assert sum(look.share for look in rounds.looks) == pytest.approx(1)


def test_a_round_that_was_lost_is_made_again_a_few_times() -> None:
    nothing = TimedRound({"before": {}, "after": {}, "cached": {}})
    supply = iter([nothing, made(), nothing, made(), made(), made()])
    rounds = run_rounds(lambda *_: next(supply), lambda *_: frozenset(), 6, time.monotonic() + LONG)
    assert (len(rounds.made), rounds.ended_with) == (4, StopReason.SETTLED)
    rounds = run_rounds(lambda *_: nothing, lambda *_: frozenset(), 5, time.monotonic() + LONG)
    assert (len(rounds.made), rounds.ended_with) == (0, StopReason.BUDGET)


def test_after_a_look_only_what_is_still_open_runs() -> None:
    asked: list[frozenset[str] | None] = []

    def make(_number: int, labels: frozenset[str] | None, _until: float) -> TimedRound:
        asked.append(labels)
        return made(*sorted(labels or {"quick", "doubtful"}))

    rounds = run_rounds(make, lambda *_: frozenset({"doubtful"}), 6, time.monotonic() + LONG)
    assert asked == [None] * 4 + [frozenset({"doubtful"})] * 2
    _, entries = combine_timings(rounds.made)
    assert (entries["quick"].ratio.rounds, entries["doubtful"].ratio.rounds) == (4, 6)


@pytest.mark.parametrize("whole", range(5))
def test_an_interrupt_after_enough_rounds_leaves_a_verdict(whole: int) -> None:
    def make(number: int, _labels: frozenset[str] | None, _until: float) -> TimedRound:
        if number == whole:
            raise KeyboardInterrupt
        return made()

    def take() -> Rounds:
        return run_rounds(make, lambda *_: frozenset({"train"}), 20, time.monotonic() + LONG)

    if whole < MIN_ROUNDS - 1:
        with pytest.raises(KeyboardInterrupt):
            take()
    else:
        assert (len(take().made), take().ended_with) == (whole, StopReason.INTERRUPTED)


def simulated(
    rng: np.random.Generator, ratios: Sequence[float], noise: float, timed: float = 1.0
) -> tuple[Verdict, Rounds, Judge]:
    """One verification with simulated (not measured) seconds: its verdict, its rounds, and what was shown."""
    labels = [f"entry{number}" for number in range(len(ratios))]

    def make(_number: int, some: frozenset[str] | None, _until: float) -> TimedRound:
        times = np.exp(rng.normal(0, noise, (2, len(labels)))) * [[1.0] * len(labels), ratios]
        have = [name for name in labels if (not some or name in some) and rng.random() < timed]
        sides = [{name: float(side[labels.index(name)]) for name in have or labels[:1]} for side in times]
        return TimedRound({"before": sides[0], "after": sides[1], "cached": {}}, 0.01, 1.0)

    judge = Judge(0.2)
    rounds = run_rounds(
        make, lambda seen, looks: judge.run_interim_analysis(*combine_timings(seen), looks), 6, time.monotonic() + LONG
    )
    return judge.decide().verdict, rounds, judge


@pytest.mark.parametrize(
    ("ratios", "noise", "timed", "verdict", "least", "most"),
    [
        ([1.0] * 16, 0.06, 1.0, Verdict.FASTER, 0.0, 0.01),
        ([1.0] * 16, 0.3, 0.5, Verdict.FASTER, 0.0, 0.01),
        ([0.8] * 4, 0.06, 1.0, Verdict.FASTER, 0.0, 0.05),
        ([0.5] * 16, 0.15, 0.7, Verdict.FASTER, 0.95, 1.0),
        ([0.5] * 4, 0.1, 1.0, Verdict.FASTER, 0.95, 1.0),
        ([1.5, *[0.5] * 3], 0.06, 1.0, Verdict.SLOWER, 0.95, 1.0),
    ],
)
def test_how_often_it_is_right_and_wrong(
    ratios: list[float], noise: float, timed: float, verdict: Verdict, least: float, most: float
) -> None:
    rng = np.random.default_rng(7)
    found = [simulated(rng, ratios, noise, timed)[0] for _ in range(200)]
    assert least <= found.count(verdict) / len(found) <= most


@pytest.mark.parametrize("noise", [0.06, 0.2])
def test_one_of_16_that_is_slower_by_10_percent_does_not_pass_unnamed(noise: float) -> None:
    rng = np.random.default_rng(9)
    unnamed, trials = 0, 300
    for _ in range(trials):
        verdict, _, judge = simulated(rng, [1.1, *[0.5] * 15], noise, 0.7)
        named = verdict is Verdict.SLOWER or "entry0" in judge.inconclusive() or "entry0" not in judge.entries
        unnamed += not named
    assert unnamed / trials <= 0.02


def test_rounds_are_saved_where_the_answer_is_plain() -> None:
    rng = np.random.default_rng(8)

    def rounds_for(true_ratio: float) -> float:
        return float(np.median([len(simulated(rng, [true_ratio] * 8, 0.05)[1].made) for _ in range(30)]))

    assert rounds_for(0.4) == 4 and rounds_for(0.79) == 6


@pytest.mark.parametrize(
    ("given", "others", "threads"),
    [(0, None, 8), (0, 0.01, 8), (0, 0.5, 4), (0, 0.99, 1), (6, 0.5, 6)],
)
def test_threads_make_room_for_other_processes_unless_their_number_is_given(
    monkeypatch: pytest.MonkeyPatch, given: int, others: float | None, threads: int
) -> None:
    monkeypatch.setattr("chirp_migrate.verify.timing.process_turns.usable_cpus", lambda: 8)
    children = ChildStarter({}, DiscoveredEntryPoints((EntryPoint("", "train"),)), VerifyOptions(threads=given))
    children.limit_threads(others)
    assert children.threads == threads
    children.limit_threads(0.0)
    assert children.threads == threads, "rounds with other numbers of threads would not be comparable"


class _SlowChild:
    """A process whose second turn, the first timed one, does not end in time."""

    cpu_s = 0.0
    is_lost = False

    def __init__(self) -> None:
        self.turns = 0
        self.found: list[object] = []

    def __enter__(self) -> _SlowChild:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def wait_until_ready(self) -> None: ...

    def suspend(self) -> None: ...

    def give_turn(self, within_s: float, cpu: int | None = None) -> None:
        self.turns += 1
        if self.turns > 1:
            raise WorkloadFailed(f"did not end within {within_s:.0f} s", hung=True)


@pytest.mark.parametrize(("timeout_s", "fails"), [(600.0, False), (5.0, True)])
def test_a_turn_that_outlasts_the_budget_is_not_a_failure(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float, fails: bool
) -> None:
    monkeypatch.setattr("chirp_migrate.verify.timing.process_turns.make_child_process", lambda *_: _SlowChild())
    settings = VerifyOptions(timeout_s=timeout_s)
    entry = EntryPoint("training", "train", script=("train.py",))
    trees = {side: Path(side) for side in ("before", "after")}
    children = ChildStarter(trees, DiscoveredEntryPoints((entry,), origin=""), settings)
    now = time.monotonic()
    if fails:
        with pytest.raises(WorkloadFailed):
            children.time_round(0, None, now, now)
    else:
        assert children.time_round(0, None, now, now).labels == frozenset()
