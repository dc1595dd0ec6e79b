"""How many rounds are made, which of them count, and what looking several times may cost. Timings are made up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from scipy import special

from chirp_migrate.stats.sequential_looks import ERROR, MIN_ROUNDS, Look, claim_error, planned_looks
from chirp_migrate.verify.timing.rounds import SIDES, Rounds, Stopped, TimedRound, order, take_rounds
from chirp_migrate.verify.verdict import Judge, Verdict, timings

QUIET, BUSY = 0.01, 0.5


def made(others: float | None = QUIET, before: float = 1.0, after: float = 1.0, lasts: float = 10.0) -> TimedRound:
    seconds = {"before": {"train": before}, "after": {"train": after}, "cached": {}}
    return TimedRound(("before", "after"), seconds, others, lasts)


def taken(loads: Iterable[float | None], most: int = 20, budget_s: float = 1e9, enough: int = 1000) -> Rounds:
    """Rounds on a machine with these loads; settled once ``enough`` of them count."""
    supply = iter(loads)

    def still_open(rounds: tuple[TimedRound, ...], _looks: tuple[Look, ...]) -> frozenset[str]:
        return frozenset() if len(rounds) >= enough else frozenset({"train"})

    return take_rounds(lambda _number, _labels: made(next(supply)), still_open, most, budget_s)


def test_looks_are_few_at_even_rounds_and_share_all_errors() -> None:
    looks = planned_looks(20)
    assert [each.rounds for each in looks] == [4, 8, 14, 20]
    assert [each.share for each in looks] == pytest.approx([0.04, 0.12, 0.33, 0.51])
    assert [each.rounds for each in planned_looks(7)] == [4, 6]
    assert [(each.rounds, each.share) for each in planned_looks(1)] == [(MIN_ROUNDS, 1.0)]


@pytest.mark.parametrize("most", [4, 6, 20, 60])
def test_errors_of_claims_only_rise_to_nearly_all_that_may_be_made(most: int) -> None:
    looks = planned_looks(most)
    errors = [claim_error(looks[: number + 1]) for number in range(len(looks))]
    assert errors == sorted(errors), "what was shown at a look would be shown at the next"
    assert 0.7 * ERROR <= errors[-1] <= ERROR * (1 + 1e-9), "looking early costs the last look little"


@pytest.mark.parametrize("looks", [planned_looks(20), (Look(4, 0.04), Look(6, 0.96))])
def test_claims_of_all_looks_together_err_as_often_as_promised(looks: tuple[Look, ...]) -> None:
    rng = np.random.default_rng(10)
    sums = rng.normal(size=(40_000, looks[-1].rounds)).cumsum(axis=1)
    wrong = np.zeros(len(sums), dtype=bool)
    for number, look in enumerate(looks):
        bound = -special.ndtri(claim_error(looks[: number + 1]))
        wrong |= sums[:, look.rounds - 1] / np.sqrt(look.rounds) > bound
    assert wrong.mean() == pytest.approx(ERROR, abs=0.003)


def test_a_last_look_before_its_time_has_all_that_is_left() -> None:
    looks = taken([QUIET] * 30, budget_s=60).looks
    assert [each.rounds for each in looks] == [4, 6]
    assert [each.share for each in looks] == pytest.approx([0.04, 0.96])


def test_it_ends_when_every_question_is_settled() -> None:
    rounds = taken([QUIET] * 30, enough=4)
    assert (len(rounds.made), rounds.ended_with) == (4, Stopped.SETTLED)


def test_it_ends_with_the_budget_and_with_the_rounds_but_not_before_the_least() -> None:
    assert len(taken([QUIET] * 30, most=7).made) == 6
    assert taken([QUIET] * 30, most=7).ended_with == Stopped.ROUNDS
    cut_short = taken([QUIET] * 30, budget_s=60)
    assert (len(cut_short.made), cut_short.ended_with) == (6, Stopped.BUDGET)
    assert len(taken([QUIET] * 30, budget_s=0).made) == MIN_ROUNDS
    assert len(taken([QUIET] * 30, most=1).made) == MIN_ROUNDS


def test_disturbed_rounds_are_discarded_counted_and_made_again() -> None:
    rounds = taken([QUIET, BUSY, QUIET, BUSY, QUIET, QUIET], most=4)
    assert (len(rounds.made), len(rounds.included), rounds.discarded) == (6, 4, 2)
    assert not any(each.disturbed for each in rounds.included)
    assert (rounds.others_median, rounds.others_most) == pytest.approx((QUIET, BUSY))


def test_a_machine_that_is_always_busy_gets_a_verdict_from_what_there_is() -> None:
    rounds = taken([BUSY] * 30, most=4)
    assert (len(rounds.made), len(rounds.included), rounds.discarded) == (7, 4, 3)
    assert rounds.disturbed_but_counted == 4
    assert rounds.ended_with == Stopped.ROUNDS


def test_discarding_ends_with_the_budget_too() -> None:
    rounds = taken([BUSY, QUIET, BUSY] + [QUIET] * 30, budget_s=30)
    assert (len(rounds.made), len(rounds.included), rounds.discarded) == (6, 4, 2)
    assert rounds.ended_with == Stopped.BUDGET


def test_where_others_are_not_watched_every_round_counts() -> None:
    rounds = taken([None] * 30, most=4)
    assert (len(rounds.included), rounds.discarded, rounds.others_most) == (4, 0, None)


def test_a_discarded_round_is_made_again_in_its_place() -> None:
    supply, numbers = iter([QUIET, BUSY, QUIET, BUSY, QUIET, QUIET]), []

    def make(number: int, _labels: frozenset[str] | None) -> TimedRound:
        numbers.append(number)
        return made(next(supply))

    take_rounds(make, lambda *_: frozenset({"train"}), 4, 1e9)
    assert numbers == [0, 1, 1, 2, 2, 3], "so that each side goes first equally often"


def test_each_side_goes_first_equally_often_in_an_order_that_repeats_with_the_seed() -> None:
    orders = [order(435, number) for number in range(40)]
    assert orders == [order(435, number) for number in range(40)]
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert first == second[::-1]
    assert len({tuple(orders[number : number + 2]) for number in range(0, 40, 2)}) == 2, "drawn by lot"
    assert [order(436, number) for number in range(40)] != orders


def simulated(
    rng: np.random.Generator, ratios: Sequence[float], noise: float, most: int = 20
) -> tuple[Verdict, Rounds]:
    """One verification with simulated (not measured) seconds: its verdict and its rounds."""
    labels = [f"entry{number}" for number in range(len(ratios))]

    def make(_number: int, some: frozenset[str] | None) -> TimedRound:
        drift = np.exp(rng.normal(0, 0.2))
        sides = drift * np.exp(rng.normal(0, noise, (2, len(labels)))) * [[1.0] * len(labels), ratios]
        times = [{name: t for name, t in zip(labels, side, strict=True) if not some or name in some} for side in sides]
        return TimedRound(("before", "after"), {"before": times[0], "after": times[1], "cached": {}}, QUIET, 1.0)

    judge = Judge(0.2)
    rounds = take_rounds(make, lambda seen, looks: judge.look(*timings(seen), looks), 20, budget_s=1e9)
    return judge.decide().verdict, rounds


@pytest.mark.parametrize(
    "ratios, noise, verdict, least, most",
    [
        ([1.0] * 4, 0.06, Verdict.FASTER, 0.0, 0.01),
        ([0.8] * 4, 0.06, Verdict.FASTER, 0.0, 0.05),
        ([1.1, *[0.5] * 15], 0.06, Verdict.FASTER, 0.0, 0.05),
        ([0.5] * 4, 0.1, Verdict.FASTER, 0.95, 1.0),
        ([1.5, *[0.5] * 3], 0.06, Verdict.SLOWER, 0.95, 1.0),
    ],
)
def test_how_often_it_is_right_and_wrong(
    ratios: list[float], noise: float, verdict: Verdict, least: float, most: float
) -> None:
    rng = np.random.default_rng(7)
    found = [simulated(rng, ratios, noise)[0] for _ in range(100)]
    assert least <= found.count(verdict) / len(found) <= most


def test_rounds_are_saved_where_the_answer_is_plain() -> None:
    rng = np.random.default_rng(8)

    def rounds_for(true_ratio: float) -> float:
        return float(np.median([len(simulated(rng, [true_ratio], 0.05)[1].made) for _ in range(30)]))

    assert rounds_for(0.4) <= 8 < rounds_for(0.79)


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
    assert asked == [None] * 4 + [frozenset({"doubtful"})] * 16
    assert (len(rounds.included), len(rounds.complete)) == (20, 4)
    total, entries = timings(rounds.included)
    assert total.ratio.rounds == entries["quick"].ratio.rounds == 4
    assert entries["doubtful"].ratio.rounds == 20


def test_rounds_of_a_few_entry_points_take_their_own_time_of_the_budget() -> None:
    _, rounds = asked_for([QUIET] * 30, budget_s=4 * 30 + 6 * 10)
    assert (len(rounds.made), rounds.ended_with) == (10, Stopped.BUDGET)


def test_perfect_loading_is_judged_by_the_rounds_that_have_it() -> None:
    fed = TimedRound(("before", "after"), {side: {"a": 1.0, "b": 2.0} for side in SIDES}, QUIET, 1.0)
    total, entries = timings([fed, fed, of("b"), of("b")])
    assert (total.ratio.rounds, entries["b"].ratio.rounds) == (2, 4)
    assert total.perfect is not None and total.perfect.rounds == 2
    assert entries["b"].perfect is not None and entries["b"].perfect.rounds == 2
