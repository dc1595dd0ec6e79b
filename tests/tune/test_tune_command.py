"""`chirp-migrate tune` from the command line, with real processes, and what it says when it cannot go on."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from chirp_migrate.cli.tune import tune
from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.tune.candidate import Measured
from chirp_migrate.tune.plateau import pick, standings
from chirp_migrate.tune.process import TuneFailed, run_child
from chirp_migrate.tune.request import Grid, Request

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
# In place of the process that measures: as far as the one that waits for it can see, one that crashes or never ends.
CRASHING = "print('about to go'); import os; os._exit(7)"
ENDLESS = """
import json, os, subprocess, sys, time
request = json.load(open(sys.argv[1]))
worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
with open(request['progress'], 'a') as progress:
    print(os.getpid(), worker.pid, file=progress, flush=True)
    time.sleep(600)
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
        "--seconds", "1", "--plot", plot, "--json", report, "--profile", profile,
    )  # fmt: skip
    assert result.exit_code == ExitCode.OK, result.output
    text = " ".join(result.output.split())
    assert f"tune runs your own code, in {tree}, in a process of its own" in text
    assert "2 ways of loading Slow" in text and "less where it is soon settled" in text
    assert b"<svg" in plot.read_bytes()
    loader = json.loads(report.read_text())["loaders"][0]
    chosen = pick(standings([Measured.from_json(one) for one in loader["measured"]]))
    assert chosen is not None and f"Picked: {chosen.candidate}," in text
    assert f"- num_workers: {chosen.candidate.num_workers} (" in text
    assert loader["picked"] == asdict(chosen.candidate) and loader["saved"] == str(profile)
    assert len(loader["measured"][0]["rates"]) == loader["rounds"] >= 3
    assert len(json.loads(profile.read_text())["choices"]) == 1
    assert not list(tree.rglob("__pycache__"))


@pytest.fixture
def run_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a script in place of the process that measures."""

    def run(script: str, timeout_s: float = 60.0, progress: Callable[[str], None] = lambda _line: None) -> None:
        (tmp_path / "stands_for_runner.py").write_text(script)
        monkeypatch.setattr("chirp_migrate.tune.process._RUNNER", "stands_for_runner")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        run_child(Request(str(tmp_path), "", "", Grid()), tmp_path, timeout_s, progress)

    return run


def test_a_crash_of_the_interpreter_is_told_with_the_last_words(run_instead: Callable[..., None]) -> None:
    with pytest.raises(TuneFailed, match="ended with exit code 7 and gave no result") as raised:
        run_instead(CRASHING)
    assert raised.value.log_tail == "about to go" and raised.value.exit_code == ExitCode.WORKLOAD_FAILED


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="other systems only end the process group")
def test_an_interruption_leaves_nothing_running(run_instead: Callable[..., None]) -> None:
    started: list[int] = []

    def interrupt(line: str) -> None:
        started.extend(map(int, line.split()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_instead(ENDLESS, progress=interrupt)
    assert len(started) == 2 and not any(map(_runs, started))


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie, which somebody else has not waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_process_that_takes_too_long_is_ended(run_instead: Callable[..., None]) -> None:
    with pytest.raises(TuneFailed, match=r"did not come to an end within 0 s: give it longer with --timeout"):
        run_instead(ENDLESS, timeout_s=0.1)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--dataset", "not a name"], "must name a function or class"),
        (["--unaugmented", "a:b"], "--unaugmented belongs to a --dataset"),
        (["--workload", "chirp_verify.py:workload", "--dataset", "a:b"], "give one of them"),
        (["--workload", "nowhere.py:workload"], "there is no nowhere.py"),
        ([], "has no utils/ folder"),
        (["--config", "nowhere.yaml"], "cannot be read"),
        (["--plot", "picture.txt"], "is no picture"),
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
    assert result.exit_code == ExitCode.USAGE and "give numbers" in result.output


def test_a_path_that_is_no_folder(tmp_path: Path) -> None:
    result = invoke(tmp_path / "nowhere")
    assert "is not a folder" in str(result.exception)
