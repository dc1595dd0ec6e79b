"""What a reader is told of the decision: each entry point's verdict, and the rounds behind it."""

from __future__ import annotations

import re

import pytest

from chirp_migrate.console.screen import render_to_text
from chirp_migrate.report.terminal.summary import show_verify_report
from chirp_migrate.stats.interim_analyses import InterimAnalysis
from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, EntryPoint, WorkloadSizes
from chirp_migrate.verify.build_report import build_report, describe_rounds
from chirp_migrate.verify.equivalence.compare import Equivalence
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.timing.rounds import Rounds, StopReason, TimedRound
from chirp_migrate.verify.verify_report import VerifyReport
from chirp_migrate.verify.watching import RecordedRuns

QUIET, BUSY = 0.01, 0.4
AFTER = {"quick": 0.5, "bound": 0.97, "unclear": 0.9, "slow": 1.5}
CACHED = {"quick": 0.4, "bound": 0.95, "unclear": 0.4, "slow": 0.4}


def rounds(*loads: float | None) -> Rounds:
    made = tuple(
        TimedRound(
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
    return Rounds.of(made, (InterimAnalysis(len(made), 1.0),), StopReason.BUDGET)


def report(of: Rounds) -> VerifyReport:
    settings = VerifyOptions(
        WorkloadSizes(), max_rounds=20, budget_s=150.0, threshold_percent=20.0, threads=1, timeout_s=60.0
    )
    discovery = DiscoveredEntryPoints(tuple(EntryPoint("", label) for label in AFTER))
    return build_report(discovery, settings, RecordedRuns({"before": {}, "after": {}}), Equivalence(), of, {})


def test_each_entry_point_is_shown_with_what_it_saved_and_could_save() -> None:
    lines = render_to_text(
        lambda screen: show_verify_report(report(rounds(QUIET, QUIET, QUIET)), screen), 120, verbose=True
    ).splitlines()
    rows = {line.split()[0]: line for line in lines if re.search(r" % \[.* % \[", line)}
    assert rows["quick"].endswith("meets the threshold") and "50 % [" in rows["quick"]
    assert rows["bound"].endswith("model-bound") and "5 % [" in rows["bound"]
    assert rows["unclear"].endswith("not shown") and "60 % [" in rows["unclear"]
    assert rows["slow"].endswith("slower") and "-50 % [" in rows["slow"]


def test_the_document_has_every_round() -> None:
    found = report(rounds(QUIET, BUSY, QUIET, QUIET))
    assert len(found.rounds.made) == 4
    assert found.rounds.others_most == BUSY
    assert found.verdicts["bound"].verdict == "model-bound"
    bound = found.verdicts["bound"].zero_cost_ratio
    assert bound is not None and 1 - bound.value == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(
    "made, told",
    [
        (rounds(QUIET, BUSY, QUIET), "12 timings of entry points by 3 pairs of processes; other processes used 1 %"),
        (rounds(BUSY, BUSY), "other processes used 40 % of the CPUs in the median round"),
        (rounds(None, None, None), "the CPU use of other processes was not measured"),
    ],
)
def test_a_busy_machine_is_named(made: Rounds, told: str) -> None:
    line = describe_rounds(made)
    assert told in line
    assert line.endswith("No more rounds ran: budget used up.")
