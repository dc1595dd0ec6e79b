"""Definitions, values and targets of the metrics, from timings made up here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import ROOT

from chirp_migrate.verify.metrics import (
    MET,
    METRICS,
    MIB,
    NOT_MEASURABLE,
    NOT_MET,
    judge_targets,
    metrics_of_timed_rounds,
)
from chirp_migrate.verify.spec import EntryPointTiming

AFTER = EntryPointTiming(start_s=9.0, epochs_s=[2.0], cached_s=[1.5], samples=600.0, batches=30.0)
BEFORE = EntryPointTiming(
    start_s=9.0,
    epochs_s=[3.0, 4.0, 2.0],
    samples=600.0,
    batches=30.0,
    waits_s=[0.01, 0.02] * 6,
    first_waits_s=[0.1, 0.1, 0.3],
    waited_s=1.8,
    memory_bytes=120 * MIB,
    memory_kind="pss",
    gpu_percent=[70.0, 90.0],
    gpu_bytes=3 * MIB,
)


def test_every_metric_is_defined_once_and_every_definition_has_a_value() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert set(names) == metrics_of_timed_rounds(1.0, [(BEFORE, AFTER)]).keys()
    assert all(metric.title and metric.method and metric.requirement.startswith("R-") for metric in METRICS)
    rows = [f"| `{one.name}` | {one.unit or '1'} | {one.title}: {one.method} | {one.requirement} |" for one in METRICS]
    assert "|---|---|---|---|\n" + "\n".join(rows) in (ROOT / "docs" / "verify-measures.md").read_text(encoding="utf-8")


def test_values_are_what_their_definitions_say() -> None:
    found = metrics_of_timed_rounds(750.0, [(BEFORE, AFTER)])
    assert found == {
        "training_s": 750.0,
        "samples_per_s": 200.0,
        "batches_per_s": 10.0,
        "goodput_percent": 50.0,
        "epoch_s": 3.0,
        "wait_p50_ms": pytest.approx(15.0),
        "wait_p95_ms": pytest.approx(20.0),
        "wait_p99_ms": pytest.approx(20.0),
        "wait_variation": pytest.approx(1 / 3),
        "first_batch_ms": pytest.approx(100.0),
        "waiting_percent": pytest.approx(20.0),
        "gpu_percent": 80.0,
        "gpu_memory_mib": 3.0,
        "memory_mib": 120.0,
        "lost_workers": 0.0,
    }


def test_all_rounds_and_entry_points_count() -> None:
    other = replace(BEFORE, epochs_s=[1.0], waits_s=[0.1], waited_s=0.8, lost_workers=2, memory_bytes=MIB)
    found = metrics_of_timed_rounds(1.0, [(BEFORE, AFTER), (other, AFTER)])
    assert found["samples_per_s"] == pytest.approx(1200 / (3.0 + 1.0))
    assert found["waiting_percent"] == pytest.approx(100 * (1.8 + 0.8) / (9.0 + 1.0))
    assert (found["epoch_s"], found["memory_mib"], found["lost_workers"]) == (2.5, 120.0, 2.0)
    assert (found["wait_p99_ms"] or 0) > 20


def test_what_was_not_measured_has_no_value() -> None:
    for visits in ([], [(EntryPointTiming(start_s=1.0), EntryPointTiming(start_s=1.0))]):
        found = metrics_of_timed_rounds(1.0, visits)
        assert {name: value for name, value in found.items() if value is not None} == {"training_s": 1.0}
    found = metrics_of_timed_rounds(1.0, [(AFTER, AFTER)])
    assert found["wait_p50_ms"] is None and found["gpu_percent"] is None and found["waiting_percent"] == 0


def test_targets_are_met_or_not_or_not_measurable_with_the_reason() -> None:
    metrics = metrics_of_timed_rounds(1.0, [(BEFORE, AFTER)])
    busy, lost = judge_targets(metrics, "Model 0: 90 % busy", simulated=False)
    assert (busy.verdict, busy.value, lost.verdict) == (NOT_MET, 80.0, MET), "80 % is not above 80 %"
    busy, lost = judge_targets({**metrics, "gpu_percent": 80.5, "lost_workers": 2.0}, "", simulated=False)
    assert (busy.verdict, lost.verdict) == (MET, NOT_MET) and "2 loaders" in lost.why
    busy, _ = judge_targets(metrics, "", simulated=True)
    assert busy.verdict == NOT_MEASURABLE and "--simulate-step-ms" in busy.why
    nothing = judge_targets(metrics_of_timed_rounds(1.0, []), "no GPU: NVML finds no GPU", simulated=False)
    assert {target.verdict for target in nothing} == {NOT_MEASURABLE}
    assert nothing[0].why == "no GPU: NVML finds no GPU"
    assert "reports no utilisation (Model 0)" in judge_targets({}, "Model 0", simulated=False)[0].why


def test_lost_workers_count_without_a_second_epoch() -> None:
    visit = EntryPointTiming(start_s=3.0, lost_workers=2, memory_bytes=MIB)
    assert metrics_of_timed_rounds(3.0, [(visit, visit)])["lost_workers"] == 2.0
    without_loaders = EntryPointTiming(start_s=3.0)
    assert metrics_of_timed_rounds(3.0, [(without_loaders, without_loaders)])["lost_workers"] is None
