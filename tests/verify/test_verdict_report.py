"""What a reader is told of the decision: each entry point's verdict, and the rounds behind it."""

from __future__ import annotations

import pytest

from chirp_migrate.stats.looks import Look
from chirp_migrate.verify.equivalence.difference import Equivalence
from chirp_migrate.verify.report.timing import entry_lines, rounds_line, to_json
from chirp_migrate.verify.session import Measurements, Outcome, judge
from chirp_migrate.verify.timing.rounds import Rounds, Stopped, TimedRound

QUIET, BUSY = 0.01, 0.4
AFTER = {"quick": 0.5, "bound": 0.97, "unclear": 0.9, "slow": 1.5}
CACHED = {"quick": 0.4, "bound": 0.95, "unclear": 0.4, "slow": 0.4}


def rounds(*loads: float | None, discard: bool = False) -> Rounds:
    made = tuple(
        TimedRound(
            ("before", "after"),
            {
                "before": dict.fromkeys(AFTER, 1.0),
                "after": {label: value * (1 + number / 1000) for label, value in AFTER.items()},
                "cached": {label: value * (1 + number / 1000) for label, value in CACHED.items()},
            },
            load,
            1.0,
        )
        for number, load in enumerate(loads)
    )
    counted = tuple(each for each in made if not (discard and each.disturbed))
    return Rounds(made, counted, (Look(len(counted), 1.0),), Stopped.BUDGET)


def outcome(of: Rounds) -> Outcome:
    return judge(Measurements(tuple(AFTER), {}, of, Equivalence()), 0.2)


def test_each_entry_point_is_shown_with_what_it_saved_and_could_save() -> None:
    lines = entry_lines(outcome(rounds(QUIET, QUIET, QUIET)), 0.2, lambda label: f"a_module_with_a_long_name.{label}")
    assert all(len(line) <= 100 for line in lines)
    rows = {line.split()[0].partition(".")[2]: line for line in lines[1:]}
    assert rows["quick"].endswith("meets the threshold") and "50 % [" in rows["quick"]
    assert rows["bound"].endswith("model-bound") and "5 % [" in rows["bound"]
    assert rows["unclear"].endswith("not shown") and "60 % [" in rows["unclear"]
    assert rows["slow"].endswith("slower") and "-50 % [" in rows["slow"]


def test_the_json_has_every_round_and_which_of_them_count() -> None:
    made = rounds(QUIET, BUSY, QUIET, QUIET, discard=True)
    values = to_json(outcome(made), made)
    assert [each["counts"] for each in values["rounds"]["made"]] == [True, False, True, True]
    assert (values["rounds"]["count"], values["rounds"]["discarded"]) == (3, 1)
    assert values["rounds"]["others_most"] == BUSY
    assert values["verdicts"]["bound"]["verdict"] == "model-bound"
    assert values["verdicts"]["bound"]["headspace"] == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(
    "made, told",
    [
        (
            rounds(QUIET, BUSY, QUIET, QUIET, discard=True),
            "3 count, 1 discarded because others used more than 10%",
        ),
        (
            rounds(BUSY, BUSY, BUSY, BUSY),
            "4 of them though others used more than 10% of the CPUs",
        ),
        (rounds(None, None, None), "3 made, 3 count; whether other processes had the cores was not watched"),
    ],
)
def test_discarded_rounds_and_a_busy_machine_are_said(made: Rounds, told: str) -> None:
    line = rounds_line(made)
    assert told in line
    assert line.endswith("Ended with budget used up.")
