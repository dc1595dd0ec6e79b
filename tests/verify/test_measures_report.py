"""A simulated run of a tiny backend in a real process, from its options to everything that is shown of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support import run

from chirp_migrate.console.screen import printed
from chirp_migrate.report.plots import drawn
from chirp_migrate.report.terminal.summary import show_verify
from chirp_migrate.stats.sequential_looks import Look
from chirp_migrate.training.workload.entry_points import Discovery, Sizes, discover
from chirp_migrate.verify.build_report import build_report
from chirp_migrate.verify.document import VerifyReport, decode, encode
from chirp_migrate.verify.equivalence.compare import Equivalence
from chirp_migrate.verify.measures.figures import MEASURES
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.spec import Mode, RunResult, RunSpec, StepCount
from chirp_migrate.verify.timing.children import run_child
from chirp_migrate.verify.timing.rounds import Rounds, TimedRound
from chirp_migrate.verify.trial import Trial

SIZES = Sizes(samples=60, shape=(1, 12, 10), epochs=3, batch_size=16)
SINGLE = "training_utils.single_fold_training_with_predefined_split"
STEP_MS = 3.0


SETTINGS = VerifyOptions(
    SIZES, rounds=3, budget_s=0.0, threads=1, timeout_s=300.0, simulate_step_ms=STEP_MS, worker_counts=(0, 2)
)


def ran(tree: Path, discovery: Discovery) -> RunResult:
    """Every pass of one side in one process."""
    modes = (Mode.PROBE, Mode.TIMED, Mode.CACHED, Mode.MEASURED)
    return run_child(RunSpec(str(tree), discovery, replace(SETTINGS, extra_s=60.0), modes), "after")


def steps(result: RunResult, mode: Mode) -> dict[str, StepCount]:
    """The simulated steps of one pass, by entry point."""
    return {label: entry.steps for label, entry in result.modes[mode].items() if entry.steps is not None}


def reported(result: RunResult, discovery: Discovery) -> VerifyReport:
    """The same process as both sides, in three equal rounds."""
    timed = {"before": Mode.TIMED, "after": Mode.TIMED, "cached": Mode.CACHED}
    first = {side: result.modes[mode] for side, mode in timed.items()}
    seconds = {side: {label: entry.seconds for label, entry in entries.items()} for side, entries in first.items()}
    rounds = tuple(TimedRound(("before", "after"), seconds, None, 1.0, counts=True) for _ in range(3))
    looked = Rounds.of(rounds, (Look(len(rounds), 1.0),))
    probe = dict.fromkeys(("before", "after"), result)
    return build_report(discovery, SETTINGS, Trial(), probe, Equivalence(), looked, first)


@pytest.mark.slow
def test_a_simulated_run_says_so_everywhere(write_backend: Callable[..., Path], tmp_path: Path) -> None:
    tree = write_backend("tree")
    discovery = discover(tree)

    result = ran(tree, discovery)

    # Training batches of 44 samples by 16, three epochs; validation takes no step.
    for mode in (Mode.TIMED, Mode.CACHED, Mode.MEASURED):
        assert steps(result, mode)[SINGLE].steps == 9
        assert result.modes[mode][SINGLE].seconds >= 9 * STEP_MS / 1e3
    assert steps(result, Mode.PROBE) == {}
    measured = result.measured
    assert measured is not None
    assert [(walk.role, walk.samples) for walk in measured.entries[SINGLE].walks] == [
        ("train", 44),
        ("validation", 16),
    ] * 3
    assert {(trial.workers, trial.problem) for trial in measured.workers} == {(0, None), (2, None)}
    assert {cost.dataset for cost in measured.augmentation} == {"Masked > Subset > TensorDataset"}

    report = reported(result, discovery)
    text = " ".join(printed(lambda screen: show_verify(report, screen), 100, verbose=True).split())
    assert text.startswith(f"Verdict: {report.verdict}. With SIMULATED device steps of 3 ms:")
    assert "stand-in of one small layer takes the model's place" in text and "device busy" in text
    assert "Required figures, after the migration" in text and "every sample once and no worker lost" in text
    assert decode(encode(report)) == report
    assert report.simulated is not None and report.simulated.step_ms == STEP_MS and "SIMULATED" in report.reason
    assert 0 < report.simulated.device_busy["after"] <= 1
    assert set(report.measures.figures["after"]) == {measure.name for measure in MEASURES}
    assert report.measures.raw["after"].entries[SINGLE].walks[0].samples == 44
    assert len(report.targets) == 5
    assert "training-time.svg, batch-waits.svg, worker-counts.svg" in drawn(tmp_path, report)
    assert "SIMULATED device steps of 3 ms" in (tmp_path / "batch-waits.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", [["--simulate-step-ms", "-1"], ["--num-workers", "two"]])
def test_options_that_make_no_sense_are_refused(option: list[str], tmp_path: Path) -> None:
    assert run("verify", tmp_path, *option).exit_code == 2
