"""What a verification says first, on one screen: the seconds are made up."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest
from msgspec import structs

from chirp_migrate.console.screen import render_to_text
from chirp_migrate.report.terminal.summary import show_verify_report
from chirp_migrate.stats.interim_analyses import InterimAnalysis
from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, EntryPoint, WorkloadSizes
from chirp_migrate.verify.build_report import build_report
from chirp_migrate.verify.equivalence.compare import Equivalence
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.spec import EntryPointRecord, LoaderPassTrace
from chirp_migrate.verify.timing.rounds import Rounds, StopReason, TimedRound
from chirp_migrate.verify.verify_report import OwnRunTimes, TrainingDifference, VerifyReport
from chirp_migrate.verify.watching import RecordedRuns

SETTINGS = VerifyOptions(
    WorkloadSizes(), max_rounds=20, budget_s=150.0, threshold_percent=20.0, threads=1, timeout_s=60.0
)


def measured(
    after: Mapping[str, float],
    noise: Mapping[str, float] | None = None,
    others: float = 0.01,
    equivalence: Equivalence | None = None,
    failing: Mapping[str, str] | None = None,
) -> VerifyReport:
    """Four rounds: every entry point takes 1 s before, 0.4 s with zero-cost loading, and so long after."""
    rng = np.random.default_rng(1)
    rounds = tuple(
        TimedRound(
            {
                "before": dict.fromkeys(after, 1.0),
                "after": {k: v * np.exp(rng.normal(0, (noise or {}).get(k, 0.01))) for k, v in after.items()},
                "cached": dict.fromkeys(after, 0.4),
            },
            others,
            1.0,
        )
        for _ in range(4)
    )
    of = Rounds.of(rounds, (InterimAnalysis(4, 1.0),), StopReason.BUDGET)
    return reported(tuple(after), of, equivalence or Equivalence(), failing)


def reported(
    labels: tuple[str, ...],
    rounds: Rounds,
    equivalence: Equivalence,
    failing: Mapping[str, str] | None = None,
    unseen: Mapping[str, list[str]] | None = None,
) -> VerifyReport:
    held = unseen or {}
    seen = {label: EntryPointRecord({}, [LoaderPassTrace(0, "train", unseen=held.get(label, []))]) for label in labels}
    watched = RecordedRuns({"before": seen, "after": seen}, failing=dict(failing or {}))
    discovery = DiscoveredEntryPoints(tuple(EntryPoint("", label) for label in labels), "utils.models:BirdCNN")
    return build_report(discovery, SETTINGS, watched, equivalence, rounds, {})


def said(report: VerifyReport, verbose: bool = False, width: int = 100) -> str:
    return render_to_text(lambda screen: show_verify_report(report, screen), width, verbose=verbose)


def facts(report: VerifyReport) -> dict[str, str]:
    """Name of each line of the summary, and what it says."""
    told: dict[str, str] = {}
    for line in said(report).partition("\n\n")[2].splitlines():
        name = line[:14].strip() or name  # noqa: F821 - a line without a name goes on with the last
        told[name] = f"{told.get(name, '')} {line[14:]}".strip()
    return told


def test_the_total_what_was_possible_and_the_ends_come_first() -> None:
    found = facts(measured({"core.quick": 0.4, "core.half": 0.5, "core.slow": 0.9}))
    assert list(found)[:4] == ["total", "possible", "best", "worst"]
    assert found["total"].startswith("3.00 s before, 1.8") and found["total"].endswith(
        "of your own training: 4 rounds."
    )
    assert found["possible"] == "zero-cost loading would save 60 %; 66 % of that is reached."
    assert found["best"].startswith("60 % less time [") and found["best"].endswith("core.quick.")
    assert found["worst"].startswith("1") and found["worst"].endswith("core.slow.")


def test_the_saving_of_the_largest_own_run_is_never_cut() -> None:
    label = "cross_validation.a_training_function_with_a_name_that_is_longer_than_a_line_of_many_terminals"
    found = measured({label: 0.5})
    own = OwnRunTimes(epochs=300, folds=5, assumed=True, epoch_s={"before": 0.4217, "after": 0.2731},
                   start_s={"before": 3.1421, "after": 0.4217})  # fmt: skip
    text = " ".join(said(structs.replace(found, own_runs={label: own}), width=80).split())
    assert re.search(
        r"own run 5\d % less time \[\d+, \d+\] in 300 epochs \(assumed\): 0.422 -> 0.273 s an epoch, "
        r"3.14 -> 0.422 s start-up a fold", text
    )  # fmt: skip


def test_inconclusive_and_left_out_entry_points_are_named() -> None:
    one = measured({"core.sure": 0.4, "core.doubtful": 1.0}, {"core.doubtful": 0.3}, failing={"core.broken": "E"})
    assert facts(one)["inconclusive"] == "core.doubtful."
    assert facts(one)["left out"] == "1 entry point also failed before the migration: core.broken."


def test_a_single_entry_point_is_not_told_of_as_several() -> None:
    one = measured({"command": 1.0}, equivalence=Equivalence(smallest_p={"command": 1.0}))
    assert "inconclusive" not in facts(one) and "ntry points" not in said(one)
    assert facts(one)["the same"].startswith("1 entry point in distribution")


def test_no_time_is_told_where_the_training_differs() -> None:
    texts = ("the results differ in 1 value", "no longer in the result")
    differs = Equivalence(
        [TrainingDifference("results-differ", "core.single", f"core.single: {text}") for text in texts]
    )
    found = reported(("core.single",), Rounds(), differs)
    assert said(found).startswith("Verdict: not equivalent. core.single: the results differ in 1 value.")
    assert facts(found)["time"].startswith("not measured")
    assert facts(found)["differs"] == "1 more: core.single: no longer in the result."


def test_what_would_have_been_noticed_is_told() -> None:
    same = Equivalence(smallest_p={"core.single": 1.0}, detectable_changes={"core.single": 0.19})
    found = facts(measured({"core.single": 0.5}, equivalence=same))
    assert "9 of 10 runs of verify find a probability that changed by 0.19" in found["the same"]


@pytest.mark.parametrize("width", [8, 40, 72])
def test_a_narrow_terminal_gets_narrow_lines(width: int) -> None:
    found = measured({"core.quick": 0.4, "core.slow": 0.9})
    assert all(len(line) <= max(width, 40) for line in said(found, width=width).splitlines())


@pytest.mark.parametrize("slower", [False, True])
def test_it_fits_on_one_screen_however_much_there_is_to_say(slower: bool) -> None:
    labels = [f"cross_validation.a_training_function_with_a_very_long_name_{number}" for number in range(40)]
    after = dict.fromkeys(labels, 1.5 if slower else 1.0) | {"cross_validation.most_of_it": 0.4}
    lots = Equivalence(
        [TrainingDifference("results-differ", label, f"{label}: {'it differs ' * 50}") for label in labels]
        if slower
        else [],
        ["a note"] * 9,
        dict.fromkeys(labels, 1.0),
        dict.fromkeys(labels, 0.2),
    )
    found = measured(after, {} if slower else dict.fromkeys(labels, 0.5), 0.9, lots, dict.fromkeys(labels, "E"))
    lines = said(found).splitlines()
    assert len(lines) <= 24, "and one says where the rest is"
    assert all(len(line) <= 100 for line in lines)
    assert len(said(found, verbose=True).splitlines()) > 80


def test_what_batches_hold_and_was_not_looked_into_is_said_everywhere() -> None:
    unseen = {"graphs": ["geometric.Data"], "more": ["geometric.Data"], "sets": ["set"]}
    rounds = measured({"graphs": 0.5}).rounds
    report = reported(("graphs", "more", "sets", "plain"), rounds, Equivalence(), unseen=unseen)
    held = "graphs, more: geometric.Data; sets: set"
    assert held in report.described.unseen
    assert "not seen      Batches contain objects whose contents verify does not compare" in said(report)
    assert f"({held})." in " ".join(said(report).split())
    assert said(report, verbose=True).count("whose contents verify does not compare") == 2, "in the summary and in full"
    assert "not seen" not in said(measured({"a": 0.5}))
