"""Which verdict follows from which figures, and the exit code that scripts rely on."""

from __future__ import annotations

import pytest

from chirp_migrate.stats.interim_analyses import InterimAnalysis
from chirp_migrate.stats.ratios import Ratio, paired_ratio
from chirp_migrate.verify.verdict import CombinedTiming, Decision, Judge, Verdict


def ratio(value: float, spread: float = 0.01) -> Ratio:
    steps = (1 - spread, 1 - spread / 2, 1.0, 1.0, 1 + spread / 2, 1 + spread)
    return paired_ratio([1.0] * len(steps), [value * step for step in steps])


def timing(
    value: float, zero_cost_ratio: float | None = 0.3, spread: float = 0.01, zero_cost_spread: float = 0.01
) -> CombinedTiming:
    return CombinedTiming(
        ratio(value, spread), None if zero_cost_ratio is None else ratio(zero_cost_ratio, zero_cost_spread)
    )


def judge(total: CombinedTiming, *entries: CombinedTiming, share: float = 1.0, strict: bool = False) -> Judge:
    """After one look, which has this share of the errors."""
    found = Judge(0.2, strict=strict)
    found.run_interim_analysis(
        total, {f"entry{i}": entry for i, entry in enumerate(entries)}, [InterimAnalysis(6, share)]
    )
    return found


def decided(total: CombinedTiming, *entries: CombinedTiming) -> Decision:
    return judge(total, *entries).decide()


@pytest.mark.parametrize(
    "total, entries, zero_cost_ratio, expected",
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
def test_verdict_follows_from_ratios_and_headroom(
    total: float, entries: list[float], zero_cost_ratio: float | None, expected: Verdict
) -> None:
    assert (
        decided(timing(total, zero_cost_ratio), *(timing(each, zero_cost_ratio) for each in entries)).verdict
        is expected
    )


def test_an_entry_point_that_stays_open_is_named_and_is_a_verdict_of_its_own_only_if_asked_for() -> None:
    unclear = timing(1.05, spread=0.02)
    for strict, verdict in ((False, Verdict.FASTER), (True, Verdict.INCONCLUSIVE)):
        found = judge(timing(0.6), timing(0.5), unclear, strict=strict)
        assert found.decide().verdict is verdict
        assert "1 of 2 entry points inconclusive" in found.decide().reason
        assert found.inconclusive() == ["entry1"]


def test_nothing_is_decided_without_an_interval() -> None:
    found = Judge(0.2)
    assert found.run_interim_analysis(None, {}, [InterimAnalysis(1, 1.0)]) == set()
    assert found.decide().verdict is Verdict.NOT_SHOWN and "--time-budget" in found.decide().reason


def test_rounds_go_on_until_the_interval_of_the_total_is_narrow() -> None:
    looks = [InterimAnalysis(6, 0.5)]
    narrow, wide = timing(0.5, spread=0.02), timing(0.5, spread=0.2)
    assert Judge(0.2).run_interim_analysis(narrow, {"entry0": timing(0.5)}, looks) == set()
    assert Judge(0.2).run_interim_analysis(wide, {"entry0": timing(0.5)}, looks) == {"entry0"}


def test_both_ends_of_the_interval_of_the_total_have_the_same_error() -> None:
    total = judge(timing(0.5), timing(0.5), timing(1.0), share=0.5).total
    assert total is not None
    assert total.ratio.high / total.ratio.value == pytest.approx(total.ratio.value / total.ratio.low)


def test_an_interval_that_reaches_over_the_threshold_shows_nothing() -> None:
    wide = timing(0.7, spread=0.3)
    assert decided(wide, wide).verdict is Verdict.NOT_SHOWN


def test_threshold_is_a_share_of_the_time_not_a_speed_up() -> None:
    # 1.2 times the throughput is a time ratio of 0.833: not 20 % less time.
    assert decided(timing(1 / 1.2), timing(1 / 1.2)).verdict is Verdict.NOT_SHOWN


def test_a_headroom_that_may_be_large_enough_does_not_blame_the_model() -> None:
    decision = decided(CombinedTiming(ratio(0.95), ratio(0.85, spread=0.2)), timing(0.95))
    assert decision.verdict is Verdict.NOT_SHOWN


def test_no_speed_makes_up_for_other_training() -> None:
    decision = judge(timing(0.3), timing(0.3)).decide(("entry: 96 samples before, 90 after",))
    assert decision.verdict is Verdict.NOT_EQUIVALENT
    assert "96 samples before, 90 after" in decision.reason


def test_the_slower_entry_point_is_named() -> None:
    reason = decided(timing(0.6), timing(0.4), timing(1.4)).reason
    assert "entry1 takes over 5 % longer" in reason and "entry0" not in reason


def test_the_total_time_is_named_where_no_entry_point_is_surely_slower() -> None:
    decision = decided(timing(1.2), timing(1.2, spread=0.3), timing(1.2, spread=0.3))
    assert decision.verdict is Verdict.SLOWER
    assert decision.reason.startswith("all entry points together: 20.0 % more time")


def test_each_entry_point_has_a_verdict_of_its_own() -> None:
    found = judge(timing(0.6), timing(0.6), timing(0.9, zero_cost_ratio=0.9), timing(1.1, spread=0.3), timing(1.4))
    assert list(found.verdicts().values()) == [
        Verdict.FASTER,
        Verdict.MODEL_BOUND,
        Verdict.INCONCLUSIVE,
        Verdict.SLOWER,
    ]


def test_slower_is_harder_to_say_the_more_entry_points_there_are() -> None:
    doubtful = timing(1.1, spread=0.035)
    assert judge(timing(0.5), doubtful).slower() == ["entry0"]
    assert judge(timing(0.5), doubtful, *[timing(0.5)] * 40).slower() == []


def test_the_ends_of_the_interval_are_what_decides() -> None:
    for value in (0.98, 1.0, 1.02, 1.04, 1.08, 1.2):
        found = judge(timing(0.5), timing(0.5), timing(value, spread=0.04))
        shown = found.entries["entry1"].ratio
        assert ("entry1" in found.slower()) == (shown.low > 1.05)
        assert ("entry1" in found.inconclusive()) == (shown.low <= 1.05 < shown.high)


def test_what_a_look_has_shown_is_not_taken_back_by_a_later_one() -> None:
    found = judge(timing(0.6), timing(0.9), timing(1.0, spread=0.3), share=0.2, strict=True)
    wide = timing(1.02, spread=0.3)
    open_now = found.run_interim_analysis(
        timing(0.6), {"entry0": wide, "entry1": wide}, [InterimAnalysis(6, 0.2), InterimAnalysis(8, 0.05)]
    )
    assert open_now == {"entry1"} and found.inconclusive() == ["entry1"]
    assert found.entries["entry0"].ratio.high <= 1.05


def test_slower_is_not_taken_back_either() -> None:
    found = judge(timing(0.6), timing(0.5), timing(1.3), share=0.2, strict=True)
    for later in (timing(1.1, spread=0.3), timing(0.9)):
        found.run_interim_analysis(
            timing(0.6), {"entry0": timing(0.5), "entry1": later}, [InterimAnalysis(6, 0.2), InterimAnalysis(8, 0.05)]
        )
        assert found.slower() == ["entry1"] and found.inconclusive() == []
        assert found.entries["entry1"].ratio.low > 1.05
        assert found.decide().verdict is Verdict.SLOWER


BOTH = {"entry0", "entry1"}


@pytest.mark.parametrize(
    "total, entries, expected, if_strict",
    [
        ({"value": 0.5}, [0.5], set(), set()),
        ({"value": 0.7, "spread": 0.3}, [0.5, 0.5], BOTH, BOTH),  # is it 20 %?
        ({"value": 0.5}, [0.4, 1.06], {"entry1"}, {"entry1"}),  # is one of them slower?
        ({"value": 0.5}, [0.4, (1.04, 0.15)], set(), {"entry1"}),  # may be slower, but seems to be within the margin
        ({"value": 0.6}, [0.4, 1.4], set(), set()),  # one is
        ({"value": 0.95}, [0.95], set(), set()),  # not 20 %, though zero-cost loading could
        ({"value": 0.95, "zero_cost_ratio": 0.8, "zero_cost_spread": 0.1}, [0.95, 0.95], BOTH, BOTH),  # could it?
        ({"value": 0.5}, [0.4, (0.99, 0.15)], set(), {"entry1"}),  # may be slower, and does not look so
    ],
)
def test_what_is_still_open(
    total: dict[str, float], entries: list[float | tuple[float, float]], expected: set[str], if_strict: set[str]
) -> None:
    given = [each if isinstance(each, tuple) else (each, 0.01) for each in entries]
    named = {f"entry{i}": timing(value, spread=spread) for i, (value, spread) in enumerate(given)}
    assert Judge(0.2).run_interim_analysis(timing(**total), named, [InterimAnalysis(6, 1.0)]) == expected
    assert Judge(0.2, strict=True).run_interim_analysis(timing(**total), named, [InterimAnalysis(6, 1.0)]) == if_strict


def test_exit_codes_are_the_documented_ones() -> None:
    assert {verdict.name: verdict.exit_code for verdict in Verdict} == {
        "FASTER": 0,
        "NOT_SHOWN": 10,
        "MODEL_BOUND": 11,
        "SLOWER": 12,
        "NOT_EQUIVALENT": 13,
        "FAILED": 14,
        "INCONCLUSIVE": 15,
    }
