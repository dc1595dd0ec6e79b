"""`chirp-migrate tune` from the command line, with real processes, and what it says when it cannot go on."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import asdict
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from chirp_migrate.cli.options import WholeNumbers
from chirp_migrate.cli.tune import tune
from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.tune.plateau import pick_smallest_best
from chirp_migrate.tune.tune_report import CandidateMeasurement

SETS = """
import time
import torch
from torch.utils.data import Dataset

class Slow(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        time.sleep(0.003)
        return torch.tensor(index)
"""


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(tune, [str(one) for one in arguments])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "sets.py").write_text(SETS)
    return tree


@pytest.mark.slow
@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="starting processes otherwise takes seconds"
)
def test_a_dataset_is_measured_shown_drawn_and_written(tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot, report, profile = tmp_path / "plot.svg", tmp_path / "tune.json", tmp_path / "profile.json"
    result = invoke(
        tree, "--dataset", "sets:Slow", "--loader", "factory", "--num-workers", "0,4", "--prefetch", "2",
        "--time-budget", "1", "--plot", plot, "--json", report, "--profile", profile,
    )  # fmt: skip
    assert result.exit_code == ExitCode.OK, result.output
    text = " ".join(result.output.split())
    assert f"tune runs your own code, in {tree}, in a separate process" in text
    assert "2 configurations of Slow" in text and "less if the best settings are clear early" in text
    assert b"<svg" in plot.read_bytes()
    loader = json.loads(report.read_text())["loaders"][0]
    chosen = pick_smallest_best([msgspec.convert(one, CandidateMeasurement) for one in loader["measured"]])
    assert chosen is not None and f"Picked: {chosen.candidate}," in text
    assert f"- num_workers: {chosen.candidate.num_workers} (" in text
    assert loader["picked"] == asdict(chosen.candidate) and loader["saved"] == str(profile)
    assert len(loader["measured"][0]["rates"]) == loader["rounds"] >= 3
    assert len(json.loads(profile.read_text())["choices"]) == 1
    assert not list(tree.rglob("__pycache__"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "sentence", "exit_code"),
    [
        ("raise ValueError('no such bird')", "Importing sets raised ValueError: no such bird.", 14),
        ("Slow = 3", "sets:Slow returned int: it must return a dataset or a DataLoader.", 2),
    ],
)
def test_what_goes_wrong_in_the_process_that_measures_is_told(
    tree: Path, script: str, sentence: str, exit_code: int
) -> None:
    (tree / "sets.py").write_text(script)
    result = invoke(tree, "--dataset", "sets:Slow", "--no-save")
    assert sentence in str(result.exception) and getattr(result.exception, "exit_code", None) == exit_code
    assert ("ValueError: no such bird" in result.output) is (exit_code == 14), "with the last lines that it printed"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--unaugmented", "a:b"], "--unaugmented needs --dataset"),
        (["--workload", "chirp_verify.py:workload", "--dataset", "a:b"], "pass only the training or only the dataset"),
        (["--workload", "nowhere.py:workload"], "there is no nowhere.py"),
        (["--", "python", "-m", "nowhere"], "PATH has no module nowhere"),
        ([], "has no utils/ folder"),
        (["--config", "nowhere.yaml"], "cannot be read"),
        (["--plot", "picture.txt"], "is not a picture"),
        (["--prefetch", ""], "--prefetch is empty"),
        (["--no-save", "--profile", "p.json"], "contradict each other"),
    ],
)
def test_what_cannot_be_worked_with_is_said_before_anything_runs(
    tree: Path, arguments: list[str], problem: str
) -> None:
    result = invoke(tree, *arguments)
    assert isinstance(result.exception, Exception) and problem in str(result.exception)
    assert getattr(result.exception, "exit_code", None) == ExitCode.USAGE
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize(("option", "text"), [("--num-workers", "0,-2"), ("--num-workers", "65"), ("--prefetch", "0")])
def test_numbers_are_checked(tree: Path, option: str, text: str) -> None:
    result = invoke(tree, option, text)
    assert result.exit_code == ExitCode.USAGE and "pass numbers" in result.output


def test_a_training_without_a_loader_is_told_what_to_pass(tree: Path) -> None:
    (tree / "train.py").write_text("import sets\nprint(sets.Slow()[0])\n")
    result = invoke(tree, "--no-save", "--", "python", "train.py")
    assert getattr(result.exception, "exit_code", None) == ExitCode.USAGE
    assert str(result.exception).endswith(": pass a training that uses a DataLoader, or pass --dataset.")


def test_a_path_that_is_no_folder(tmp_path: Path) -> None:
    result = invoke(tmp_path / "nowhere")
    assert "is not a folder" in str(result.exception)


@pytest.mark.slow
def test_entry_points_that_fail_hang_or_die_are_named_and_the_loaders_of_others_are_measured(
    tree: Path, tmp_path: Path
) -> None:
    (tree / "chirp_verify.py").write_text("""
import os, time
from sets import Slow
from torch.utils.data import DataLoader

def hang():
    while True:
        time.sleep(1)

def train():
    for _ in range(1000):
        for _ in DataLoader(Slow(), batch_size=4):
            pass

def fail():
    raise KeyError('no such bird')

def workload(sizes):
    return {
        'fails': fail, 'hangs': hang, 'dies': lambda: os._exit(7), 'trains': train
    }
""")
    report = tmp_path / "tune.json"
    result = invoke(tree, "--num-workers", "0", "--time-budget", "30", "--json", report, "--no-save")
    assert result.exit_code == ExitCode.OK, result.output
    found = json.loads(report.read_text())
    assert [one["name"] for one in found["loaders"]] == ["Slow"]
    notes = " ".join(found["notes"])
    assert "hangs did not end within" in notes and "dies ended with exit code 7" in notes
    assert "fails raised KeyError: 'no such bird'" in notes


def test_worker_counts_are_numbers() -> None:
    kind = WholeNumbers(0, 64)
    assert kind.convert(" 8,0,2 ,8", None, None) == (0, 2, 8) == kind.convert([8, 0, 2], None, None)
    assert kind.convert("", None, None) == ()
    for text in ("two", "1.5", "-1", "65", "1,,2", True, [1.5]):
        with pytest.raises(click.BadParameter, match="0 to 64"):
            kind.convert(text, None, None)


@pytest.mark.slow
def test_each_training_call_begins_in_the_folder_of_the_project(tree: Path, tmp_path: Path) -> None:
    (tree / "chirp_verify.py").write_text("""
import os
from sets import Slow
from torch.utils.data import DataLoader

def train(size):
    def call():
        open('sets.py').close()
        os.chdir('/')
        for _ in range(1000):
            for _ in DataLoader(Slow(), batch_size=size):
                pass
    return call

def workload(sizes):
    return {'one': train(4), 'other': train(8)}
""")
    report = tmp_path / "tune.json"
    result = invoke(tree, "--num-workers", "0", "--time-budget", "10", "--json", report, "--no-save")
    assert result.exit_code == ExitCode.OK, result.output
    assert not any("does not train" in note for note in json.loads(report.read_text())["notes"])
