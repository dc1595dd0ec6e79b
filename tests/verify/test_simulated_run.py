"""A simulated run of a tiny backend in a real process, from its options to everything that is shown of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import run

from chirp_migrate.console.json_document import read_document, to_json_bytes
from chirp_migrate.console.progress import ignore_progress
from chirp_migrate.console.screen import render_to_text
from chirp_migrate.report.page.charts import batch_wait_plots
from chirp_migrate.report.terminal.summary import show_verify_report
from chirp_migrate.training.workload.entry_points import WorkloadSizes, find_entry_points
from chirp_migrate.verify.metrics import METRICS
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.session import run_all_processes
from chirp_migrate.verify.verify_report import VerifyReport

SIZES = WorkloadSizes(samples=60, shape=(1, 12, 10), epochs=3, batch_size=16)
SINGLE = "training_utils.single_fold_training_with_predefined_split"
STEP_MS = 3.0


SETTINGS = VerifyOptions(SIZES, max_rounds=3, threads=1, simulate_step_ms=STEP_MS)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_simulated_run_says_so_everywhere(write_backend: Callable[..., Path]) -> None:
    tree = write_backend("tree")
    trees = {"before": tree, "after": tree}
    report = run_all_processes(trees, find_entry_points(tree), SETTINGS, ignore_progress, time.monotonic() + 600)

    # Training batches of 44 samples by 16; validation takes no step, and neither does the warm-up.
    for each in report.rounds.made:
        for visits in each.visits.values():
            visit = visits[SINGLE]
            epochs = 1 + len(visit.epochs_s) + len(visit.cached_s)
            assert visit.steps is not None and visit.steps.steps == 3 * epochs
            assert visit.start_s >= 3 * STEP_MS / 1e3
            assert all(seconds >= 3 * STEP_MS / 1e3 for seconds in (*visit.epochs_s, *visit.cached_s))
            waits = 2 * len(visit.epochs_s)  # without the first of three batches
            assert (len(visit.waits_s), len(visit.first_waits_s)) == (waits, len(visit.epochs_s))
            assert sum(visit.epochs_s) >= visit.waited_s + 3 * len(visit.epochs_s) * STEP_MS / 1e3
            assert (visit.samples, visit.batches) == (60, 4)

    text = " ".join(render_to_text(lambda screen: show_verify_report(report, screen), 100, verbose=True).split())
    assert text.startswith(f"Verdict: {report.verdict}. With SIMULATED device steps of 3 ms:")
    assert "one small layer replaces the model" in text and "device busy" in text
    assert "Targets for the migrated version" in text and "no lost workers" in text
    assert read_document(to_json_bytes(report), VerifyReport) == report
    assert report.simulated is not None and report.simulated.step_ms == STEP_MS and "SIMULATED" in report.reason
    assert 0 < report.simulated.device_busy["after"] <= 1
    for side in ("before", "after"):
        figures = report.measures.figures[side]
        assert set(figures) == {metric.name for metric in METRICS}
        assert {name for name, value in figures.items() if value is None} <= {"gpu_percent", "gpu_memory_mib"}
    assert len(report.targets) == 2
    assert [plot.title for plot in batch_wait_plots(report)] == ["Waiting for batches"]


def test_a_step_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    assert run("verify", tmp_path, "--simulate-step-ms", "-1").exit_code == 2
