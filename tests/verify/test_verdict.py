"""Which verdict follows from which figures, and the exit code that scripts rely on."""

from __future__ import annotations

import pytest

from chirp_migrate.verify.statistics import Ratio, paired_ratio
from chirp_migrate.verify.verdict import Timing, Verdict, decide, entry_verdicts, still_open


def ratio(value: float, spread: float = 0.01) -> Ratio:
    return paired_ratio([1.0, 1.0, 1.0], [value * (1 - spread), value, value * (1 + spread)])


def timing(value: float, perfect: float | None = 0.3, spread: float = 0.01) -> Timing:
    return Timing(ratio(value, spread), None if perfect is None else ratio(perfect))


@pytest.mark.parametrize(
    "total, entries, perfect, expected",
    [
        (0.6, [0.6, 0.6], 0.3, Verdict.FASTER),
        (0.75, [0.6, 1.0], 0.3, Verdict.FASTER),
        (0.85, [0.8, 0.9], 0.3, Verdict.NOT_SHOWN),
        (0.95, [0.9, 1.0], 0.85, Verdict.MODEL_BOUND),
        (0.95, [0.9, 1.0], None, Verdict.NOT_SHOWN),
        (0.7, [0.5, 1.3], 0.3, Verdict.SLOWER),
        (1.2, [1.2, 1.2], 0.9, Verdict.SLOWER),
    ],
)
def test_verdict_follows_from_ratios_and_headspace(
    total: float, entries: list[float], perfect: float | None, expected: Verdict
) -> None:
    named = {f"entry{i}": timing(value, perfect) for i, value in enumerate(entries)}
    assert decide(timing(total, perfect), named, 0.2).verdict is expected


def test_an_interval_that_reaches_over_the_threshold_shows_nothing() -> None:
    wide = timing(0.7, spread=0.3)
    assert wide.ratio.value < 0.8 < wide.ratio.high
    assert decide(wide, {"entry": wide}, 0.2).verdict is Verdict.NOT_SHOWN


def test_threshold_is_a_share_of_the_time_not_a_speed_up() -> None:
    # 1.2 times the throughput is a time ratio of 0.833: not 20 % less time.
    found = timing(1 / 1.2)
    assert decide(found, {"entry": found}, 0.2).verdict is Verdict.NOT_SHOWN


def test_a_headspace_that_may_be_large_enough_does_not_blame_the_model() -> None:
    unsure = Timing(ratio(0.95), ratio(0.85, spread=0.2))
    assert unsure.headspace == pytest.approx(1 - 0.85, abs=0.02)
    decision = decide(unsure, {"entry": unsure}, 0.2)
    assert decision.verdict is Verdict.NOT_SHOWN
    assert "perfect loading would save 16%" in decision.reason


def test_no_speed_makes_up_for_other_training() -> None:
    decision = decide(timing(0.3), {"entry": timing(0.3)}, 0.2, ("entry: 96 samples before, 90 after",))
    assert decision.verdict is Verdict.NOT_EQUIVALENT
    assert "96 samples before, 90 after" in decision.reason


def test_the_slower_entry_point_is_named() -> None:
    decision = decide(timing(0.6), {"quick": timing(0.4), "slow": timing(1.4)}, 0.2)
    assert "slow takes longer" in decision.reason and "quick" not in decision.reason


def test_each_entry_point_has_a_verdict_of_its_own() -> None:
    entries = {
        "quick": timing(0.6),
        "bound": timing(0.98, perfect=0.9),
        "wide": timing(0.7, spread=0.3),
        "slow": timing(1.4, perfect=0.9),
    }
    assert entry_verdicts(entries, 0.2) == {
        "quick": Verdict.FASTER,
        "bound": Verdict.MODEL_BOUND,
        "wide": Verdict.NOT_SHOWN,
        "slow": Verdict.SLOWER,
    }


def test_slower_is_harder_to_say_the_more_entry_points_there_are() -> None:
    doubtful = timing(1.1, spread=0.025)
    assert doubtful.ratio.low > 1.02
    assert entry_verdicts({"one": doubtful}, 0.2) == {"one": Verdict.SLOWER}
    many = {f"other{i}": timing(1.0) for i in range(15)} | {"one": doubtful}
    assert entry_verdicts(many, 0.2)["one"] is Verdict.NOT_SHOWN


BOTH = {"entry0", "entry1"}


@pytest.mark.parametrize(
    "total, entries, expected, for_each",
    [
        (timing(0.5), [timing(0.5)], set(), set()),
        (timing(0.7, spread=0.3), [timing(0.5), timing(0.5)], BOTH, BOTH),  # is it 20 %?
        (timing(0.5), [timing(0.4), timing(1.02)], {"entry1"}, {"entry1"}),  # is one of them slower?
        (timing(0.6), [timing(0.4), timing(1.4)], set(), set()),  # one is
        (timing(0.95), [timing(0.95)], set(), set()),  # not 20 %, though perfect loading could
        (Timing(ratio(0.95), ratio(0.8, 0.1)), [timing(0.95), timing(0.95)], BOTH, BOTH),  # could it?
        (timing(0.5), [timing(0.5), timing(0.8)], set(), {"entry1"}),  # is this one 20 %?
        (timing(0.5), [timing(0.5), Timing(ratio(0.95), ratio(0.8, 0.1))], set(), {"entry1"}),  # could it be?
        (timing(0.5), [timing(0.5), Timing(ratio(0.95), ratio(0.9))], set(), set()),  # no loader could
    ],
)
def test_what_is_still_open(total: Timing, entries: list[Timing], expected: set[str], for_each: set[str]) -> None:
    named = {f"entry{i}": each for i, each in enumerate(entries)}
    assert still_open(total, named, 0.2) == expected
    assert still_open(total, named, 0.2, each=True) == for_each


def test_exit_codes_are_the_documented_ones() -> None:
    assert {verdict.name: verdict.exit_code for verdict in Verdict} == {
        "FASTER": 0,
        "NOT_SHOWN": 10,
        "MODEL_BOUND": 11,
        "SLOWER": 12,
        "NOT_EQUIVALENT": 13,
        "FAILED": 14,
    }
