"""The rule of docs/tune.md: which configuration is picked from the rates of a sweep."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from chirp_migrate.tune.plateau import compare_with_best, is_pick_conclusive, pick_smallest_best
from chirp_migrate.tune.sweep import setting_combinations
from chirp_migrate.tune.tune_report import CandidateMeasurement, CandidateSettings, SettingsOutcome, mean_rate

Make = Callable[..., CandidateMeasurement]


def picked(*measured: CandidateMeasurement) -> CandidateSettings:
    chosen = pick_smallest_best(measured)
    assert chosen is not None
    return chosen.candidate


def test_picked_is_the_smallest_on_the_plateau_and_not_the_fastest(measured: Make) -> None:
    sweep = [
        measured(0, [100, 101, 99]),
        measured(2, [198, 200, 199]),
        measured(4, [390, 391, 389]),
        measured(8, [400, 399, 401]),
    ]
    assert picked(*sweep).num_workers == 4
    places = [one.outcome for one in compare_with_best(sweep)]
    assert places == [SettingsOutcome.BELOW, SettingsOutcome.BELOW, SettingsOutcome.TIED, SettingsOutcome.BEST]
    assert is_pick_conclusive(sweep)


def test_more_workers_that_are_slower_are_not_picked(measured: Make) -> None:
    assert picked(measured(0, [300, 310, 305]), measured(2, [80, 82, 81])).num_workers == 0


@pytest.mark.parametrize(("rate", "workers"), [(95.5, 0), (94.5, 2)])
def test_the_bound_is_five_percent(measured: Make, rate: float, workers: int) -> None:
    assert picked(measured(0, [rate] * 3), measured(2, [100.0] * 3)).num_workers == workers


def test_what_slows_a_whole_round_down_cancels_out(measured: Make) -> None:
    load = [1.0, 0.4, 1.0, 0.7]
    sweep = [measured(0, [97 * one for one in load]), measured(2, [100 * one for one in load])]
    comparison = compare_with_best(sweep)[0]
    assert comparison.ratio_to_best == pytest.approx(0.97)
    assert comparison.conclusive and comparison.outcome is SettingsOutcome.TIED


def test_an_interval_that_holds_the_bound_is_inconclusive(measured: Make) -> None:
    sweep = [measured(0, [80, 100, 102]), measured(2, [100, 101, 100])]
    assert not compare_with_best(sweep)[0].conclusive and not is_pick_conclusive(sweep)


def test_what_is_larger_than_the_pick_need_not_be_settled_unless_it_may_be_much_faster(measured: Make) -> None:
    assert is_pick_conclusive([measured(2, [100, 101, 100]), measured(4, [98, 96, 97])])
    sweep = [measured(2, [100, 101, 100]), measured(4, [94, 97, 95])]
    assert is_pick_conclusive(sweep) and not compare_with_best(sweep)[1].conclusive
    assert not is_pick_conclusive([measured(2, [100, 101, 100]), measured(4, [85, 112, 99])])


def test_a_configuration_given_up_early_is_compared_over_its_own_rounds(measured: Make) -> None:
    sweep = [measured(0, [50, 51, 50]), measured(2, [100, 102, 100, 10, 10])]
    comparison = compare_with_best(sweep)[0]
    assert comparison.ratio_to_best == pytest.approx(0.5, rel=0.01)


def test_fewer_workers_count_more_than_fewer_threads_or_batches_ahead(measured: Make) -> None:
    same = [100.0] * 3
    assert picked(measured(2, same, prefetch=4), measured(2, same, prefetch=2)) == CandidateSettings(2, 2, 0, 32)
    assert picked(measured(2, same), measured(0, same, threads=2)) == CandidateSettings(0, None, 2, 32)


def test_what_failed_is_never_picked(measured: Make) -> None:
    assert picked(measured(0, [100] * 3), measured(2, [], error="a worker died")).num_workers == 0
    assert pick_smallest_best([measured(2, [], error="a worker died")]) is None


def test_one_round_gives_a_pick_without_an_interval(measured: Make) -> None:
    sweep = [measured(0, [99]), measured(2, [100])]
    comparison = compare_with_best(sweep)[0]
    assert (
        comparison.outcome is SettingsOutcome.TIED
        and comparison.ratio_to_best is None
        and not is_pick_conclusive(sweep)
    )


def test_the_interval_of_a_rate_holds_the_true_one_as_often_as_it_says() -> None:
    draw = random.Random(3)
    inside = 0
    for _ in range(400):
        rate = mean_rate([100 * math.exp(draw.gauss(0, 0.1)) for _ in range(4)])
        assert rate.low is not None and rate.high is not None
        inside += rate.low <= 100 <= rate.high
    assert 0.92 <= inside / 400 <= 0.98
    with pytest.raises(ValueError, match="positive"):
        mean_rate([0.0])


def test_the_grid_has_no_prefetching_without_workers_and_holds_what_there_is_now() -> None:
    found = setting_combinations((0, 4), (2, 4), (1,), 32, CandidateSettings(3, 2, batch_size=32))
    assert [str(one) for one in found] == [
        "in the main process",
        "1 prefetch thread",
        "3 workers, prefetch 2",
        "4 workers, prefetch 2",
        "4 workers, prefetch 4",
    ]
    assert {one.batch_size for one in found} == {32}
    assert setting_combinations((2,), (2,), (), None, None)[0] == CandidateSettings(0)
