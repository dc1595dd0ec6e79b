"""What is recommended and shown, from values made by hand: every recommendation names the setting to change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chirp_migrate.console.json_document import convert_json, read_json, to_json_bytes
from chirp_migrate.console.screen import render_to_text
from chirp_migrate.errors import UsageProblem
from chirp_migrate.tune import plot
from chirp_migrate.tune.recommend import add_recommendations, augmentation_share_of_loading
from chirp_migrate.tune.report import show_tune_report
from chirp_migrate.tune.tune_report import (
    CandidateMeasurement,
    CandidateSettings,
    LoaderReport,
    Recommendation,
    SettingsOutcome,
    TrainingRun,
    TuneReport,
)

Make = Callable[..., CandidateMeasurement]


def found(*measured: CandidateMeasurement, **more: Any) -> LoaderReport:
    values = {"name": "RetinalDataset", "role": "training", "batch_size": 32, "samples": 20_000, "migrated": True}
    return LoaderReport(**{**values, "measured": list(measured), "rounds": 3, "not_augmented": "none", **more})


@pytest.fixture
def sweep(measured: Make) -> list[CandidateMeasurement]:
    return [measured(0, [400, 405, 402]), measured(2, [780, 790, 785]), measured(4, [795, 800, 790])]


def advice_on(found: LoaderReport, training: TrainingRun | None = None) -> list[Recommendation]:
    add_recommendations(found, training)
    return found.recommendations


def reported(*loaders: LoaderReport) -> TuneReport:
    for one in loaders:
        add_recommendations(one, None)
    training, notes = TrainingRun(3.0, None, "no GPU: none here"), ["a loader was left out"]
    return TuneReport(
        tool="tool", loaders=list(loaders), training=training, notes=notes, machine={}, described="a machine"
    )


def by_setting(advice: list[Recommendation]) -> dict[str, Recommendation]:
    return {one.setting: one for one in advice}


def test_the_number_of_workers_is_named_with_what_it_gains(sweep: list[CandidateMeasurement]) -> None:
    advice = by_setting(advice_on(found(*sweep)))
    assert advice["num_workers"].value == "2"
    assert "785" in advice["num_workers"].why and "402" in advice["num_workers"].why
    assert advice["prefetch_factor"].value == "2"


def test_a_configuration_s_own_keys_are_named(sweep: list[CandidateMeasurement]) -> None:
    setting = {"num_workers": "data.num_workers in retinal.yaml"}
    advice = by_setting(advice_on(found(*sweep, now=CandidateSettings(0, batch_size=32), setting=setting)))
    assert advice["data.num_workers in retinal.yaml"].value == "2"


def test_what_is_as_good_as_the_pick_is_left_alone(sweep: list[CandidateMeasurement]) -> None:
    advice = by_setting(advice_on(found(*sweep, now=CandidateSettings(2, 2, 0, 32))))
    assert advice["num_workers"].value == "keep it" and "prefetch_factor" not in advice


def test_loading_that_the_training_does_not_wait_for_is_left_alone(sweep: list[CandidateMeasurement]) -> None:
    advice = by_setting(advice_on(found(*sweep, waited_share=0.02)))
    assert advice["num_workers"].value == "keep it" and "2.0 %" in advice["num_workers"].why


@pytest.mark.parametrize(("without_s", "warning"), [(0.085, None), (0.075, False), (0.065, True)])
def test_augmentation_has_a_target_of_20_and_a_warning_from_30_percent(
    sweep: list[CandidateMeasurement], without_s: float, warning: bool | None
) -> None:
    one = found(*sweep, with_s=[0.1] * 3, without_s=[without_s] * 3)
    assert augmentation_share_of_loading(one.with_s, one.without_s) == pytest.approx(1 - 10 * without_s)
    advice = by_setting(advice_on(one)).get("the transform of the dataset")
    assert (None if advice is None else advice.warning) == warning


def test_a_larger_batch_size_is_told_of_and_never_just_recommended(sweep: list[CandidateMeasurement]) -> None:
    sizes = [
        CandidateMeasurement(CandidateSettings(2, 2, 0, size), [rate] * 3, [0.1] * 3)
        for size, rate in ((32, 780.0), (64, 990.0))
    ]
    advice = by_setting(advice_on(found(*sweep, batch_sizes=sizes)))["batch_size"]
    assert "64" in advice.value and "changes what training learns" in advice.why
    sizes[1].rates = [800.0] * 3
    assert "batch_size" not in by_setting(advice_on(found(*sweep, batch_sizes=sizes)))


def test_waiting_slow_start_a_failure_and_an_idle_gpu_are_each_told_of(measured: Make) -> None:
    slow = [measured(0, [100.0] * 3), measured(2, [200.0] * 3), measured(4, [], error="a worker process died")]
    slow[1].first_batch_s = [4.0] * 3
    one = found(*slow, cpu_share=0.2, samples=1000)
    advice = advice_on(one, TrainingRun(9.0, 40.0, "a GPU"))
    text = "\n".join(map(str, advice))
    for named in (
        "persistent_workers: True (",
        "4.00 s",
        "num_workers: do not use 4 (",
        "a worker process died",
        "80 %",
        "40 %",
    ):
        assert named in text
    assert "__getitem__" in text  # 200 / 32 < 10 batches a second
    assert advice_on(found(measured(0, [], error="no"))) == []


def test_the_report_fits_a_terminal_and_the_json_holds_raw_values(sweep: list[CandidateMeasurement]) -> None:
    one = found(*sweep, cpu_share=0.9, now=CandidateSettings(4, 2, 0, 32), saved="/cache/profile.json", others=0.3)
    report = reported(one)
    text = render_to_text(lambda screen: show_tune_report(report, screen))
    assert all(len(line) <= 80 for line in text.splitlines())
    row = next(line for line in text.splitlines() if "(picked)" in line)
    assert row.split() == ["2", "workers,", "prefetch", "2", "(picked)", "785", "[773,", "798]", "0.99", "0.10", "s"]
    for piece in (
        "4 workers, prefetch 2 (now)",
        "Recommendations for RetinalDataset, training:",
        "Recommended arguments, such as num_workers,",
        "computes for 90 % of its time",
        "no GPU",
        "used 30 % of the CPUs",
        "Saved in",
    ):
        assert piece in " ".join(text.split())
    assert "batches/s" not in render_to_text(lambda screen: show_tune_report(report, screen), quiet=True)
    assert convert_json(read_json(to_json_bytes(report)), TuneReport) == report
    assert report.loaders[0].measured[1].rates == [780, 790, 785]
    assert report.loaders[0].picked == CandidateSettings(2, 2, 0, 32)
    assert report.loaders[0].comparisons[0].outcome is SettingsOutcome.BELOW


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plot.svg", "plot.png"])
def test_the_plot_is_drawn_and_marks_the_pick(sweep: list[CandidateMeasurement], tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / name
    plot.check_can_plot(target)
    plot.draw_plot(target, reported(found(*sweep), found(*sweep, name="Costs $5 a_b")).loaders, "a machine")
    content = target.read_bytes()
    assert content.startswith(b"\x89PNG") if name.endswith("png") else b"<svg" in content
    if name.endswith("svg"):
        assert b"<dc:date>" not in content  # the same measurements give the same file


def test_a_plot_that_cannot_be_drawn_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="is not a picture"):
        plot.check_can_plot(tmp_path / "plot.txt")
    with pytest.raises(UsageProblem, match="nowhere"):
        plot.check_can_plot(tmp_path / "nowhere" / "plot.svg")
