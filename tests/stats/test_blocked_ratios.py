"""Ratios from pairs in rounds: what their intervals cover, and how robust they are. The seconds are made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from chirp_migrate.stats.blocked_ratios import Pair, total_and_entry_ratios


def made_up(
    rng: np.random.Generator,
    ratios: Sequence[float],
    rounds: int,
    noise: float = 0.06,
    between: float = 0.0,
    timed: float = 1.0,
) -> list[Mapping[str, Pair]]:
    """Rounds of entry points with these true ratios, of which a share is timed in each.

    ``noise`` is of one time, ``between`` differs from process to process.
    """
    made = []
    for _ in range(rounds):
        process = rng.normal(0, between)
        some = {}
        for number, ratio in enumerate(ratios):
            if rng.random() < timed:
                before, after = np.exp(rng.normal(0, noise, 2))
                some[f"entry{number}"] = (float(before), float(after * ratio * np.exp(process)))
        made.append(some)
    return made


def test_the_total_weighs_entry_points_by_their_time() -> None:
    rounds = [{"long": (100.0, 50.0), "short": (1.0, 1.0)}] * 3
    total, entries = total_and_entry_ratios(rounds)
    assert total is not None and total.value == pytest.approx(51 / 101)
    assert entries["long"].value == pytest.approx(0.5) and entries["short"].value == pytest.approx(1.0)


def test_rounds_with_all_entry_points_give_students_interval_of_their_totals() -> None:
    rng = np.random.default_rng(3)
    rounds = made_up(rng, [0.5] * 8, 4, noise=0.01)
    total, _ = total_and_entry_ratios(rounds)
    logs = [np.mean([np.log(after / before) for before, after in one.values()]) for one in rounds]
    assert total is not None and total.error is not None
    assert total.error == pytest.approx(np.std(logs, ddof=1) / 2, rel=0.05)
    assert total.freedom == 3


@pytest.mark.parametrize("rounds", [[], [{"a": (1.0, 0.5)}], [{"a": (1.0, 0.5)}, {"b": (1.0, 0.5)}]])
def test_nothing_that_was_timed_once_has_an_interval(rounds: list[Mapping[str, Pair]]) -> None:
    assert total_and_entry_ratios(rounds) == (None, {})


@pytest.mark.parametrize(
    ("rounds", "between", "timed"), [(3, 0.0, 1.0), (3, 0.05, 1.0), (5, 0.03, 0.6), (5, 0.0, 0.4), (4, 0.05, 0.7)]
)
def test_the_interval_of_the_total_covers_the_true_ratio(rounds: int, between: float, timed: float) -> None:
    rng = np.random.default_rng(5)
    covered, trials = 0, 600
    for _ in range(trials):
        total, _ = total_and_entry_ratios(made_up(rng, [0.5] * 16, rounds, between=between, timed=timed))
        covered += total is None or total.low <= 0.5 <= total.high
    assert covered / trials >= 0.93


@pytest.mark.parametrize(("rounds", "timed"), [(3, 1.0), (5, 0.6)])
def test_an_entry_point_is_called_not_slower_as_seldom_as_allowed_where_it_is_at_the_margin(
    rounds: int, timed: float
) -> None:
    rng = np.random.default_rng(6)
    wrong, trials = 0, 1500
    for _ in range(trials):
        _, entries = total_and_entry_ratios(made_up(rng, [1.05, *[0.5] * 15], rounds, timed=timed))
        wrong += "entry0" in entries and entries["entry0"].at(0.025, 0.025).high < 1.05
    assert wrong / trials <= 0.035


def test_the_spread_of_others_makes_the_interval_of_one_narrow() -> None:
    rng = np.random.default_rng(7)
    rounds = made_up(rng, [0.5] * 16, 3)
    _, together = total_and_entry_ratios(rounds)
    widths = []
    for label in together:
        _, alone = total_and_entry_ratios([{label: one[label]} for one in rounds])
        widths.append(alone[label].high / alone[label].low)
        assert alone[label].freedom == 2
    assert np.median([one.high / one.low for one in together.values()]) < np.median(widths)


def test_a_disturbed_minute_does_not_decide() -> None:
    rng = np.random.default_rng(8)
    rounds = [dict(one) for one in made_up(rng, [0.5] * 16, 4, noise=0.02)]
    calm, _ = total_and_entry_ratios(rounds)
    for label in list(rounds[1])[:3]:
        before, after = rounds[1][label]
        rounds[1][label] = (before, 20 * after)
    disturbed, _ = total_and_entry_ratios(rounds)
    assert calm is not None and disturbed is not None
    assert disturbed.value == pytest.approx(calm.value, rel=0.03) and disturbed.high < 0.6
