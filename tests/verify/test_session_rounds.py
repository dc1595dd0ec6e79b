"""How many rounds are made, which of them count, and what looking several times may cost. Timings are made up."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from chirp_migrate.verify.rounds import MIN_ROUNDS, Looks, Rounds, Stopped, TimedRound, order, take_rounds, used
from chirp_migrate.verify.session import timings
from chirp_migrate.verify.verdict import Verdict, decide, still_open

QUIET, BUSY = 0.01, 0.5


def made(others: float | None = QUIET, before: float = 1.0, after: float = 1.0, lasts: float = 10.0) -> TimedRound:
    seconds = {"before": {"train": before}, "after": {"train": after}, "cached": {}}
    return TimedRound(("before", "after"), seconds, others, lasts)


def taken(loads: Iterable[float | None], most: int = 20, budget_s: float = 1e9, enough: int = 1000) -> Rounds:
    """Rounds on a machine with these loads; settled once ``enough`` of them count."""
    supply = iter(loads)

    def still_open(rounds: tuple[TimedRound, ...], _confidence: float) -> frozenset[str]:
        return frozenset() if len(rounds) >= enough else frozenset({"train"})

    return take_rounds(lambda _number, _labels: made(next(supply)), still_open, most, budget_s)


def test_looks_are_far_apart_and_their_errors_add_up_to_five_percent() -> None:
    looks = Looks(20)
    errors, taken_at = [], []
    for rounds in range(1, 21):
        if rounds == 20 or looks.due(rounds):
            taken_at.append(rounds)
            errors.append(1 - looks.confidence(rounds, last=rounds == 20))
    assert taken_at == [3, 5, 8, 13, 20]
    assert errors == pytest.approx([0.0075, 0.005, 0.0075, 0.0125, 0.0175])
    assert sum(errors) == pytest.approx(0.05)


def test_a_last_look_before_its_time_gets_all_that_is_left() -> None:
    looks = Looks(20)
    assert looks.due(3)
    first = 1 - looks.confidence(3, last=False)
    assert 1 - looks.confidence(4, last=True) == pytest.approx(0.05 - first)
    assert Looks(20).confidence(3, last=True) == pytest.approx(0.95)


def test_it_ends_when_every_question_is_settled() -> None:
    rounds = taken([QUIET] * 30, enough=4)
    assert (len(rounds.made), rounds.stopped) == (5, Stopped.SETTLED)


def test_it_ends_with_the_budget_and_with_the_rounds_but_not_before_the_least() -> None:
    assert len(taken([QUIET] * 30, most=7).made) == 7
    assert taken([QUIET] * 30, most=7).stopped is Stopped.ROUNDS
    cut_short = taken([QUIET] * 30, budget_s=60)
    assert (len(cut_short.made), cut_short.stopped) == (6, Stopped.BUDGET)
    assert len(taken([QUIET] * 30, budget_s=0).made) == MIN_ROUNDS
    assert len(taken([QUIET] * 30, most=1).made) == MIN_ROUNDS


def test_disturbed_rounds_are_discarded_counted_and_made_again() -> None:
    rounds = taken([QUIET, BUSY, QUIET, BUSY, QUIET, QUIET, QUIET], most=5)
    assert (len(rounds.made), len(rounds.used), rounds.discarded) == (7, 5, 2)
    assert not any(each.disturbed for each in rounds.used)
    assert rounds.others() == pytest.approx((QUIET, BUSY))


def test_a_machine_that_is_always_busy_gets_a_verdict_from_what_there_is() -> None:
    rounds = taken([BUSY] * 30, most=5)
    assert (len(rounds.made), len(rounds.used), rounds.discarded) == (5, 5, 0)
    assert rounds.kept_though_disturbed == 5
    assert rounds.stopped is Stopped.ROUNDS


def test_discarding_ends_with_the_budget_too() -> None:
    rounds = taken([BUSY, QUIET, BUSY] + [QUIET] * 30, budget_s=30)
    assert (len(rounds.made), len(rounds.used), rounds.kept_though_disturbed) == (3, 3, 2)
    assert rounds.stopped is Stopped.BUDGET


def test_where_others_are_not_watched_every_round_counts() -> None:
    rounds = taken([None] * 30, most=5)
    assert (len(rounds.used), rounds.discarded, rounds.others()) == (5, 0, None)


def test_what_counts_depends_on_the_load_and_never_on_the_times() -> None:
    loads = [QUIET, BUSY, QUIET, QUIET, BUSY]
    slow = [made(load, after=9.0) for load in loads]
    fast = [made(load, after=0.1) for load in loads]
    assert [slow.index(each) for each in used(slow)] == [fast.index(each) for each in used(fast)]


def test_each_side_goes_first_equally_often_in_an_order_that_repeats_with_the_seed() -> None:
    orders = [order(435, number) for number in range(40)]
    assert orders == [order(435, number) for number in range(40)]
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert first == second[::-1]
    assert len({tuple(orders[number : number + 2]) for number in range(0, 40, 2)}) == 2, "drawn by lot"
    assert [order(436, number) for number in range(40)] != orders


def simulated(rng: np.random.Generator, true_ratio: float, noise: float, most: int = 20) -> tuple[Verdict, bool]:
    """One verification with simulated (not measured) seconds: its verdict, and whether its interval is right."""

    def make(_number: int, _labels: frozenset[str] | None) -> TimedRound:
        drift = np.exp(rng.normal(0, 0.2))
        before, after = drift * np.exp(rng.normal(0, noise, 2))
        return made(before=before, after=true_ratio * after)

    rounds = take_rounds(make, lambda some, level: still_open(*timings(some, level), 0.2), most, budget_s=1e9)
    total, entries = timings(rounds.used, rounds.confidence)
    return decide(total, entries, 0.2).verdict, total.ratio.low <= true_ratio <= total.ratio.high


@pytest.mark.parametrize("true_ratio", [0.8, 1.0])
def test_looking_several_times_does_not_make_the_interval_wrong_more_often(true_ratio: float) -> None:
    rng = np.random.default_rng(7)
    found = [simulated(rng, true_ratio, 0.1) for _ in range(300)]
    assert np.mean([right for _, right in found]) >= 0.92  # at least 0.95 is promised
    assert sum(verdict is Verdict.FASTER for verdict, _ in found) <= (0.045 if true_ratio == 0.8 else 0.0) * 300


def test_rounds_are_saved_where_the_answer_is_plain() -> None:
    rng = np.random.default_rng(8)

    def rounds_for(true_ratio: float) -> int:
        def make(_number: int, _labels: frozenset[str] | None) -> TimedRound:
            before, after = np.exp(rng.normal(0, 0.05, 2))
            return made(before=before, after=true_ratio * after)

        return len(take_rounds(make, lambda some, level: still_open(*timings(some, level), 0.2), 20, 1e9).made)

    assert np.median([rounds_for(0.4) for _ in range(30)]) <= 5 < np.median([rounds_for(0.79) for _ in range(30)])


def of(*labels: str, after: float = 0.5, others: float = QUIET) -> TimedRound:
    """A round with these entry points."""
    seconds = {"before": dict.fromkeys(labels, 1.0), "after": dict.fromkeys(labels, after), "cached": {}}
    return TimedRound(("before", "after"), seconds, others, 10.0 * len(labels))


def asked_for(
    loads: Iterable[float], most: int = 20, budget_s: float = 1e9
) -> tuple[list[frozenset[str] | None], Rounds]:
    """What the rounds of a verification of three entry points were asked for, one of which stays open to the end."""
    supply, asked = iter(loads), []

    def make(_number: int, labels: frozenset[str] | None) -> TimedRound:
        asked.append(labels)
        return of(*(labels or {"quick", "doubtful", "bound"}), others=next(supply))

    return asked, take_rounds(make, lambda *_: frozenset({"doubtful"}), most, budget_s)


def test_after_a_look_only_what_is_still_open_runs() -> None:
    asked, rounds = asked_for([QUIET] * 30)
    assert asked == [None] * 3 + [frozenset({"doubtful"})] * 17
    assert (len(rounds.used), len(rounds.whole)) == (20, 3)
    total, entries = timings(rounds.used, rounds.confidence)
    assert total.ratio.rounds == entries["quick"].ratio.rounds == 3
    assert entries["doubtful"].ratio.rounds == 20


def test_rounds_of_a_few_entry_points_take_their_own_time_of_the_budget() -> None:
    _, rounds = asked_for([QUIET] * 30, budget_s=3 * 30 + 5 * 10)
    assert (len(rounds.made), rounds.stopped) == (8, Stopped.BUDGET)


def test_all_run_while_it_is_open_which_rounds_count() -> None:
    asked, rounds = asked_for([BUSY] * 30, most=8)
    assert asked == [None] * 8
    assert rounds.kept_though_disturbed == 8
