"""Ratios with intervals, and tests, on made-up values."""

from __future__ import annotations

import numpy as np
import pytest

from chirp_migrate.stats.ratios import (
    detectable_difference,
    holm_adjusted,
    ks_p_value,
    paired_ratio,
    student_quantile,
)


@pytest.mark.parametrize("rounds, confidence", [(3, 0.95), (3, 0.9925), (5, 0.995), (20, 0.9825)])
def test_interval_covers_the_true_ratio_as_often_as_it_says(rounds: int, confidence: float) -> None:
    rng = np.random.default_rng(5)
    logs = rng.normal(np.log(0.8), 0.2, (3000, rounds))
    ratios = [paired_ratio(np.ones(rounds), np.exp(row), confidence) for row in logs]
    covered = np.mean([ratio.low <= 0.8 <= ratio.high for ratio in ratios])
    assert covered == pytest.approx(confidence, abs=0.012)


def test_rounds_that_went_astray_make_the_interval_too_wide_rather_than_too_narrow() -> None:
    rng = np.random.default_rng(9)

    def side() -> np.ndarray:
        astray = rng.random((3000, 5)) < 0.15
        return rng.normal(0, 0.03, (3000, 5)) + astray * rng.uniform(np.log(1.2), np.log(3), (3000, 5))

    ratios = [paired_ratio(np.exp(before), np.exp(after)) for before, after in zip(side(), side(), strict=True)]
    assert np.mean([ratio.low <= 1 <= ratio.high for ratio in ratios]) >= 0.95


@pytest.mark.parametrize(
    "freedom, quantile", [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (5, 2.57058), (30, 2.04227)]
)
def test_student_quantiles_are_the_tabled_ones(freedom: int, quantile: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, rel=1e-5)


def test_holm_multiplies_by_the_hypotheses_left_and_never_decreases() -> None:
    assert holm_adjusted([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm_adjusted([0.9, 0.8]) == [1.0, 1.0]
    assert holm_adjusted([]) == []


def test_kolmogorov_smirnov_on_known_cases() -> None:
    rng = np.random.default_rng(6)
    same = [ks_p_value(rng.normal(size=200), rng.normal(size=200)) for _ in range(300)]
    assert np.mean(np.array(same) < 0.05) < 0.08
    assert ks_p_value(rng.normal(size=300), rng.normal(0.5, 1, 300)) < 0.001
    assert ks_p_value([1.0, 2.0], [1.0, 2.0]) == 1.0


@pytest.mark.parametrize("before, after", [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, 0.0], [1.0, 1.0])])
def test_a_ratio_needs_pairs_of_positive_times(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError):
        paired_ratio(before, after)


@pytest.mark.parametrize("share_before", [0.3, 0.5, 0.9])
def test_a_difference_that_is_called_noticed_is_found_in_nine_of_ten_times(share_before: float) -> None:
    rng, size, alpha = np.random.default_rng(3), 300, 1e-4
    less = max(0.0, share_before - detectable_difference(size, size, alpha))
    found = [
        ks_p_value(rng.random(size) < share_before, rng.random(size) < less) < alpha  # as a gate: 0 or 1
        for _ in range(200)
    ]
    assert np.mean(found) > 0.83


def test_few_samples_show_no_difference() -> None:
    assert detectable_difference(5, 5, 1e-5) == 1.0
