"""The loader benchmark runs and reports; how fast anything is, is not tested here."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "loader.py"
TINY = ("--samples", "64", "--rounds", "1", "--workloads", "noise,consumer")
CHOSEN = ("--contenders", "original-0,ours,hand-tuned,raw-gather")


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    result = run_script(*TINY, *CHOSEN, "--output", str(folder))
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def data(folder: Path) -> Any:
    return json.loads((folder / "loader.json").read_text(encoding="utf-8"))


def workload(data: Any, name: str) -> Any:
    return next(one for one in data["workloads"] if one["name"] == name)


@pytest.mark.exhaustive  # about a benchmark
def test_raw_figures_are_one_positive_time_a_round(data: Any) -> None:
    for one in data["workloads"]:
        for timings in one["contenders"].values():
            assert timings["unavailable"] is None
            assert len(timings["seconds"]) == len(timings["first_batch_s"]) == 1
            assert min(timings["seconds"]) > 0
            assert all(first < whole for first, whole in zip(timings["first_batch_s"], timings["seconds"], strict=True))


def test_only_what_was_asked_for_is_run(data: Any) -> None:
    assert [one["name"] for one in data["workloads"]] == ["noise", "consumer"]
    assert set(workload(data, "noise")["contenders"]) == {"original-0", "ours", "hand-tuned", "raw-gather"}
    assert set(workload(data, "consumer")["contenders"]) == {"original-0", "ours", "hand-tuned"}


def test_best_other_meets_ours_in_pairs(data: Any) -> None:
    duel = workload(data, "noise")["duel"]
    assert duel["ours"] == "ours" and duel["other"] in {"original-0", "hand-tuned"}
    assert len(duel["ours_s"]) == len(duel["other_s"]) == 3
    assert 0 < duel["low"] <= duel["ratio"] <= duel["high"]


def test_a_simulated_step_is_part_of_the_epoch(data: Any) -> None:
    consumer = workload(data, "consumer")
    assert consumer["step_s"] == 0.008
    for timings in consumer["contenders"].values():
        assert min(timings["seconds"]) > 2 * 0.008


def test_first_batches_are_compared_where_samples_are_in_memory(data: Any) -> None:
    first = workload(data, "noise")["first"]
    assert len(first["plain_s"]) == len(first["ours_s"]) == 3
    assert workload(data, "consumer")["first"] is None


def test_targets_say_what_was_not_measured(data: Any) -> None:
    holds = {target["what"]: target["holds"] for target in data["targets"]}
    assert all(answer is None for what, answer in holds.items() if what.startswith("decode"))
    assert any(answer is not None for what, answer in holds.items() if what.startswith("noise"))


def test_machine_and_command_go_with_the_figures(data: Any) -> None:
    assert data["machine"]["usable_cpus"] >= 1 and data["machine"]["threads"] >= 1
    assert set(data["machine"]["libraries"]) == {"spdl", "torchdata", "tensordict"}
    assert "--samples 64" in data["command"]
    assert data["reduced"] is True


def test_report_and_chart_are_written(folder: Path) -> None:
    text = (folder / "loader.md").read_text(encoding="utf-8")
    assert "A reduced run" in text
    assert "| ours |" in text and "## consumer" in text
    assert "(loader.png)" in text and (folder / "loader.png").stat().st_size > 0


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    result = run_script("--workloads", "nonsense", "--output", str(tmp_path))
    assert result.returncode == 2
    assert "nonsense" in result.stderr and "decode-io" in result.stderr
    assert not list(tmp_path.iterdir())


def test_help_gives_examples() -> None:
    result = run_script("--help")
    assert result.returncode == 0
    assert "--quick" in result.stdout and "Examples:" in result.stdout


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("loader_bench.measure")


def batches(labels: list[int], fill: float = 0.5) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of four with the labels given."""
    return [(torch.full((len(part), 1, 224, 313), fill), part) for part in torch.split(torch.tensor(labels), 4)]


def test_an_epoch_counts_every_sample_once(measure: Any) -> None:
    assert len(measure.run_epoch(batches([3, 1, 0, 2, 5, 4]), 6).waits_s) == 2
    for wrong in ([0, 1, 2, 3], [0, 1, 2, 3, 4, 4]):
        with pytest.raises(measure.WrongWorkError, match="exactly once"):
            measure.run_epoch(batches(wrong), 6)


def test_work_left_out_is_noticed(measure: Any) -> None:
    done, _ = measure.values_of(batches(list(range(8)), fill=0.5), 0.0)
    again, _ = measure.values_of(batches(list(range(8)), fill=0.505), 0.0)
    left_out, _ = measure.values_of(batches(list(range(8)), fill=1.0), 0.0)
    assert again.agree(done) and not left_out.agree(done)
    with pytest.raises(measure.WrongWorkError, match="uint8"):
        measure.values_of([(x.to(torch.uint8), y) for x, y in batches([0, 1])], 0.0)


@pytest.mark.parametrize(("low", "high", "not_worse"), [(0.90, 0.96, False), (0.90, 0.98, True), (1.1, 1.2, True)])
def test_only_an_interval_below_the_bound_is_worse(measure: Any, low: float, high: float, not_worse: bool) -> None:
    duel = measure.Duel("original-0", "ours", [], [], (low + high) / 2, low, high)
    assert duel.not_worse is not_worse
