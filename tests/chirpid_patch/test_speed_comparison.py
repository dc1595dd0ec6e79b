"""Comparing candidates by their speeds: which is picked, and in which order rounds measure them."""

from __future__ import annotations

import pytest

from chirpid_patch.speed_comparison import compare_speeds, costly_is_faster, order_of_round


@pytest.mark.parametrize(
    ("speeds", "fastest", "tied"),
    [
        ([[100], [104], [108]], 2, (False, True, True)),
        ([[], [100], [90]], 1, (False, True, False)),  # failed
        ([[50, 50], [100, 100, 10]], 1, (False, True)),  # measured in fewer rounds: compared over these rounds
        ([[97, 9.7], [100, 10]], 1, (True, True)),  # a slow round slows both
        ([[], []], None, (False, False)),
    ],
)
def test_tied_is_at_most_five_percent_slower_than_the_fastest(
    speeds: list[list[float]], fastest: int | None, tied: tuple[bool, ...]
) -> None:
    assert compare_speeds(speeds) == (fastest, tied)


def test_a_cost_is_worth_more_than_the_tolerance() -> None:
    assert costly_is_faster(94.9, 100) and not costly_is_faster(95.1, 100)
    assert costly_is_faster(100, 121, 1 / 6) and not costly_is_faster(100, 119, 1 / 6)


def test_every_second_round_goes_backwards() -> None:
    assert [order_of_round("abc", number) for number in range(3)] == [["a", "b", "c"], ["c", "b", "a"], ["a", "b", "c"]]
