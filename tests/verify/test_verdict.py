"""Which verdict follows from which figures, and the exit code that scripts rely on."""

from __future__ import annotations

import pytest

from chirp_migrate.verify.statistics import Ratio, paired_ratio
from chirp_migrate.verify.verdict import Verdict, decide


def ratio(value: float, spread: float = 0.01) -> Ratio:
    return paired_ratio([1.0, 1.0, 1.0], [value * (1 - spread), value, value * (1 + spread)])


@pytest.mark.parametrize(
    "total, entries, headspace, expected",
    [
        (0.6, [0.6, 0.6], 0.7, Verdict.FASTER),
        (0.75, [0.6, 1.0], 0.7, Verdict.FASTER),
        (0.85, [0.8, 0.9], 0.7, Verdict.NOT_SHOWN),
        (0.95, [0.9, 1.0], 0.15, Verdict.MODEL_BOUND),
        (0.7, [0.5, 1.3], 0.7, Verdict.SLOWER),
        (1.2, [1.2, 1.2], 0.1, Verdict.SLOWER),
    ],
)
def test_verdict_follows_from_ratios_and_headspace(
    total: float, entries: list[float], headspace: float, expected: Verdict
) -> None:
    named = {f"entry{i}": ratio(value) for i, value in enumerate(entries)}
    assert decide(ratio(total), named, headspace, 0.2, ()).verdict is expected


def test_an_interval_that_reaches_over_the_threshold_shows_nothing() -> None:
    wide = ratio(0.7, spread=0.3)
    assert wide.value < 0.8 < wide.high
    assert decide(wide, {"entry": wide}, 0.7, 0.2, ()).verdict is Verdict.NOT_SHOWN


def test_threshold_is_a_share_of_the_time_not_a_speed_up() -> None:
    # 1.2 times the throughput is a time ratio of 0.833: not 20 % less time.
    assert decide(ratio(1 / 1.2), {"entry": ratio(1 / 1.2)}, 0.7, 0.2, ()).verdict is Verdict.NOT_SHOWN


def test_no_speed_makes_up_for_other_training() -> None:
    decision = decide(ratio(0.3), {"entry": ratio(0.3)}, 0.9, 0.2, ("entry: 96 samples before, 90 after",))
    assert decision.verdict is Verdict.NOT_EQUIVALENT
    assert "96 samples before, 90 after" in decision.reason


def test_the_slower_entry_point_is_named() -> None:
    decision = decide(ratio(0.6), {"quick": ratio(0.4), "slow": ratio(1.4)}, 0.9, 0.2, ())
    assert "slow takes longer" in decision.reason and "quick" not in decision.reason


def test_exit_codes_are_the_documented_ones() -> None:
    assert {verdict.name: verdict.exit_code for verdict in Verdict} == {
        "FASTER": 0,
        "NOT_SHOWN": 10,
        "MODEL_BOUND": 11,
        "SLOWER": 12,
        "NOT_EQUIVALENT": 13,
        "FAILED": 14,
    }
