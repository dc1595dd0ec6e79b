"""The GPU benchmark runs, judges and reports, here on the CPU; how fast anything is, is not tested."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"
WAYS = {"original", "original-4", "guide", "pinned", "resident", "limit"}


def part(name: str) -> Any:
    return importlib.import_module(f"gpu_bench.{name}")


# --- a run --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One small run on the CPU: what it printed, and its folder."""
    folder = tmp_path_factory.mktemp("gpu")
    command = [sys.executable, str(SCRIPT), str(folder), "--device", "cpu", "--quick", "--samples", "10"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return SimpleNamespace(said=result.stdout, folder=folder, data=json.loads((folder / "gpu.json").read_text("utf-8")))


@pytest.mark.exhaustive  # about a benchmark
def test_the_batches_are_checked_first(run: Any) -> None:
    assert [check["holds"] for check in run.data["correctness"]] == [True] * 4
    assert {check["what"].split(":")[0] for check in run.data["correctness"]} == {
        "not augmented, pinned",
        "not augmented, resident",
        "augmented, pinned",
        "augmented, resident",
    }


def test_every_way_trains_the_trainings_that_targets_are_judged_by_first(run: Any) -> None:
    first = run.data["cells"][0]
    assert (first["model"], first["key"]) == ("medium", True)
    assert set(first["ways"]) == WAYS
    for name, way in first["ways"].items():
        assert way["failed"] in (None, "the budget was used up"), name
        assert all(turn["samples"] >= 10 and turn["seconds"] > 0 for turn in way["turns"])


def test_every_training_is_measured_or_named_as_left_out(run: Any) -> None:
    planned = {(model, augmented) for model in ("small", "medium") for augmented in (True, False)}
    found = [(cell["model"], cell["augmented"]) for cell in run.data["cells"] + run.data["not_measured"]]
    assert set(found) == planned and len(found) == len(planned)


def test_a_run_on_the_cpu_says_what_it_is_and_judges_nothing(run: Any) -> None:
    assert run.data["label"].startswith("CPU: ") and run.data["label"] in run.said
    assert run.data["targets"] == [] and run.data["settings"]["device"] == "cpu"


def test_the_table_is_the_last_that_is_printed_and_is_written_too(run: Any) -> None:
    assert run.said == (run.folder / "gpu.txt").read_text("utf-8")
    assert {"gpu.json", "gpu.txt"} == {path.name for path in run.folder.iterdir()}
    assert max(map(len, run.said.splitlines()[1:])) <= 120  # the machine's name is as long as it is


# --- options ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 3, "no CUDA device here: run it on a machine with one, or test the benchmark with --device cpu --quick"),
        (["--device", "meta"], 2, "cuda or cpu, not meta"),
        (["--device", "nonsense"], 2, "'nonsense' is not a device of PyTorch"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence_and_a_code(
    arguments: list[str], code: int, said: str, tmp_path: Path
) -> None:
    from click.testing import CliRunner

    result = CliRunner().invoke(importlib.import_module("gpu").main, [str(tmp_path / "out"), *arguments])
    assert result.exit_code == code
    assert said in result.output
    assert not (tmp_path / "out").exists()


# --- what the figures mean ----------------------------------------------------------------------------------


def timings(seconds_a_sample: list[float], busy: float | None = None) -> Any:
    measure = part("measure")
    gpu = measure.Gpu(busy, 1, None)
    return measure.Timings("", None, [measure.Turn(100, 100 * seconds, gpu) for seconds in seconds_a_sample])


def cells_with(busy: float | None, resident: float, pinned: float, original: float) -> tuple[Any, list[Any]]:
    """Results of the two trainings that are judged: seconds a sample of each way, the limit's being 1."""
    cells = part("cells")
    key = [cell for cell in cells.cells((24, 32), 32) if cell.key]
    speeds = {"limit": 1.0, "resident": resident, "pinned": pinned, "original": original}
    rounds = [(1.0, 1.001), (1.002, 1.0), (1.0, 1.0)]  # speed of the machine, and of the way, in each round
    ways = {name: timings([speed * a * b for a, b in rounds], busy) for name, speed in speeds.items()}
    return [cells.Measured(cell, ways) for cell in key], key


@pytest.mark.parametrize(
    ("figures", "missed"),
    [
        ((95.0, 1.02, 1.05, 3.0), set()),
        ((85.0, 1.02, 1.05, 3.0), {"GPU utilisation"}),
        ((95.0, 1.10, 1.05, 3.0), {"device-resident, goodput"}),
        ((95.0, 1.02, 1.20, 3.0), {"pinned path, goodput"}),
        ((95.0, 1.02, 1.05, 1.5), {"samples/s of"}),
    ],
)
def test_each_target_holds_or_is_missed_by_itself(figures: Any, missed: set[str]) -> None:
    results, key = cells_with(*figures)
    outcomes = part("report").judge(results, key)
    assert len(outcomes) == 7  # utilisation and two of goodput in each training, time in the augmented one
    assert all(any(word in one.what for word in missed) for one in outcomes if not one.holds)
    assert all(any(word in one.what for one in outcomes if not one.holds) for word in missed)
    assert all("medium CNN, batch 32" in one.what for one in outcomes)


def test_what_was_not_measured_is_not_shown_and_fails_the_run() -> None:
    results, key = cells_with(None, 1.02, 1.05, 3.0)
    report = part("report")
    run = report.Run({}, MACHINE, None, key, [], results)
    assert not run.holds and "NOT SHOWN" in report.as_text_report(run)
    results[0].ways["pinned"].turns.clear()
    results[0].ways["pinned"].failed = "RuntimeError: out of memory"
    said = report.as_text_report(run)
    assert said.count("pinned path") >= 2 and said.count("RuntimeError: out of memory") >= 2 and "≥ 0.90" in said
    run.results.clear()
    assert "medium CNN, batch 32, augmented" in report.as_text_report(run)


def test_a_wrong_batch_fails_the_run_whatever_the_speed() -> None:
    results, key = cells_with(95.0, 1.02, 1.05, 3.0)
    report, check = part("report"), part("correctness").Check
    assert report.Run({}, MACHINE, None, key, [check("the same", "", True)], results).holds
    assert not report.Run({}, MACHINE, None, key, [check("the same", "", False)], results).holds


MACHINE = {
    "processor": "CPU",
    "usable_cpus": 8,
    "accelerator": "GPU",
    "torch": "2",
    "threads": 8,
    "python": "3",
    "system": "Linux",
}


# --- correctness --------------------------------------------------------------------------------------------


@pytest.fixture
def loading() -> Any:
    x, y = torch.rand(12, 1, 8, 8), torch.arange(12)
    params = {"spec_augment_params": None, "gaussian_noise_params": {"std": 0.02, "p": 0.8}}
    data = SimpleNamespace(
        base=TensorDataset(x, y), indices=list(range(12)), mean=0.5, std=0.3, samples=12, augmentation=params
    )
    return part("ways").Loading(data, 5, False, torch.device("cpu"))


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda x, y: (x, y), "largest difference 0"),
        (lambda x, y: (x + 1e-3, y), "largest difference 0.001"),
        (lambda x, y: (x.flip(0), y.flip(0)), "other labels, or another order"),
        (lambda x, y: (x[:-1], y[:-1]), "other numbers or sizes of batches"),
    ],
)
def test_batches_that_are_not_the_same_are_noticed(
    spoil: Any, found: str, loading: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    correctness, ways = part("correctness"), part("ways")

    class Spoilt:
        def __iter__(self) -> Any:
            return (spoil(x, y) for x, y in ways.host_loader(loading))

    monkeypatch.setitem(correctness._OURS, "resident", lambda loading: ways.Running(Spoilt()))
    check = correctness._same_batches("resident", loading)
    assert check.found == found and check.holds == (found == "largest difference 0")


def test_augmentation_left_out_or_too_strong_is_noticed(loading: Any) -> None:
    correctness = part("correctness")
    x = torch.rand(200, 1, 8, 8)
    plain, again = (correctness._values([(part, part)], 0) for part in (x, x + 0.001))
    noisy = correctness._values([(x + 0.5 * torch.randn_like(x), x)], 0)
    assert min(correctness._p_values(plain, again)) > 0.01
    assert min(correctness._p_values(plain, noisy)) < 1e-6


# --- the GPU ------------------------------------------------------------------------------------------------


def test_of_several_gpus_the_one_that_is_trained_on_is_reported() -> None:
    measure, nvml = part("measure"), importlib.import_module("chirpid_patch.machine.nvml")

    def status(*percents: float | None) -> Any:
        unreadable = {"utilization_percent": "NVML reports: Not Supported"}
        return nvml.GpuStatus(tuple(nvml.GpuReading("GPU", one, 0, 0, unreadable) for one in percents))

    statuses = [status(10.0, 80.0, None), status(20.0, 100.0, None)]
    found = [measure.Gpu.of(statuses, torch.device("cuda", number)) for number in range(4)]
    assert [one.busy_percent for one in found] == [15.0, 90.0, None, None]
    assert (found[2].why, found[3].why) == ("NVML reports: Not Supported", "NVML shows 3 GPUs")
    assert found[1].readings == 2
    assert measure.Gpu.of([], torch.device("cuda", 0)).why
    assert "CPU" in measure.Gpu.of(statuses, torch.device("cpu")).why


# --- time ---------------------------------------------------------------------------------------------------


def test_the_budget_is_divided_among_what_is_left_and_more_goes_to_what_is_judged() -> None:
    cells = part("cells")
    planned = cells.cells((24, 32, 48, 256), 32)
    assert len(planned) == 16 and [cell.key for cell in planned[:3]] == [True, True, False]
    left, shares = 440.0, []
    for number, cell in enumerate(planned):
        shares.append(cells.seconds_for_cell(left, cell, planned[number:]))
        left -= shares[-1]
    assert shares == pytest.approx([80.0] * 2 + [20.0] * 14) and left == pytest.approx(0)


def test_turns_are_taken_in_an_order_that_changes_and_end_with_the_time() -> None:
    measure = part("measure")
    order: list[str] = []
    epochs = {name: (lambda name=name: order.append(name) or 10) for name in "abc"}
    found = {name: measure.Timings() for name in epochs}
    nvml = measure.GpuProbe()
    far, past = float("inf"), -float("inf")

    def take(until: float, hard_end: float) -> None:
        measure.take_turns(epochs, found, 3, measure.Span(until, hard_end, 0.0, 9), torch.device("cpu"), nvml)

    take(far, far)
    assert "".join(order) == "abccbabca"
    assert all(len(one.turns) == 3 and one.turns[0].samples == 10 for one in found.values())
    order.clear()
    take(past, far)
    assert len(order) == 6  # two rounds, for a ratio with an interval
    order.clear()
    take(far, past)
    assert order == []
